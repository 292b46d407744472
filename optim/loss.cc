#include "optim/loss.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

// A model output seen as a prediction: what ends it, and the value behind that end.
struct Candidate {
  std::string name;
  ValueId value;     // the output itself
  std::string tail;  // "Softmax", "LogSoftmax", "Sigmoid" or ""
  ValueId before;    // what the tail reads; `value` where there is none
};

std::vector<Candidate> Candidates(const ImportedModel& model, const std::string& wanted) {
  std::vector<Candidate> found;
  for (const std::string& name : model.outputs) {
    // The caches that a decoder hands to its next call are nobody's prediction.
    if (wanted.empty() ? name.starts_with("present") : name != wanted) continue;
    const ValueId v = model.graph.FindOutput(name)->value;
    if (!IsFloat(model.graph.type(v).dtype) || model.graph.IsInput(v)) continue;
    Candidate c{name, v, "", v};
    const Node& node = *model.graph.producer(v);
    if (auto logits = model.logits.find(name); logits != model.logits.end()) {
      c.tail = "Softmax";
      c.before = model.graph.FindOutput(logits->second)->value;
    } else if (node.op == "Softmax" || node.op == "LogSoftmax" || node.op == "Sigmoid") {
      c.tail = node.op;
      c.before = node.inputs[0];
    }
    found.push_back(std::move(c));
  }
  return found;
}

Shape Sample(const Shape& shape) { return shape.empty() ? Shape{} : Shape(shape.begin() + 1, shape.end()); }

// The axis of the classes when labels are indices of this shape; nullopt where the shapes do not fit.
std::optional<int> ClassAxis(const Shape& logits, Shape label) {
  if (logits.size() < 2) return std::nullopt;
  if (!label.empty() && label.back() == 1 && label.size() + 1 == logits.size()) label.pop_back();  // [N,1] for [N]
  const Shape sample = Sample(logits);
  if (Shape(sample.begin(), sample.end() - 1) == label) return static_cast<int>(logits.size()) - 1;
  if (Shape(sample.begin() + 1, sample.end()) == label) return 1;
  return std::nullopt;
}

bool ZeroOne(const LabelInfo& labels) { return labels.min_value >= 0 && labels.max_value <= 1; }

// What `--loss auto` would take for this output, or nullopt.
std::optional<LossKind> AutoKind(const Graph& graph, const Candidate& c, const LabelInfo& labels) {
  const Shape& shape = graph.type(c.before).shape;
  const Shape sample = Sample(shape);
  const bool softmax = c.tail == "Softmax" || c.tail == "LogSoftmax";
  if (!labels.present) {
    if (c.tail == "Sigmoid") return LossKind::kBce;
    return softmax || (shape.size() == 2 && shape[1] > 1) ? LossKind::kCrossEntropy : LossKind::kMse;
  }
  const bool same_shape = labels.sample.elements() == NumElements(sample);
  const bool indices = !IsFloat(labels.sample.dtype) && ClassAxis(shape, labels.sample.shape).has_value();
  const bool width_one = !sample.empty() && sample.back() == 1;
  if (c.tail == "Sigmoid" && same_shape) return LossKind::kBce;
  if (width_one && same_shape && !IsFloat(labels.sample.dtype) && ZeroOne(labels)) return LossKind::kBce;
  if (softmax && (indices || labels.sample.shape == sample)) return LossKind::kCrossEntropy;
  if (indices && !width_one) return LossKind::kCrossEntropy;
  if (same_shape && IsFloat(labels.sample.dtype)) return LossKind::kMse;
  return std::nullopt;
}

struct Named {
  std::string_view name;
  LossKind kind;
};
constexpr Named kNames[] = {
    {"cross_entropy", LossKind::kCrossEntropy}, {"nll", LossKind::kNll}, {"bce", LossKind::kBce},
    {"mse", LossKind::kMse}, {"l1", LossKind::kL1}, {"huber", LossKind::kHuber},
};

std::string_view NameOfLoss(LossKind kind) {
  for (const Named& n : kNames) {
    if (n.kind == kind) return n.name;
  }
  return "output";
}

std::string Describe(const Graph& graph, const std::vector<Candidate>& candidates) {
  return absl::StrJoin(candidates, ", ", [&](std::string* out, const Candidate& c) {
    StrAppend(out, "'", c.name, "' ", ToString(graph.type(c.value)));
  });
}

bool IsClassLoss(LossKind kind) { return kind == LossKind::kCrossEntropy || kind == LossKind::kNll; }

// Fills in everything that follows from the kind and the output.
absl::StatusOr<LossChoice> Finish(const Graph& graph, const Candidate& c, LossKind kind, const LabelInfo& labels) {
  LossChoice choice{.kind = kind, .name = std::string(NameOfLoss(kind)), .output = c.name, .value = c.value};
  const bool behind_tail = (kind == LossKind::kCrossEntropy && c.tail != "Sigmoid") || (kind == LossKind::kBce && c.tail == "Sigmoid");
  if (behind_tail) choice.value = c.before;
  if (kind == LossKind::kNll && c.tail == "Softmax") {
    return Invalid("--loss nll needs log-probabilities, but output '", c.name, "' is a Softmax: use cross_entropy");
  }
  const Type& type = graph.type(choice.value);
  if (type.shape.empty()) return Invalid("output '", c.name, "' is a scalar: no loss of labels fits it (use --loss output:", c.name, ")");
  choice.explanation = StrCat(choice.name, " on ", behind_tail && !c.tail.empty() ? StrCat("the logits behind ", c.tail, " ") : "output ",
                              "'", c.name, "' ", ToString(type));
  choice.label = {type.dtype, Sample(type.shape)};
  if (IsClassLoss(kind)) {
    const bool one_hot = labels.present && labels.sample.shape == Sample(type.shape) &&
                         !(labels.sample.shape.size() == 1 && labels.sample.shape[0] == 1);
    choice.classes = true;
    if (one_hot) return choice;
    const auto axis = labels.present ? ClassAxis(type.shape, labels.sample.shape) : ClassAxis(type.shape, Shape(type.shape.begin() + 1, type.shape.end() - 1));
    if (!axis.has_value()) {
      return Invalid("labels ", ToString(labels.sample), " per sample do not fit the output '", c.name, "' ", ToString(type),
                     " with --loss ", choice.name);
    }
    choice.num_classes = type.shape[*axis];
    choice.label = {DType::kInt64, Sample(type.shape)};
    choice.label.shape.erase(choice.label.shape.begin() + (*axis - 1));
  } else {
    choice.classes = kind == LossKind::kBce;
    if (labels.present && labels.sample.elements() != NumElements(choice.label.shape)) {
      return Invalid("labels ", ToString(labels.sample), " per sample do not fit the output '", c.name, "' ", ToString(type),
                     " with --loss ", choice.name);
    }
  }
  return choice;
}

absl::StatusOr<LossChoice> ChooseOutputLoss(const ImportedModel& model, const std::string& name) {
  const GraphOutput* output = model.graph.FindOutput(name);
  if (output == nullptr || !IsFloat(model.graph.type(output->value).dtype)) {
    return Invalid("--loss output:", name, ": the model has no float output of that name; it has ",
                   absl::StrJoin(model.outputs, ", "));
  }
  return LossChoice{.kind = LossKind::kOutput, .name = "output:" + name, .output = name, .value = output->value,
                    .explanation = StrCat("the model's own output '", name, "'"),
                    .label = {DType::kFloat32, {0}}};
}

}  // namespace

absl::StatusOr<LossChoice> ChooseLoss(const ImportedModel& model, const LossSpec& spec, const LabelInfo& labels) {
  if (spec.name.starts_with("output:")) return ChooseOutputLoss(model, spec.name.substr(7));
  const std::vector<Candidate> all = Candidates(model, spec.logits);
  if (all.empty()) {
    return Invalid(spec.logits.empty() ? "the model has no float output to train on" : StrCat("--logits ", spec.logits, ": no float value of that name"));
  }
  const bool automatic = spec.name == "auto";
  std::vector<Candidate> fitting;
  std::vector<LossKind> kinds;
  for (const Candidate& c : all) {
    std::optional<LossKind> kind;
    if (automatic) {
      kind = AutoKind(model.graph, c, labels);
    } else {
      for (const Named& n : kNames) {
        if (n.name == spec.name) kind = n.kind;
      }
      if (!kind.has_value()) return Invalid("--loss ", spec.name, ": unknown; known are auto, cross_entropy, nll, bce, mse, l1, huber, output:NAME");
      if (all.size() > 1 && !Finish(model.graph, c, *kind, labels).ok()) continue;
    }
    if (!kind.has_value()) continue;
    fitting.push_back(c);
    kinds.push_back(*kind);
  }
  if (fitting.size() == 1) return Finish(model.graph, fitting[0], kinds[0], labels);
  if (fitting.size() > 1) {
    return Invalid("several outputs could be trained: ", Describe(model.graph, fitting), "; choose one with --logits NAME");
  }
  return Invalid("no loss fits labels ", labels.present ? ToString(labels.sample) : "that are not there", " per sample and the outputs ",
                 Describe(model.graph, all), "; choose with --loss and --logits");
}

namespace {

// Logits as [rows, classes] or [N, C, …] and labels to match, for the CrossEntropy row.
struct ClassPair {
  Val logits, labels;
};

ClassPair Arrange(Val logits, Val labels) {
  const int axis = *ClassAxis(logits.shape(), Shape(labels.shape().begin() + 1, labels.shape().end()));
  if (axis == 1) return {logits, labels};
  const int64_t classes = logits.dim(axis);
  const int64_t rows = NumElements(labels.shape());
  return {Reshape(logits, {rows, classes}), Reshape(labels, {rows})};
}

Val Hits(Val scores, Val labels, int64_t axis, DType dtype) {
  const Val best = scores.b().Op("ArgMax", {scores}, {{"axis", axis}, {"keepdims", int64_t{0}}});
  return ReduceSum(Cast(Equal(best, labels), dtype), {}, false);
}

struct Terms {
  Val losses, correct;
};

Terms CrossEntropy(Val logits, Val labels, const LossSpec& spec) {
  const auto pair = Arrange(logits, labels);
  const Val loss = logits.b().Ops("CrossEntropy", {pair.logits, pair.labels},
                                  {{"ignore_index", spec.ignore_index}, {"label_smoothing", spec.label_smoothing}})[0];
  return {loss, Hits(pair.logits, pair.labels, 1, logits.dtype())};
}

// −Σ t·log p for labels given as distributions over the last axis.
Terms SoftCrossEntropy(Val logits, Val targets, const LossSpec& spec) {
  Builder& b = logits.b();
  const int64_t axis = logits.rank() - 1;
  const double classes = static_cast<double>(logits.dim(-1));
  const Val t = spec.label_smoothing == 0 ? targets : targets * (1 - spec.label_smoothing) + spec.label_smoothing / classes;
  const Val log_prob = b.Op("LogSoftmax", {logits}, {{"axis", axis}});
  const Val best = b.Op("ArgMax", {targets}, {{"axis", axis}, {"keepdims", int64_t{0}}});
  return {-(t * log_prob), Hits(logits, best, axis, logits.dtype())};
}

// −log_prob[label], nothing for ignored labels.
Terms Nll(Val log_prob, Val labels, const LossSpec& spec) {
  Builder& b = log_prob.b();
  const auto pair = Arrange(log_prob, labels);
  const Val ignored = Equal(pair.labels, b.Scalar(DType::kInt64, static_cast<double>(spec.ignore_index)));
  const Val safe = Where(ignored, b.Scalar(DType::kInt64, 0), pair.labels);
  Shape index_shape = pair.labels.shape();
  index_shape.insert(index_shape.begin() + 1, 1);
  const Val picked = b.Op("GatherElements", {pair.logits, Reshape(safe, index_shape)}, {{"axis", int64_t{1}}});
  const Val losses = Where(ignored, b.Scalar(log_prob.dtype(), 0), -Reshape(picked, pair.labels.shape()));
  return {losses, Hits(pair.logits, pair.labels, 1, log_prob.dtype())};
}

Terms Bce(Val logits, Val targets) {
  Builder& b = logits.b();
  const Val hit = Equal(Greater(logits, b.Scalar(logits.dtype(), 0)), Greater(targets, b.Scalar(logits.dtype(), 0.5)));
  return {b.Op("BinaryCrossEntropyWithLogits", {logits, targets}), ReduceSum(Cast(hit, logits.dtype()), {}, false)};
}

// Huber with delta 1, as PyTorch's default.
Val Huber(Val difference) {
  const Val a = difference.b().Op("Abs", {difference});
  const Val one = difference.b().Scalar(difference.dtype(), 1);
  return Where(Less(a, one), difference * difference * 0.5, a - 0.5);
}

Terms Regression(LossKind kind, Val y, Val t) {
  const Val d = y - t;
  if (kind == LossKind::kMse) return {d * d, Val()};
  if (kind == LossKind::kL1) return {y.b().Op("Abs", {d}), Val()};
  return {Huber(d), Val()};
}

Terms LossTerms(const LossChoice& choice, const LossSpec& spec, Val y, Val labels) {
  const bool indices = choice.num_classes > 0;
  switch (choice.kind) {
    case LossKind::kCrossEntropy: return indices ? CrossEntropy(y, labels, spec) : SoftCrossEntropy(y, labels, spec);
    case LossKind::kNll: return Nll(y, labels, spec);
    case LossKind::kBce: return Bce(y, labels);
    default: return Regression(choice.kind, y, labels);
  }
}

}  // namespace

absl::StatusOr<LossValues> AttachLoss(Graph* graph, const LossChoice& choice, const LossSpec& spec, int64_t batch) {
  Builder b(graph);
  b.set_source("loss");
  const Val y = b.Wrap(choice.value);
  Val loss_sum, correct;
  if (choice.kind == LossKind::kOutput) {
    // A scalar is a mean over the samples; anything else holds one loss per sample.
    loss_sum = y.rank() == 0 ? y * static_cast<double>(batch) : ReduceSum(y, {}, false);
  } else {
    if (y.dim(0) != batch) {
      return Invalid("output '", choice.output, "' has type ", ToString(y.type()), ": its first extent is not the batch of ", batch);
    }
    Type label = choice.label;
    if (IsFloat(label.dtype)) label.dtype = y.dtype();
    label.shape.insert(label.shape.begin(), batch);
    const Val labels = b.Input(InputKind::kFeed, kLabelFeed, label);
    const Terms terms = LossTerms(choice, spec, y, labels);
    loss_sum = ReduceSum(terms.losses, {}, false);
    correct = terms.correct;
  }
  if (!correct.valid()) correct = b.Scalar(y.dtype(), 0);
  RETURN_IF_ERROR(b.status());
  return LossValues{loss_sum.id(), correct.id()};
}

double WindowWeight(const LossChoice& choice, const LossSpec& spec, const HostTensor& labels, int64_t samples) {
  if (choice.kind == LossKind::kOutput) return static_cast<double>(samples);
  if (choice.num_classes == 0) {  // dense: the mean over every element, distributions count once each
    const bool distributions = IsClassLoss(choice.kind);
    return static_cast<double>(labels.size()) / (distributions ? std::max<int64_t>(1, labels.shape().back()) : 1);
  }
  const auto values = labels.data<int64_t>();
  return static_cast<double>(values.size() - std::count(values.begin(), values.end(), spec.ignore_index));
}

}  // namespace onnxtrain
