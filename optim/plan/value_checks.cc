#include "optim/plan/value_checks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/data/load/sample_order.h"
#include "frontend/ops/row.h"
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

}  // namespace onnxtrain
