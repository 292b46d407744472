#include "optim/plan/data_checks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/load/sample_order.h"
#include "frontend/ops/row.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/training_run.h"
#include "optim/step/session.h"

namespace onnxtrain {
namespace {

constexpr size_t kMostSizes = 64;  // limit on sample sizes; further sizes count as the greatest one

using StepsBySize = std::map<VariableExtents, int64_t>;

int64_t CountSteps(const PreparedModel& prepared, size_t term) {
  const LossTerm& t = prepared.loss.terms[term];
  return prepared.model.graph.type(t.value).shape[1 - t.batch_axis()];
}

// Returns the extents that a batch with this sample is padded to.
VariableExtents PaddedExtents(const SessionOptions& options, const Dataset& data, int64_t i) {
  if (options.variable_inputs.empty()) return {};
  if (options.variable_extents == 1) return {RoundUpLength(data.Length(i), GreatestExtents(options)[0]), 0};
  const PictureExtents extents = data.Extents(i);
  return {extents.padded_height, extents.padded_width};
}

// Counts the steps of each loss term by size of the samples, including the greatest size.
absl::StatusOr<std::vector<StepsBySize>> CountStepsBySize(PreparedModels& models, const SessionOptions& options,
                                                          const PreparedModel& prepared, const Dataset& data) {
  std::vector<StepsBySize> steps(prepared.loss.terms.size());
  const auto add = [&](const VariableExtents& extents, const PreparedModel& model) {
    for (size_t term = 0; term < steps.size(); ++term) {
      if (prepared.loss.terms[term].form == LabelForm::kSequence) steps[term][extents] = CountSteps(model, term);
    }
  };
  std::set<VariableExtents> seen = {GreatestExtents(options)};
  add(GreatestExtents(options), prepared);
  if (options.variable_inputs.empty()) return steps;
  for (int64_t i = 0; i < data.size() && seen.size() < kMostSizes; ++i) {
    const VariableExtents extents = PaddedExtents(options, data, i);
    if (!seen.insert(extents).second) continue;
    ASSIGN_OR_RETURN(const PreparedModel at,
                     models.Prepare(PrepareAt(options, extents), options.micro_batch, true, false));
    add(extents, at);
  }
  return steps;
}

}  // namespace

absl::StatusOr<std::vector<SequenceCheck>> MakeSequenceChecks(PreparedModels& models, const SessionOptions& options,
                                                              const PreparedModel& prepared, const BoundData& data) {
  std::vector<SequenceCheck> checks;
  const LossChoice& loss = prepared.loss;
  const auto aligns = [](const LossTerm& term) { return term.form == LabelForm::kSequence; };
  if (std::ranges::none_of(loss.terms, aligns) || data.dataset->streams()) return checks;
  ASSIGN_OR_RETURN(std::vector<StepsBySize> steps, CountStepsBySize(models, options, prepared, *data.dataset));
  for (size_t term = 0; term < loss.terms.size(); ++term) {
    if (!aligns(loss.terms[term])) continue;
    const auto feed = std::ranges::find(loss.feeds, loss.terms[term].feed, &LossFeed::name);
    const BoundLabel* label = FindBoundLabel(data, feed->label);
    if (label == nullptr) continue;  // MakeTrainData rejects such data
    checks.push_back({.columns = label->columns,
                      .ignore_index = options.loss.ignore_index,
                      .blank = std::llround(OptionOr(loss.terms[term].options, "blank", 0)),
                      .steps = [options, source = data.dataset, by_size = std::move(steps[term])](int64_t i) {
                        const auto found = by_size.find(PaddedExtents(options, *source, i));
                        return found != by_size.end() ? found->second : by_size.at(GreatestExtents(options));
                      }});
  }
  return checks;
}

namespace {

using OpClass = bool (*)(const OpRow&);

bool TestsForNan(const OpRow& row) { return row.name == "IsNaN"; }

bool MovesElements(const OpRow& row) { return row.moves_data || row.copies || row.selects; }

// Returns true if the operator moves elements or is a sum, product or power.
bool MovesOrCombines(const OpRow& row) { return MovesElements(row) || (row.arithmetic && row.inputs.min == 2); }

bool MultipliesByWeight(const OpRow& row) {
  return std::ranges::any_of(row.init.roles, [](WeightRole role) {
    return role >= WeightRole::kMatrix && role <= WeightRole::kRecurrentMatrix;
  });
}

// Returns true if the one output has all elements of the one input: a view, a repetition or a permutation.
bool KeepsAllElements(const Graph& graph, const Node& node) {
  return FindOp(node.op)->moves_data && node.inputs.size() == 1 &&
         graph.type(node.outputs[0]).elements() >= graph.type(node.inputs[0]).elements();
}

// Returns, by value id, whether the value reaches a target operator as its first operand, through `through` operators.
std::vector<bool> FindReaching(const Graph& graph, OpClass through, OpClass is_target) {
  std::vector<bool> reaching(graph.values().size(), false);
  for (size_t n = graph.nodes().size(); n-- > 0;) {
    const Node& node = graph.nodes()[n];
    if (node.inputs.empty()) continue;
    const OpRow& row = *FindOp(node.op);
    if (is_target(row) && node.inputs[0] != kNoValue) reaching[node.inputs[0]] = true;
    if (!through(row) || std::ranges::none_of(node.outputs, [&](ValueId v) { return reaching[v]; })) continue;
    for (ValueId v : node.inputs) {
      if (v != kNoValue) reaching[v] = true;
    }
  }
  return reaching;
}

class RangeFinder {
 public:
  explicit RangeFinder(const Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes()) {
      if (node.op != "Gather" && node.op != "GatherElements") continue;
      const int64_t n = graph.type(node.inputs[0]).shape[node.attrs.Int("axis")];
      const ValueId table = node.inputs[0];
      const std::string name =
          graph.IsInput(table) ? graph.inputs()[graph.value(table).index].name : StrCat(node.op, " ", *node.source);
      Trace(node.inputs[1], {.min = -static_cast<double>(n), .max = static_cast<double>(n - 1)}, name, n);
    }
  }

  std::optional<ValueRange> Find(const std::string& feed) const {
    const auto found = ranges_.find(feed);
    return found == ranges_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  // Walks back from indices to the feed that they depend on; added constants shift the range.
  void Trace(ValueId v, ValueRange range, const std::string& table, int64_t rows) {
    while (!graph_.IsInput(v)) {
      const Node* node = graph_.producer(v);
      if (node == nullptr || node->inputs.empty()) return;
      if (KeepsAllElements(graph_, *node)) {
        v = node->inputs[0];
      } else if (!UndoSum(*node, &v, &range)) {
        return;
      }
    }
    const GraphInput& input = graph_.inputs()[graph_.value(v).index];
    if (input.kind != InputKind::kFeed) return;
    range.what = StrCat("the ", rows, " rows of '", table, "': ", range.min, " to ", range.max,
                        ", where negative ones count from the end");
    const auto [it, fresh] = ranges_.emplace(input.name, range);
    if (fresh) return;
    const double low = std::max(it->second.min, range.min), high = std::min(it->second.max, range.max);
    if (high < it->second.max) it->second.what = range.what;
    it->second.min = low;
    it->second.max = high;
  }

  bool UndoSum(const Node& node, ValueId* v, ValueRange* range) const {
    if (node.op != "Add" && node.op != "Sub") return false;
    const bool first = node.op == "Add" && graph_.FindConstant(node.inputs[0]) != nullptr;
    const HostTensor* constant = graph_.FindConstant(node.inputs[first ? 0 : 1]);
    if (constant == nullptr || constant->size() != 1) return false;
    const double offset = node.op == "Add" ? constant->At(0) : -constant->At(0);
    range->min -= offset;
    range->max -= offset;
    *v = node.inputs[first ? 1 : 0];
    return true;
  }

  const Graph& graph_;
  std::map<std::string, ValueRange> ranges_;
};

}  // namespace

void AddValueChecks(const ImportedModel& model, std::vector<FeedSpec>* feeds) {
  const RangeFinder ranges(model.graph);
  const std::vector<bool> tested = FindReaching(model.graph, MovesOrCombines, TestsForNan);
  for (FeedSpec& feed : *feeds) {
    const GraphInput* input = model.graph.FindInput(feed.feed);
    if (input == nullptr) continue;
    feed.range = ranges.Find(feed.feed);
    feed.allow_nan = tested[input->value];
  }
}

std::vector<bool> FindUnscaled(const Graph& graph) { return FindReaching(graph, MovesElements, MultipliesByWeight); }

namespace {

constexpr int64_t kSamples = 64;
constexpr double kLarge = 100;  // standardized data is far below; percentages and ages do not exceed it
constexpr size_t kListed = 4;

// Returns the largest magnitude of each element over the samples of a batch.
std::vector<double> LargestByElement(const HostTensor& batch) {
  const int64_t samples = batch.shape()[0], width = batch.size() / std::max<int64_t>(samples, 1);
  std::vector<double> largest(width, 0);
  for (int64_t i = 0; i < batch.size(); ++i) {
    if (std::isfinite(batch.At(i))) largest[i % width] = std::max(largest[i % width], std::fabs(batch.At(i)));
  }
  return largest;
}

// Lists the columns of a table whose values are too large.
std::string ListLarge(const TrainData& data, const FeedSpec& feed, const std::vector<double>& largest) {
  std::string text;
  size_t found = 0;
  for (size_t c = 0; c < largest.size(); ++c) {
    if (largest[c] <= kLarge || ++found > kListed) continue;
    StrAppend(&text, found == 1 ? "" : ", ", "'", data.dataset->columns()[feed.columns[c]].name, "' (up to ",
              FormatNumber(largest[c]), ")");
  }
  return found > kListed ? StrCat(text, " and ", found - kListed, " more") : text;
}

std::string LargeInputHint(const TrainingRun& run, const FeedSpec& feed, const HostTensor& batch) {
  const std::vector<double> largest = LargestByElement(batch);
  const double most = largest.empty() ? 0 : *std::max_element(largest.begin(), largest.end());
  if (most <= kLarge) return "";
  const std::string input = StrCat("input '", feed.feed, "', which the model does not scale, ");
  if (feed.columns.size() > 1 && feed.columns.size() == largest.size())
    return StrCat(input, "has large columns: ", ListLarge(run.train, feed, largest),
                  " (`standardize` brings columns to mean 0 and deviation 1)");
  if (run.data.train.bound.has_images)
    return StrCat(input, "has values up to ", FormatNumber(most), " (`normalize` unit or imagenet scales pixels)");
  return StrCat(input, "has values up to ", FormatNumber(most), "; ",
                most <= 255 && feed.sample.rank() >= 2
                    ? "store pixels as u8, which `normalize` scales, or divide by 255"
                    : "`standardize` brings them to mean 0 and deviation 1");
}

// Warns about pixels that are nearly black. Masks and drawings are often stored as 0 and 1, which scaling turns into
// 1/255.
std::string DarkPixelsHint(const FeedSpec& feed, const HostTensor& batch) {
  if (feed.scale >= 1 || !feed.mean.empty()) return "";
  double most = 0;
  for (int64_t i = 0; i < batch.size(); ++i) most = std::max(most, batch.At(i));
  if (most == 0 || most > 1.5 * feed.scale) return "";
  return StrCat("the pixels of input '", feed.feed, "' are 0 or 1 in the first ", batch.shape()[0],
                " samples, and are divided by 255 (`normalize` raw feeds them as they are)");
}

// Warns about batch statistics of a single sample: they equal its values, so the normalization yields 0 or noise.
std::string SingleSampleHint(const TrainingRun& run, const PreparedModel& prepared) {
  if (prepared.model.state_updates.empty()) return "";
  const int64_t global = run.batch.global, rest = run.train.dataset->size() % global;
  const std::string why = ", and BatchNormalization computes its statistics over a batch";
  if (global == 1) return StrCat("batches have one sample (`batch_size`)", why);
  if (rest == 1 && !run.config.drop_last)
    return StrCat("the last batch of an epoch has one sample", why, "; `drop_last` leaves it out");
  if (run.batch.micro == 1)
    return StrCat("micro-batches have one sample (`micro_batch_size`)", why, "; `batch_norm` frozen keeps the file's");
  return "";
}

bool IsOneHot(const HostTensor& labels) {
  const int64_t samples = labels.shape()[0], width = labels.size() / samples;
  for (int64_t i = 0; i < samples; ++i) {
    int64_t ones = 0;
    for (int64_t k = i * width; k < (i + 1) * width; ++k) ones += labels.At(k) == 1;
    if (ones != 1) return false;
  }
  return width > 1;
}

// Warns if labels with only two values are trained with mse, which is rarely intended.
std::string ClassLabelHint(const TrainingRun& run, const LossChoice& loss, const GlobalBatch& batch) {
  const LossTerm& term = loss.leading();
  if (run.data.loss.name != "auto" || loss.terms.size() != 1 || term.function->name != "mse") return "";
  const HostTensor* labels = batch.Find(term.feed);
  std::set<double> values;
  for (int64_t i = 0; labels != nullptr && i < labels->size() && values.size() < 3; ++i) values.insert(labels->At(i));
  if (values.size() != 2) return "";
  const std::string seen = StrCat("mse was chosen, and all labels of the first ", labels->shape()[0], " samples are ",
                                  FormatNumber(*values.begin()), " or ", FormatNumber(*values.rbegin()));
  if (values != std::set<double>{0, 1}) return StrCat(seen, ": `loss` bce trains a classifier on labels 0 and 1");
  return StrCat(seen, IsOneHot(*labels) ? ", one-hot: `loss` ce" : ": `loss` bce", " trains a classifier");
}

// Fails if a classifier gets a single class, usually because one subfolder contains all pictures.
absl::Status CheckSeveralClasses(const BoundData& data, const LossChoice& loss) {
  if (!data.classes_are_sorted || data.classes.size() != 1 || loss.num_classes() < 2) return absl::OkStatus();
  return Invalid("`data`: all labels are '", data.classes[0],
                 "': there is nothing to tell apart (pictures and sounds need a folder for each class, or a table with "
                 "their paths and labels)");
}

// Fails if a regression gets numbered names, usually dates or texts that all differ: their numbers are no quantity.
absl::Status CheckNamesAreNotMeasured(const BoundData& data, const LossChoice& loss) {
  const bool measures = loss.name == "mse" || loss.name == "l1" || loss.name == "huber";
  if (!data.classes_are_sorted || data.classes.size() < 3 || !measures) return absl::OkStatus();
  return Invalid("`data`: the label has ", data.classes.size(), " names ('", data.classes[0], "', '", data.classes[1],
                 "', …), and loss ", loss.name,
                 " fits numbers: `label` names another column, or the model needs an output for each class");
}

// Describes integer labels that all have one class. Names of a single class are refused elsewhere.
std::string DescribeOneClass(const BoundData& data, const LossChoice& loss) {
  if (data.label.columns.size() != 1 || loss.num_classes() < 2) return "";
  const LabelInfo& info = data.label.info;
  if (IsFloat(info.sample.dtype) || info.min_value != info.max_value || data.dataset->size() < 2) return "";
  return StrCat("all labels are ", info.min_value, ": there is nothing to tell apart");
}

}  // namespace

absl::StatusOr<std::vector<std::string>> FindDataHints(const TrainingRun& run, const PreparedModel& prepared) {
  std::vector<std::string> hints = run.data.train.bound.warnings;
  if (run.data.synthetic) return hints;
  const auto add = [&](std::string hint) {
    if (!hint.empty()) hints.push_back(std::move(hint));
  };
  RETURN_IF_ERROR(CheckSeveralClasses(run.data.train.bound, prepared.loss));
  RETURN_IF_ERROR(CheckNamesAreNotMeasured(run.data.train.bound, prepared.loss));
  add(DescribeOneClass(run.data.train.bound, prepared.loss));
  add(DescribeGuessedClasses(run.data.train.bound, prepared.loss));
  add(SingleSampleHint(run, prepared));
  ASSIGN_OR_RETURN(const GlobalBatch batch, ReadGlobalBatch(run.train, kSamples));
  add(ClassLabelHint(run, prepared.loss, batch));
  const Graph& graph = prepared.model.graph;
  const std::vector<bool> unscaled = FindUnscaled(graph);
  for (const FeedSpec& feed : run.data.train.bound.feeds) {
    if (const HostTensor* values = batch.Find(feed.feed)) add(DarkPixelsHint(feed, *values));
    const GraphInput* input = graph.FindInput(feed.feed);
    if (!IsFloat(feed.sample.dtype) || input == nullptr || !unscaled[input->value]) continue;
    if (const HostTensor* values = batch.Find(feed.feed)) add(LargeInputHint(run, feed, *values));
  }
  return hints;
}

std::string DescribeGuessedClasses(const BoundData& data, const LossChoice& loss) {
  const auto names = static_cast<int64_t>(data.classes.size());
  if (!data.classes_are_sorted || names >= loss.num_classes()) return "";
  return StrCat("the labels have ", names, " names and the model ", loss.num_classes(),
                " classes, which it does not name: the names are numbered in sorted order, which may be wrong (keep "
                "preprocess.json beside a trained model, or write labels as numbers)");
}

}  // namespace onnxtrain
