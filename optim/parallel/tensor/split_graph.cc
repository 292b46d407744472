#include "optim/parallel/tensor/split_graph.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/collective.h"
#include "frontend/ops/row.h"
#include "frontend/passes/pass.h"
#include "frontend/passes/rewrite.h"
#include "optim/parallel/pipeline/stage.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMaxBlocks = 4;  // that are tried

bool IsWeight(const Graph& graph, ValueId v) {
  if (!graph.IsInput(v)) return false;
  const InputKind kind = graph.inputs()[graph.value(v).index].kind;
  return kind == InputKind::kParameter || kind == InputKind::kFrozen || kind == InputKind::kState;
}

// Values that depend on weights and constants alone.
std::vector<bool> FindWeightValues(const Graph& graph) {
  std::vector<bool> of_weights(graph.values().size());
  for (const GraphInput& input : graph.inputs()) of_weights[input.value] = IsWeight(graph, input.value);
  for (const Node& node : graph.nodes()) {
    const bool all = std::ranges::all_of(node.inputs, [&](ValueId v) { return v == kNoValue || of_weights[v]; });
    for (const ValueId v : node.outputs) of_weights[v] = all && !node.inputs.empty();
  }
  return of_weights;
}

class Planner {
 public:
  Planner(const Graph& graph, std::span<const ValueId> results, int ranks,
          const std::function<bool(const Node& gather)>& splits_table)
      : graph_(graph),
        splits_table_(splits_table),
        users_(ComputeUsers(graph)),
        of_weights_(FindWeightValues(graph)),
        is_result_(graph.values().size()) {
    plan_.ranks = ranks;
    for (const ValueId v : results) is_result_[v] = true;
  }

  SplitPlan Plan() {
    for (size_t n = 0; n < graph_.nodes().size(); ++n) GrowFrom(static_cast<int32_t>(n));
    for (size_t n = 0; n < graph_.nodes().size(); ++n) SplitTable(static_cast<int32_t>(n));
    return std::move(plan_);
  }

 private:
  // Divides the columns of a product with a weight, and all values to which this division propagates.
  void GrowFrom(int32_t n) {
    const Node& node = graph_.nodes()[n];
    if (node.op == "Gather" || plan_.nodes.contains(n) || node.inputs.size() < 2) return;
    for (size_t i = 0; i < 2; ++i) {
      if (node.inputs[i] == kNoValue || node.inputs[1 - i] == kNoValue) return;
      if (!of_weights_[node.inputs[i]] || of_weights_[node.inputs[1 - i]]) continue;
      const std::optional<int> axis = FindWeightAxis(graph_, node, i);
      if (!axis) continue;
      for (int64_t blocks = 1; blocks <= kMaxBlocks; ++blocks) {
        if (Try([&] { return Assign(node.outputs[0], {*axis, blocks}); })) return;
      }
    }
  }

  // Divides the rows of an embedding.
  void SplitTable(int32_t n) {
    const Node& node = graph_.nodes()[n];
    if (node.op != "Gather" || plan_.nodes.contains(n) || !IsWeight(graph_, node.inputs[0])) return;
    if (!splits_table_(node)) return;
    Try([&] { return Assign(node.inputs[0], {static_cast<int>(node.attrs.Int("axis")), 1}); });
  }

  // Runs `grow`, and undoes its divisions if it fails.
  template <typename Grow>
  bool Try(const Grow& grow) {
    SplitPlan before = plan_;
    if (grow()) return true;
    plan_ = std::move(before);
    return false;
  }

  bool Assign(ValueId v, const AxisSplit& split) {
    const auto found = plan_.values.find(v);
    if (found != plan_.values.end()) return found->second == split;
    if (!CanSplit(graph_.type(v).shape, split, plan_.ranks) || IsTerm(v)) return false;
    plan_.values.emplace(v, split);
    if (is_result_[v]) plan_.joined.insert(v);
    if (!graph_.IsInput(v) && !AddProducer(v, split)) return false;
    return std::ranges::all_of(users_[v], [&](int32_t user) { return AddUser(user, v, split); });
  }

  // Returns true if the whole value is the sum of the ranks' values.
  bool IsTerm(ValueId v) const {
    if (graph_.IsInput(v)) return false;
    const auto producer = plan_.nodes.find(graph_.value(v).node);
    return producer != plan_.nodes.end() && producer->second.sums;
  }

  bool AddProducer(ValueId v, const AxisSplit& split) {
    const auto index = static_cast<size_t>(graph_.value(v).index);
    const int32_t n = graph_.value(v).node;
    const auto found = plan_.nodes.find(n);
    if (found != plan_.nodes.end()) return found->second.outputs[index] == split;
    return Add(n, SplitNode(graph_, graph_.nodes()[n], {true, index}, split, plan_.ranks));
  }

  bool AddUser(int32_t n, ValueId v, const AxisSplit& split) {
    const Node& node = graph_.nodes()[n];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != v) continue;
      const auto found = plan_.nodes.find(n);
      if (found == plan_.nodes.end()) {
        if (!Add(n, SplitNode(graph_, node, {false, i}, split, plan_.ranks))) return false;
      } else if (found->second.inputs[i] != split) {
        return false;
      }
    }
    return true;
  }

  bool Add(int32_t n, const std::optional<NodeSplit>& split) {
    if (!split) return false;
    const Node& node = graph_.nodes()[n];
    plan_.nodes.emplace(n, *split);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (split->outputs[o] && !Assign(node.outputs[o], *split->outputs[o])) return false;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId v = node.inputs[i];
      if (v == kNoValue) continue;
      const bool fits = split->inputs[i] ? Ask(v, *split->inputs[i]) : !plan_.values.contains(v);
      if (!fits) return false;
    }
    return true;
  }

  // Divides an operand, or leaves it whole: every rank then takes its part.
  bool Ask(ValueId v, const AxisSplit& split) {
    const auto found = plan_.values.find(v);
    if (found != plan_.values.end()) return found->second == split;
    const bool whole = IsTerm(v) || (graph_.IsInput(v) ? !IsWeight(graph_, v) : graph_.FindConstant(v) != nullptr);
    if (!whole) Try([&] { return Assign(v, split); });
    return true;
  }

  const Graph& graph_;
  const std::function<bool(const Node& gather)>& splits_table_;
  const Users users_;
  const std::vector<bool> of_weights_;
  std::vector<bool> is_result_;
  SplitPlan plan_;
};

}  // namespace

SplitPlan PlanSplit(const Graph& forward, std::span<const ValueId> results, int ranks,
                    const std::function<bool(const Node& gather)>& splits_table) {
  return Planner(forward, results, ranks, splits_table).Plan();
}

bool IsLargeTable(const Graph& forward, const Node& gather) {
  return forward.type(gather.inputs[0]).shape[gather.attrs.Int("axis")] >= forward.type(gather.inputs[1]).elements();
}

namespace {

std::vector<bool> FindTrained(const Graph& graph) {
  std::vector<bool> trained(graph.values().size());
  for (const GraphInput& input : graph.inputs()) trained[input.value] = input.kind == InputKind::kParameter;
  for (const Node& node : graph.nodes()) {
    const bool any = std::ranges::any_of(node.inputs, [&](ValueId v) { return v != kNoValue && trained[v]; });
    for (const ValueId v : node.outputs) trained[v] = any && IsFloat(graph.type(v).dtype);
  }
  return trained;
}

// [outer, blocks, axis / blocks, inner], to take runs of every block.
Shape BlockShape(const Shape& shape, const AxisSplit& split) {
  const auto axis = shape.begin() + split.axis;
  return {NumElements({shape.begin(), axis}), split.blocks, *axis / split.blocks, NumElements({axis + 1, shape.end()})};
}

class PartBuilder {
 public:
  PartBuilder(const Graph& graph, const SplitPlan& plan, int rank)
      : graph_(graph),
        plan_(plan),
        rank_(rank),
        group_{kTensorGroup, plan.ranks},
        trained_(FindTrained(graph)),
        builder_(&part_),
        part_of_(graph.values().size(), kNoValue),
        whole_of_(part_of_) {}

  absl::StatusOr<Graph> Build(std::vector<ValueId>* values) {
    AddInputs();
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      builder_.set_source(node.source);
      const auto found = plan_.nodes.find(static_cast<int32_t>(n));
      found == plan_.nodes.end() ? Copy(node) : AddPart(node, found->second);
      RETURN_IF_ERROR(builder_.status());
    }
    for (const GraphOutput& output : graph_.outputs())
      part_.AddOutput(output.name, Current(output.value), output.into == kNoValue ? kNoValue : Current(output.into));
    *values = std::move(whole_of_);
    for (size_t v = 0; v < values->size(); ++v) {
      if ((*values)[v] == kNoValue) (*values)[v] = part_of_[v];
    }
    return std::move(part_);
  }

 private:
  // Returns the new value of an output: the joined one if it exists, else the part.
  ValueId Current(ValueId v) const { return whole_of_[v] != kNoValue ? whole_of_[v] : part_of_[v]; }

  void AddInputs() {
    for (const GraphInput& input : graph_.inputs()) {
      Type type = graph_.type(input.value);
      const auto split = plan_.values.find(input.value);
      if (split != plan_.values.end()) type.shape = PartShape(std::move(type.shape), split->second, plan_.ranks);
      const ValueId v = part_.AddInput(input.kind, input.name, std::move(type));
      part_.SetValueName(v, graph_.value(input.value).name);
      Set(input.value, builder_.Wrap(v));
    }
  }

  // Records the value of this rank, and joins it if it is needed whole.
  void Set(ValueId v, Val now) {
    if (!now.valid()) return;
    const auto split = plan_.values.find(v);
    (split == plan_.values.end() ? whole_of_ : part_of_)[v] = now.id();
    if (part_.value(now.id()).name->empty()) part_.SetValueName(now.id(), graph_.value(v).name);
    if (plan_.joined.contains(v)) whole_of_[v] = Join(now, split->second).id();
  }

  void Copy(const Node& node) {
    std::vector<Val> inputs;
    for (const ValueId v : node.inputs) inputs.push_back(v == kNoValue ? Val() : builder_.Wrap(whole_of_[v]));
    SetOutputs(node, builder_.Ops(node.op, std::move(inputs), node.attrs));
  }

  void SetOutputs(const Node& node, const std::vector<Val>& outputs) {
    for (size_t o = 0; o < node.outputs.size(); ++o) Set(node.outputs[o], outputs[o]);
  }

  // Returns the part of an operand that the node reads. The gradients of uses of a whole value are summed over the
  // ranks.
  Val Operand(ValueId v, const std::optional<AxisSplit>& split) {
    if (v == kNoValue) return Val();
    if (split && plan_.values.contains(v)) return builder_.Wrap(part_of_[v]);
    const Val whole = Shared(v);
    return split ? Take(whole, *split) : whole;
  }

  Val Shared(ValueId v) {
    const Val whole = builder_.Wrap(whole_of_[v]);
    if (!trained_[v]) return whole;
    const auto [found, added] = shared_.try_emplace(v, kNoValue);
    if (added) found->second = SumGradient(whole, group_).id();
    return builder_.Wrap(found->second);
  }

  void AddPart(const Node& node, const NodeSplit& split) {
    if (node.op == "Gather" && split.sums) return Set(node.outputs[0], SumPartial(GatherRows(node, split), group_));
    if (node.op == "Dropout") return Set(node.outputs[0], DropPart(node, split));
    std::vector<Val> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(Operand(node.inputs[i], split.inputs[i]));
    if (!split.sums)
      return SetOutputs(node, builder_.Ops(node.op, inputs, PartAttrs(graph_, node, split, plan_.ranks)));
    const bool biased = node.inputs.size() > 2 && node.inputs[2] != kNoValue;
    inputs.resize(std::min<size_t>(inputs.size(), 2));
    const Val sum = SumPartial(builder_.Op(node.op, inputs, node.attrs), group_);
    Set(node.outputs[0], biased ? sum + ChannelBias(node) : sum);
  }

  // Returns the bias of a convolution whose terms are summed without bias.
  Val ChannelBias(const Node& node) {
    Shape shape(graph_.type(node.outputs[0]).rank(), 1);
    shape[1] = graph_.type(node.inputs[2]).shape[0];
    return Reshape(builder_.Wrap(whole_of_[node.inputs[2]]), shape);
  }

  // Rows of the table of this rank; zeros for the others.
  Val GatherRows(const Node& node, const NodeSplit& split) {
    const auto axis = static_cast<size_t>(node.attrs.Int("axis"));
    const int64_t rows = graph_.type(node.inputs[0]).shape[axis], own = rows / plan_.ranks;
    const Val index = builder_.Wrap(whole_of_[node.inputs[1]]);
    const auto number = [&](int64_t value) { return builder_.Scalar(index.dtype(), static_cast<double>(value)); };
    Val row = Where(Less(index, number(0)), index + number(rows), index);
    row = Min(Max(row, 0), static_cast<double>(rows - 1));
    row = row - number(rank_ * own);
    const Val below = Less(row, number(own)), has = And(below, Less(number(-1), row));
    const Val table = Operand(node.inputs[0], split.inputs[0]);
    const Val gathered = builder_.Op("Gather", {table, Where(has, row, number(0))}, node.attrs);
    Shape shape(gathered.rank(), 1);
    std::ranges::copy(graph_.type(node.inputs[1]).shape, shape.begin() + static_cast<std::ptrdiff_t>(axis));
    return Where(Reshape(has, shape), gathered, builder_.Scalar(gathered.dtype(), 0));
  }

  // Applies this rank's part of a dropout mask that is drawn for the whole value.
  Val DropPart(const Node& node, const NodeSplit& split) {
    const Type& whole = graph_.type(node.outputs[0]);
    const Val ones = Expand(builder_.Scalar(whole.dtype, 1), whole.shape);
    const Val mask = builder_.Op("Dropout", {ones, builder_.Wrap(whole_of_[node.inputs[1]])}, node.attrs);
    return Operand(node.inputs[0], split.inputs[0]) * Take(mask, *split.outputs[0]);
  }

  Val Take(Val whole, const AxisSplit& split) {
    const Shape& shape = whole.shape();
    const Shape blocks = BlockShape(shape, split);
    const int64_t own = blocks[2] / plan_.ranks;
    return Reshape(Slice(Reshape(whole, blocks), 2, rank_ * own, own), PartShape(shape, split, plan_.ranks));
  }

  // Sums parts that are padded with zeros: the gradient of a part is that part of the whole one.
  Val Join(Val part, const AxisSplit& split) {
    Shape shape = part.shape();
    const Shape blocks = BlockShape(shape, split);
    const std::vector<int64_t> pads = {0, 0, rank_ * blocks[2], 0, 0, 0, (plan_.ranks - 1 - rank_) * blocks[2], 0};
    const Val padded = builder_.Op("Pad", {Reshape(part, blocks)}, {{"pads", pads}});
    shape[split.axis] *= plan_.ranks;
    return SumPartial(Reshape(padded, shape), group_);
  }

  const Graph& graph_;
  const SplitPlan& plan_;
  const int rank_;
  const RankGroup group_;
  const std::vector<bool> trained_;
  Graph part_;
  Builder builder_;
  std::vector<ValueId> part_of_, whole_of_;  // by value of the whole graph
  std::map<ValueId, ValueId> shared_;        // whole values whose gradients are summed
};

}  // namespace

absl::StatusOr<Graph> BuildPart(const Graph& forward, const SplitPlan& plan, int rank, std::vector<ValueId>* values) {
  return PartBuilder(forward, plan, rank).Build(values);
}

absl::StatusOr<Graph> DecomposeDropout(const Graph& forward, std::vector<ValueId>* values) {
  const auto rule = [](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    if (node.op != "Attention" || node.attrs.Float("ratio") == 0) return std::nullopt;
    return FindOp(node.op)->decompose({r.b(), node.attrs, r.MapOperands(node), {r.from().type(node.outputs[0])}});
  };
  return Rewrite(forward, rule, nullptr, values);
}

namespace {

WeightSplits ListSplits(const Graph& graph, const SplitPlan& plan) {
  WeightSplits splits;
  for (const GraphInput& input : graph.inputs()) {
    const auto found = plan.values.find(input.value);
    if (found != plan.values.end()) splits.emplace(input.name, found->second);
  }
  return splits;
}

absl::Status CheckFollows(const Graph& graph, const WeightSplits& splits, const WeightSplits& decided) {
  for (const GraphInput& input : graph.inputs()) {
    const auto now = splits.find(input.name), then = decided.find(input.name);
    if ((now == splits.end()) != (then == decided.end()) || (now != splits.end() && now->second != then->second))
      return absl::UnimplementedError(
          StrCat("`tensor`: weight '", input.name, "' is divided otherwise for another batch or in evaluations"));
  }
  return absl::OkStatus();
}

// Keeps the weights that are inputs of the part's graph, with the values of the part.
void KeepWeights(const PreparedModel& whole, const WeightSplits& splits, int rank, int ranks, PreparedModel* part) {
  std::set<std::string> inputs;
  for (const GraphInput& input : part->model.graph.inputs()) inputs.insert(input.name);
  for (ImportedWeight w : whole.model.weights) {
    if (!inputs.contains(w.name)) continue;
    const auto split = splits.find(w.name);
    const bool divided = split != splits.end() && !w.value.bytes().empty();
    if (divided) w.value = TakePart(w.value, split->second, rank, ranks);
    part->model.weights.push_back(std::move(w));
  }
  for (WeightDecision w : whole.weights) {
    if (!inputs.contains(w.name)) continue;
    const auto split = splits.find(w.name);
    if (split != splits.end()) w.type.shape = PartShape(std::move(w.type.shape), split->second, ranks);
    part->weights.push_back(std::move(w));
  }
  part->model.batch = whole.model.batch;
  part->model.exported_batch = whole.model.exported_batch;
  part->model.state_updates = whole.model.state_updates;
  part->model.notes = whole.model.notes;
  if (inputs.contains(whole.model.random_key)) part->model.random_key = whole.model.random_key;
}

}  // namespace

absl::StatusOr<ModelSplit> SplitModel(const PreparedModel& whole, const WeightSplits* decided, int rank, int ranks) {
  const LossGraph reduced = ReduceToLoss(whole);
  std::vector<ValueId> plain;
  const Pass decompose = {"decompose_dropout", [&](const Graph& g) { return DecomposeDropout(g, &plain); }};
  ASSIGN_OR_RETURN(const Graph graph, RunPasses(reduced.graph, {&decompose, 1}));
  std::vector<ValueId> results;
  for (const ValueId v : reduced.results) results.push_back(plain[v]);
  const auto splits_table = [&](const Node& gather) {
    if (decided == nullptr) return IsLargeTable(graph, gather);
    return decided->contains(graph.inputs()[graph.value(gather.inputs[0]).index].name);
  };
  const SplitPlan plan = PlanSplit(graph, results, ranks, splits_table);
  ModelSplit split{.weights = ListSplits(graph, plan)};
  if (split.weights.empty())
    return Invalid("`tensor` ", ranks, ": no weight of the model has parts that ", ranks, " ranks could compute with");
  if (decided != nullptr) RETURN_IF_ERROR(CheckFollows(graph, split.weights, *decided));
  std::vector<ValueId> parts;
  Graph part;
  const auto build = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(part, BuildPart(graph, plan, rank, &parts));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(RunRewrite("build_part", build, {&part}));
  split.prepared.loss = whole.loss;
  for (size_t t = 0; t < results.size(); ++t) split.prepared.loss.terms[t].value = parts[results[t]];
  const std::vector<GraphOutput> outputs = part.outputs();
  part.ClearOutputs();
  for (const StateUpdate& update : whole.model.state_updates)
    part.AddOutput(update.output, std::ranges::find(outputs, update.output, &GraphOutput::name)->value);
  split.prepared.model.graph = std::move(part);
  KeepWeights(whole, split.weights, rank, ranks, &split.prepared);
  return split;
}

}  // namespace onnxtrain
