#include "optim/step/loss.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/data/text/pair_rows.h"
#include "frontend/ops/row.h"
#include "optim/config/loss_text.h"
#include "optim/step/onnx_functions.h"

namespace onnxtrain {
namespace {

// A model output, its final activation, and the value that the activation reads.
struct Candidate {
  std::string name;
  ValueId value;     // the output itself
  std::string tail;  // "Softmax", "LogSoftmax", "Sigmoid" or ""
  ValueId before;    // input of the tail; `value` if there is no tail
};

// Drops outputs without a row per sample if there are others.
void PreferBatched(const ImportedModel& model, std::vector<Candidate>* candidates) {
  const auto batched = [&](const Candidate& c) {
    const Type& type = model.graph.type(c.value);
    return type.rank() > 0 && type.shape[0] == model.batch;
  };
  if (std::ranges::any_of(*candidates, batched)) std::erase_if(*candidates, std::not_fn(batched));
}

// Drops outputs that no weight reaches, such as forwarded inputs, if there are others.
void PreferLearned(const Graph& graph, std::vector<Candidate>* candidates) {
  std::vector<bool> learned(graph.values().size(), false);
  for (const GraphInput& input : graph.inputs())
    learned[input.value] = input.kind == InputKind::kParameter || input.kind == InputKind::kFrozen;
  for (const Node& node : graph.nodes()) {
    const bool any = std::ranges::any_of(node.inputs, [&](ValueId v) { return v != kNoValue && learned[v]; });
    for (const ValueId v : node.outputs) learned[v] = any;
  }
  const auto is_learned = [&](const Candidate& c) { return learned[c.value]; };
  if (std::ranges::any_of(*candidates, is_learned)) std::erase_if(*candidates, std::not_fn(is_learned));
}

std::vector<Candidate> Candidates(const ImportedModel& model, const std::string& wanted) {
  std::vector<Candidate> found;
  for (const std::string& name : model.outputs) {
    // Key/value caches of a decoder are no predictions.
    if (wanted.empty() ? name.starts_with("present") : name != wanted) continue;
    const ValueId v = model.graph.FindOutput(name)->value;
    if (!IsFloat(model.graph.type(v).dtype) || model.graph.IsInput(v)) continue;
    Candidate c{name, v, "", v};
    const Node& node = *model.graph.producer(v);
    if (auto logits = model.logits.find(name); logits != model.logits.end()) {
      c.tail = logits->second.activation;
      c.before = model.graph.FindOutput(logits->second.output)->value;
    } else if (FindOp(node.op)->probabilities) {
      c.tail = node.op;
      c.before = node.inputs[0];
    }
    found.push_back(std::move(c));
  }
  if (wanted.empty()) {
    PreferBatched(model, &found);
    PreferLearned(model.graph, &found);
  }
  return found;
}

Shape Sample(const Shape& shape) { return shape.empty() ? Shape{} : Shape(shape.begin() + 1, shape.end()); }

bool ZeroOne(const LabelInfo& labels) { return labels.min_value >= 0 && labels.max_value <= 1; }

bool IsSoftmax(const Candidate& c) { return c.tail == "Softmax" || c.tail == "LogSoftmax"; }

// Returns the function that `auto` chooses for this output, or null.
const LossFunction* AutoLoss(const Graph& graph, const Candidate& c, const LabelInfo& labels) {
  const Shape& shape = graph.type(c.before).shape;
  const Shape sample = Sample(shape);
  if (!labels.present) {
    if (c.tail == "Sigmoid") return FindLoss("bce");
    return FindLoss(IsSoftmax(c) || (shape.size() == 2 && shape[1] > 1) ? "cross_entropy" : "mse");
  }
  const bool same_shape = labels.sample.elements() == NumElements(sample);
  const std::optional<int> axis = ClassAxis(shape, labels.sample.shape);
  const bool indices = !IsFloat(labels.sample.dtype) && axis.has_value();
  const bool one_channel = axis.has_value() && shape[*axis] == 1;  // of a mask
  const bool width_one = one_channel || (!sample.empty() && sample.back() == 1);
  if (c.tail == "Sigmoid" && same_shape) return FindLoss("bce");
  if (width_one && same_shape && !IsFloat(labels.sample.dtype) && ZeroOne(labels)) return FindLoss("bce");
  if (IsSoftmax(c) && (indices || labels.sample.shape == sample)) return FindLoss("cross_entropy");
  if (indices && !width_one) return FindLoss("cross_entropy");
  return same_shape && IsFloat(labels.sample.dtype) ? FindLoss("mse") : nullptr;
}

std::string Describe(const Graph& graph, const std::vector<Candidate>& candidates) {
  return absl::StrJoin(candidates, ", ", [&](std::string* out, const Candidate& c) {
    StrAppend(out, "'", c.name, "' ", ToString(graph.type(c.value)));
  });
}

bool Contains(std::string_view words, std::string_view word) {
  return !word.empty() && words.find(word) != std::string_view::npos;
}

// [N,T,C] or [T,N,C] with labels [S].
bool IsSequence(const Shape& shape, const LabelInfo& labels) {
  return shape.size() == 3 && (!labels.present || (labels.sample.shape.size() == 1 && !IsFloat(labels.sample.dtype)));
}

// Returns the form of the labels for a loss on values of this shape; kNone if they fit no form.
LabelForm ChooseLabelForm(const LossFunction& loss, const Candidate& c, const Shape& shape, const LabelInfo& labels) {
  const Shape sample = Sample(shape);
  if (loss.sequences) return IsSequence(shape, labels) ? LabelForm::kSequence : LabelForm::kNone;
  const bool one_value = labels.sample.shape == Shape{1};
  const bool same_shape = labels.present && labels.sample.elements() == NumElements(sample);
  const bool distribution = labels.present && labels.sample.shape == sample && !one_value;
  // A loss that accepts both forms reads labels of the output's shape as elements unless the output ends in Softmax.
  const bool binary_labels = loss.elements && (!loss.classes || !IsSoftmax(c));
  if (binary_labels && (same_shape || (!labels.present && (!loss.classes || sample.size() != 1 || sample[0] < 2))))
    return LabelForm::kElements;
  if (!loss.classes) return LabelForm::kNone;
  if (distribution) return LabelForm::kDistribution;
  const Shape label = labels.present ? labels.sample.shape : Sample(Shape(shape.begin(), shape.end() - 1));
  return ClassAxis(shape, label).has_value() ? LabelForm::kClasses : LabelForm::kNone;
}

// A term and its label feed.
struct Chosen {
  LossTerm term;
  LossFeed feed;
};

// Returns 1 if the value is a channels-first image, that is, only elementwise operators separate it from an operator
// that reads channels at axis 1 (convolution, pooling, normalization). Otherwise returns the last axis.
int PresumeClassAxis(const Graph& graph, ValueId value) {
  const Shape& shape = graph.type(value).shape;
  const int last = static_cast<int>(shape.size()) - 1;
  for (const Node* node = graph.producer(value); node != nullptr && !node->inputs.empty();
       node = graph.producer(value)) {
    const OpRow& row = *FindOp(node->op);
    if (row.layout.inputs != 0) return std::min(1, last);
    value = node->inputs[0];
    if (row.moves_data || value == kNoValue || graph.type(value).shape != shape) break;
  }
  return last;
}

// Returns the class axis of a value of this shape: the one that the labels leave out, else option `axis`, else the
// model's.
absl::StatusOr<int> ChooseClassAxis(const Graph& graph, const LossTerm& term, const LabelInfo& labels) {
  const Shape& shape = graph.type(term.value).shape;
  const int last = static_cast<int>(shape.size()) - 1;
  const double asked = OptionOr(term.options, "axis", kOpenOption);
  if (!std::isnan(asked) && asked != -1 && asked != 1 && asked != last)
    return Invalid("`loss` ", term.function->name, ":axis=", asked, ": the classes of '", term.output, "' ",
                   ToString(graph.type(term.value)), " are along axis 1 or ", last);
  const int wanted = std::isnan(asked) ? PresumeClassAxis(graph, term.value) : asked == 1 ? 1 : last;
  Shape label = labels.sample.shape;
  if (!labels.present) {
    label = Sample(shape);
    label.erase(label.begin() + (wanted - 1));
  }
  const int axis = *ClassAxis(shape, label);
  if (!std::isnan(asked) && axis != wanted)
    return Invalid("`loss` ", term.function->name, ":axis=", asked, ": labels ", ToString(label), " of '", term.output,
                   "' ", ToString(graph.type(term.value)), " leave out axis ", axis);
  return axis;
}

// Completes a term from its function and output.
absl::StatusOr<Chosen> Finish(const ImportedModel& model, const Candidate& c, const LossFunction& loss,
                              const LossTermSpec& spec, const LabelInfo& labels) {
  const Graph& graph = model.graph;
  Chosen chosen;
  LossTerm& term = chosen.term = {
      .function = &loss, .options = spec.options, .factor = spec.factor, .output = c.name, .value = c.value};
  if (model.moved_outputs.contains(c.name)) term.options.erase("time_first");  // the importer has moved the batch
  term.activation = c.tail;
  const bool on_logits = Contains(loss.final_activations, c.tail);
  if (on_logits) term.value = c.before;
  if (loss.name == "nll" && c.tail == "Softmax") {
    return Invalid("`loss` nll needs log-probabilities, but output '", c.name, "' is a Softmax: use cross_entropy");
  }
  const Type& type = graph.type(term.value);
  if (type.shape.empty())
    return Invalid("output '", c.name, "' is a scalar: no loss of labels fits it (use `loss` output:", c.name, ")");
  term.explanation = StrCat(loss.name, " on ", on_logits ? StrCat("the logits behind ", c.tail, " ") : "output ", "'",
                            c.name, "' ", ToString(type));
  term.form = ChooseLabelForm(loss, c, type.shape, labels);
  if (term.form == LabelForm::kNone) {
    return Invalid("labels ", labels.present ? ToString(labels.sample) : "that are not there",
                   " per sample do not fit the output '", c.name, "' ", ToString(type), " with `loss` ", loss.name);
  }
  chosen.feed = {.label = spec.label_key(), .sample = {type.dtype, Sample(type.shape)}};
  if (term.form == LabelForm::kSequence) {
    const int64_t made_up = std::max<int64_t>(1, type.shape[1 - term.batch_axis()] / 4);
    chosen.feed.sample = {DType::kInt64, labels.present ? labels.sample.shape : Shape{made_up}};
    chosen.feed.num_classes = type.shape[2];
  }
  if (term.form != LabelForm::kClasses) return chosen;
  ASSIGN_OR_RETURN(const int axis, ChooseClassAxis(graph, term, labels));
  chosen.feed.num_classes = type.shape[axis];
  chosen.feed.sample.dtype = DType::kInt64;
  chosen.feed.sample.shape.erase(chosen.feed.sample.shape.begin() + (axis - 1));
  return chosen;
}

absl::StatusOr<Chosen> ChooseOutputLoss(const ImportedModel& model, const LossTermSpec& spec) {
  const GraphOutput* output = model.graph.FindOutput(spec.output);
  if (output == nullptr || !IsFloat(model.graph.type(output->value).dtype)) {
    return Invalid("`loss` output:", spec.output, ": the model has no float output of that name; it has ",
                   absl::StrJoin(model.outputs, ", "));
  }
  return Chosen{{.function = spec.function,
                 .factor = spec.factor,
                 .output = spec.output,
                 .value = output->value,
                 .explanation = StrCat("the model's own output '", spec.output, "'")},
                {}};
}

// Names a value that fits the labels and that the model only reshapes into an output, as scikit-learn's converter does.
std::string HintAtReshape(const Graph& graph, const std::vector<Candidate>& outputs, const LabelInfo& labels) {
  for (const Candidate& output : outputs) {
    const Node* node = graph.producer(output.value);
    if (node == nullptr || !FindOp(node->op)->view) continue;
    const ValueId v = node->inputs[0];
    const std::string& name = graph.value(v).name;
    if (name.empty() || !IsFloat(graph.type(v).dtype) || !AutoLoss(graph, {name, v, "", v}, labels)) continue;
    return StrCat(" (they fit '", name, "' ", ToString(graph.type(v)), ", which '", output.name,
                  "' reshapes: `logits` ", name, ")");
  }
  return "";
}

// Names the flag that makes texts of labels for ctc, if an output may be trained with it.
std::string HintAtTexts(const Graph& graph, const std::vector<Candidate>& outputs, const LabelInfo& labels) {
  for (const Candidate& output : outputs) {
    const Shape& shape = graph.type(output.value).shape;
    if (labels.present && labels.sample.rank() == 0 && shape.size() == 3)
      return StrCat(" (labels that are texts need `class_map` FILE, which names the characters of the ", shape[2],
                    " classes of '", output.name, "')");
  }
  return "";
}

// An output, and a loss between it and the labels.
struct Fit {
  Candidate output;
  const LossFunction* loss;
};

std::vector<Fit> FindFits(const ImportedModel& model, const LossTermSpec& term, const LabelInfo& labels,
                          const std::vector<Candidate>& outputs) {
  std::vector<Fit> fits;
  for (const Candidate& c : outputs) {
    const LossFunction* loss = term.function == nullptr ? AutoLoss(model.graph, c, labels) : term.function;
    if (loss == nullptr) continue;
    if (term.function != nullptr && outputs.size() > 1 && !Finish(model, c, *loss, term, labels).ok()) continue;
    fits.push_back({c, loss});
  }
  return fits;
}

std::vector<Candidate> Outputs(const std::vector<Fit>& fits) {
  std::vector<Candidate> outputs;
  for (const Fit& fit : fits) outputs.push_back(fit.output);
  return outputs;
}

// Labels as they are; then floats as classes, as tables with missing values store them (one that is no whole number is
// an error when it is read), and integers as numbers: prices, ages, counts.
std::vector<LabelInfo> Readings(const LabelInfo& labels) {
  std::vector<LabelInfo> readings = {labels};
  if (!labels.present) return readings;
  readings.push_back(labels);
  readings.back().sample.dtype = IsFloat(labels.sample.dtype) ? DType::kInt64 : DType::kFloat32;
  return readings;
}

absl::StatusOr<Chosen> ChooseTerm(const ImportedModel& model, const LossSpec& spec, const LossTermSpec& term,
                                  const LabelInfo& labels) {
  if (term.function != nullptr && term.function->name == "output") return ChooseOutputLoss(model, term);
  const std::string& wanted = term.output.empty() ? spec.logits : term.output;
  const std::vector<Candidate> all = Candidates(model, wanted);
  if (wanted.empty() && (all.empty() || !spec.gradient_end.empty()))
    return Invalid("the model has no float output to train on", spec.gradient_end.empty() ? "" : ": ",
                   spec.gradient_end);
  if (all.empty()) {
    return Invalid(term.output.empty() ? "`logits` " : "`loss` …@", wanted, ": no float value of that name");
  }
  for (const LabelInfo& as : Readings(labels)) {
    const std::vector<Fit> fits = FindFits(model, term, as, all);
    if (fits.size() == 1) return Finish(model, fits[0].output, *fits[0].loss, term, as);
    if (fits.size() > 1) {
      return Invalid("several outputs could be trained: ", Describe(model.graph, Outputs(fits)),
                     "; choose one with `logits` NAME");
    }
  }
  return Invalid("no loss fits labels ", labels.present ? ToString(labels.sample) : "that are not there",
                 " per sample and the outputs ", Describe(model.graph, all), "; choose with `loss` and `logits`",
                 labels.present ? HintAtReshape(model.graph, all, labels) : "", HintAtTexts(model.graph, all, labels));
}

// Replaces a term of `auto` by one term for each trainable output, each with separate labels, if there are several.
std::vector<LossTermSpec> SumOutputs(const ImportedModel& model, const LossSpec& spec,
                                     std::vector<LossTermSpec> terms) {
  const bool open = terms.size() == 1 && terms[0].function == nullptr && terms[0].output.empty() &&
                    terms[0].file.empty() && spec.logits.empty();
  if (!spec.sum_outputs || !open) return terms;
  std::vector<LossTermSpec> sum;
  for (const Candidate& c : Candidates(model, "")) {
    if (model.graph.type(c.before).shape.empty()) continue;
    LossTermSpec term = terms[0];
    term.output = c.name;
    term.label = {c.name};
    sum.push_back(std::move(term));
  }
  return sum.size() > 1 ? sum : terms;
}

std::string Explanation(const LossChoice& choice) {
  if (choice.terms.size() == 1 && choice.terms[0].factor == 1) return choice.terms[0].explanation;
  return absl::StrJoin(choice.terms, " + ", [](std::string* out, const LossTerm& term) {
    StrAppend(out, term.factor == 1 ? "" : StrCat(term.factor, " × "), term.explanation);
  });
}

}  // namespace

std::string TermName(std::string_view name, size_t term) {
  return term == 0 ? std::string(name) : StrCat(name, ":", term);
}

std::string FindOrAddFeed(const LossFeed& wanted, std::vector<LossFeed>* feeds) {
  for (LossFeed& feed : *feeds) {
    if (feed.label != wanted.label || feed.sample != wanted.sample) continue;
    feed.num_classes = std::max(feed.num_classes, wanted.num_classes);
    return feed.name;
  }
  feeds->push_back(wanted);
  return feeds->back().name = TermName(kLabelFeed, feeds->size() - 1);
}

int LossTerm::batch_axis() const {
  return form == LabelForm::kSequence && OptionOr(options, "time_first", 0) != 0 ? 1 : 0;
}

int64_t LossChoice::num_classes() const {
  for (const LossFeed& feed : feeds) {
    if (feed.name == leading().feed) return feed.num_classes;
  }
  return 0;
}

absl::StatusOr<std::vector<std::string>> LossOutputs(const OnnxModel& model, const LossSpec& spec) {
  ASSIGN_OR_RETURN(const std::vector<LossTermSpec> terms, ParseLoss(spec.name));
  const std::vector<std::string>& own = model.outputs();
  std::vector<std::string> wanted;
  bool internal = false, all_named = true;
  for (const LossTermSpec& term : terms) {
    if (!term.file.empty()) {
      all_named = false;  // its inputs are bound to outputs by name
      continue;
    }
    const std::string& name = term.output.empty() ? spec.logits : term.output;
    const bool of_the_model =
        term.function != nullptr && term.function->name == "output";  // ChooseOutputLoss lists the outputs
    all_named &= !name.empty() && !of_the_model;
    if (of_the_model) continue;
    if (name.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end()) continue;
    internal |= std::find(own.begin(), own.end(), name) == own.end();
    wanted.push_back(name);
  }
  if (!internal) return std::vector<std::string>();
  for (const std::string& name : own) {
    if (!all_named && std::find(wanted.begin(), wanted.end(), name) == wanted.end()) wanted.push_back(name);
  }
  return wanted;
}

namespace {

// Feeds one class per sample as a share for each class.
void SoftenLabels(const Graph& graph, Chosen* chosen) {
  const Type& type = graph.type(chosen->term.value);
  if (chosen->term.form != LabelForm::kClasses || type.rank() != 2) return;
  chosen->term.form = LabelForm::kDistribution;
  chosen->feed.sample = {type.dtype, {chosen->feed.num_classes}};
  chosen->feed.one_hot = true;
}

// Checks that there is one weight per class for every loss that takes class weights.
absl::Status CheckClassWeights(const Graph& graph, const LossSpec& spec, const LossChoice& choice) {
  for (const LossTerm& term : choice.terms) {
    if (spec.class_weights.empty() || !Contains(term.function->takes, "class_weights")) continue;
    const Shape& y = graph.type(term.value).shape;
    int64_t classes = y.back();
    for (const LossFeed& feed : choice.feeds) {
      if (feed.name == term.feed && feed.num_classes > 0) classes = feed.num_classes;
    }
    if (classes == std::ssize(spec.class_weights)) continue;
    return Invalid("`class_weights`: ", spec.class_weights.size(), " weights for the ", classes, " classes of output '",
                   term.output, "'");
  }
  return absl::OkStatus();
}

}  // namespace

namespace {

// Adds the feeds of a loss of pairs besides the labels of the chosen rows.
void AddPairFeeds(const Graph& graph, Chosen* chosen, std::vector<LossFeed>* feeds) {
  if (!chosen->term.function->pairs) return;
  LossFeed rejected = chosen->feed;
  rejected.label = kRejectedLabel;
  chosen->term.rejected_feed = FindOrAddFeed(rejected, feeds);
  if (!chosen->term.function->reference) return;
  const LossFeed reference{.label = kReferenceLabel, .sample = {graph.type(chosen->term.value).dtype, {2}}};
  chosen->term.reference_feed = FindOrAddFeed(reference, feeds);
}

}  // namespace

absl::StatusOr<LossChoice> ChooseLoss(const ImportedModel& model, const LossSpec& spec, const LabelInfo& labels) {
  ASSIGN_OR_RETURN(std::vector<LossTermSpec> terms, ParseLoss(spec.name));
  terms = SumOutputs(model, spec, std::move(terms));
  LossChoice choice{.alphabet = spec.alphabet};
  for (const LossTermSpec& term : terms) {
    if (!term.file.empty()) {
      ASSIGN_OR_RETURN(choice.terms.emplace_back(), ChooseOnnxTerm(model, spec, term, labels, &choice.feeds));
      continue;
    }
    const auto own = spec.own_labels.find(term.label_key());
    ASSIGN_OR_RETURN(Chosen chosen, ChooseTerm(model, spec, term, own != spec.own_labels.end() ? own->second : labels));
    if (spec.soft_labels) SoftenLabels(model.graph, &chosen);
    if (chosen.term.form != LabelForm::kNone) chosen.term.feed = FindOrAddFeed(chosen.feed, &choice.feeds);
    AddPairFeeds(model.graph, &chosen, &choice.feeds);
    if (spec.alphabet != nullptr && chosen.term.function->sequences)
      chosen.term.options.try_emplace("blank", 1, static_cast<double>(spec.alphabet->blank()));
    if (chosen.term.function->counts_correct && !choice.classes) choice.lead = choice.terms.size();
    choice.classes |= chosen.term.function->counts_correct;
    choice.terms.push_back(std::move(chosen.term));
  }
  const bool plain = terms.size() == 1 && terms[0].options.empty() && terms[0].factor == 1 && terms[0].label.empty();
  choice.name =
      plain && choice.terms[0].form != LabelForm::kNone ? std::string(choice.terms[0].function->name) : spec.name;
  choice.explanation = StrCat(Explanation(choice), spec.logits_why);
  RETURN_IF_ERROR(CheckClassWeights(model.graph, spec, choice));
  return choice;
}

namespace {

// Adds the label feeds; returns them by name.
std::map<std::string, Val> AddFeeds(Builder& b, const LossChoice& choice, int64_t batch) {
  std::map<std::string, Val> labels;
  for (const LossFeed& feed : choice.feeds) {
    Type type = feed.sample;
    type.shape.insert(type.shape.begin(), batch);
    labels[feed.name] = b.Input(InputKind::kFeed, feed.name, type);
  }
  return labels;
}

// A scalar loss output of the model is a mean over the samples.
Val Sum(Val losses, int64_t batch) {
  return losses.rank() == 0 ? losses * static_cast<double>(batch) : ReduceSum(losses, {}, false);
}

}  // namespace

std::optional<double> LeastLogit(const LossSpec& spec) {
  if (!spec.least_probability.has_value()) return std::nullopt;
  const double p = std::clamp(*spec.least_probability, 0.0, 1.0);
  return std::log(p) - std::log1p(-p);
}

LossContext MakeLossContext(Graph* graph, Builder& b, const LossTerm& term, const LossSpec& spec) {
  const auto find = [&](const std::string& feed) {
    const GraphInput* input = feed.empty() ? nullptr : graph->FindInput(feed);
    return input == nullptr ? Val() : b.Wrap(input->value);
  };
  return {.y = b.Wrap(term.value),
          .labels = find(term.feed),
          .form = term.form,
          .options = term.options,
          .ignore_index = spec.ignore_index,
          .label_smoothing = spec.label_smoothing,
          .class_weights = spec.class_weights,
          .least_logit = LeastLogit(spec),
          .rejected = find(term.rejected_feed),
          .reference = find(term.reference_feed)};
}

namespace {

absl::StatusOr<LossParts> Append(Builder& b, const LossTerm& term, const LossSpec& spec,
                                 const std::map<std::string, Val>& labels, int64_t batch) {
  if (term.onnx != nullptr) {
    ASSIGN_OR_RETURN(const Val losses, AppendOnnxLoss(b, *term.onnx, labels, batch));
    return LossParts{losses, Val()};
  }
  return term.function->parts(MakeLossContext(&b.graph(), b, term, spec));
}

}  // namespace

absl::Status CheckLossBatch(const Graph& graph, const LossChoice& choice, int64_t batch) {
  for (const LossTerm& term : choice.terms) {
    const Type& type = graph.type(term.value);
    if (term.form == LabelForm::kNone || type.shape[term.batch_axis()] == batch * term.sample_rows()) continue;
    return Invalid("output '", term.output, "' has type ", ToString(type), ": its ",
                   term.batch_axis() == 0 ? "first" : "second", " extent is not the batch of ", batch,
                   term.form == LabelForm::kSequence ? " (ctc:time_first=1: time comes first)" : "");
  }
  return absl::OkStatus();
}

absl::StatusOr<LossValues> AttachLoss(Graph* graph, const LossChoice& choice, const LossSpec& spec, int64_t batch) {
  RETURN_IF_ERROR(CheckLossBatch(*graph, choice, batch));
  Builder b(graph);
  b.set_source("loss");
  const std::map<std::string, Val> labels = AddFeeds(b, choice, batch);
  LossValues values;
  for (const LossTerm& term : choice.terms) {
    ASSIGN_OR_RETURN(const LossParts parts, Append(b, term, spec, labels, batch));
    values.loss_sums.push_back(Sum(parts.losses, batch).id());
    if (&term == &choice.leading())
      values.correct = (parts.correct.valid() ? parts.correct : b.Scalar(parts.losses.dtype(), 0)).id();
  }
  RETURN_IF_ERROR(b.status());
  return values;
}

}  // namespace onnxtrain
