#include "frontend/passes/collectives.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "frontend/ops/collective.h"
#include "frontend/ops/row.h"
#include "frontend/passes/eliminate.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain {
namespace {

class Gatherer {
 public:
  Gatherer(const Graph& graph, const GatherWeightsOptions& options) : options_(options) {
    for (const GraphInput& input : graph.inputs()) {
      const auto found = options.weights.find(input.name);
      if (found != options.weights.end()) weights_[input.value] = {&found->second, graph.type(input.value), {}, {}, 0};
    }
    for (const GraphOutput& output : graph.outputs()) results_.insert(output.value);
  }

  std::optional<std::vector<Val>> Rewrite(Rewriter& r, const Node& node) {
    if (std::ranges::none_of(node.inputs, [&](ValueId v) { return IsDeferred(v); })) return std::nullopt;
    if (IsCheap(node)) {
      deferred_[node.outputs[0]] = {&node, {}, {}};
      return std::vector<Val>(1);
    }
    std::vector<Val> operands;
    for (const ValueId v : node.inputs) operands.push_back(IsDeferred(v) ? Compute(r, v) : r.Map(v));
    return r.b().Ops(node.op, operands, node.attrs);
  }

 private:
  struct Weight {
    const WeightColumns* columns = nullptr;
    Type type;
    Val input, whole;
    size_t at = 0;  // value of gathered_ after the last gather of this weight
  };
  // A view, cast or transpose of one weight, computed when a node reads it.
  struct Deferred {
    const Node* node = nullptr;
    Val of, value;
  };

  bool IsDeferred(ValueId v) const { return weights_.contains(v) || deferred_.contains(v); }

  bool IsCheap(const Node& node) const {
    const OpRow& row = *FindOp(node.op);
    return node.inputs.size() == 1 && node.outputs.size() == 1 && (row.view || row.derive) &&
           !results_.contains(node.outputs[0]);
  }

  Val Compute(Rewriter& r, ValueId v) {
    if (const auto weight = weights_.find(v); weight != weights_.end()) return Gather(r, &weight->second);
    Deferred& deferred = deferred_.at(v);
    const Val operand = Compute(r, deferred.node->inputs[0]);
    if (!deferred.value || deferred.of.id() != operand.id()) {
      deferred.of = operand;
      deferred.value = r.b().Op(deferred.node->op, {operand}, deferred.node->attrs);
    }
    return deferred.value;
  }

  Val Gather(Rewriter& r, Weight* weight) {
    if (weight->whole && gathered_ - weight->at <= options_.keep) return weight->whole;
    Builder& b = r.b();
    const WeightColumns& columns = *weight->columns;
    if (!weight->input) weight->input = b.Input(InputKind::kState, columns.input, columns.type);
    std::vector<Val> inputs = {weight->input};
    if (token_) inputs.push_back(token_);  // keeps Cse from merging two gathers of one weight
    const std::vector<Val> outputs = b.Ops(
        "AllGather", inputs, {{"group", options_.group.name}, {"ranks", options_.group.size}, {"axis", int64_t{1}}});
    token_ = outputs[1];
    const int64_t elements = weight->type.elements(), all = columns.type.elements() * options_.group.size;
    Val flat = Reshape(outputs[0], {all});
    if (elements < all) flat = Slice(flat, 0, 0, elements);
    weight->whole = Reshape(flat, weight->type.shape);
    gathered_ += weight->type.bytes();
    weight->at = gathered_;
    return weight->whole;
  }

  const GatherWeightsOptions& options_;
  std::map<ValueId, Weight> weights_;
  std::map<ValueId, Deferred> deferred_;
  std::set<ValueId> results_;
  Val token_;
  size_t gathered_ = 0;  // bytes of all gathers so far
};

}  // namespace

absl::StatusOr<Graph> GatherWeights(const Graph& graph, const GatherWeightsOptions& options) {
  Gatherer gatherer(graph, options);
  auto gathered = Rewrite(graph, [&](Rewriter& r, const Node& node) { return gatherer.Rewrite(r, node); });
  if (!gathered.ok()) return gathered;
  return Dce(*gathered, {.drop_unused_weights = true});
}

namespace {

bool IsGatherOfInput(const Graph& graph, const Node& node) {
  return node.op == "AllGather" && graph.IsInput(node.inputs[0]);
}

class Prefetcher {
 public:
  Prefetcher(const Graph& graph, size_t max_bytes) : graph_(graph), max_bytes_(max_bytes) {
    for (const Node& node : graph.nodes()) {
      if (IsGatherOfInput(graph, node)) gathers_.push_back(&node);
    }
  }

  std::optional<std::vector<Val>> Rewrite(Rewriter& r, const Node& node) {
    if (!IsGatherOfInput(graph_, node)) return std::nullopt;
    if (!begun_) Begin(r);
    const Val own = std::exchange(begun_, Val());
    if (next_ < gathers_.size() && Bytes(node) + Bytes(*gathers_[next_]) <= max_bytes_) Begin(r);
    std::vector<Val> outputs = r.b().Ops(kAwaitGather, {own, token_}, GroupOf(node));
    token_ = outputs[1];
    return outputs;
  }

 private:
  static Attrs GroupOf(const Node& node) {
    return {{"group", node.attrs.String("group")}, {"ranks", node.attrs.Int("ranks")}};
  }

  size_t Bytes(const Node& node) const { return graph_.type(node.outputs[0]).bytes(); }

  void Begin(Rewriter& r) {
    const Node& node = *gathers_[next_++];
    Attrs attrs = node.attrs;
    attrs.Set("begins", int64_t{1});
    std::vector<Val> inputs = {r.Map(node.inputs[0])};
    if (token_) inputs.push_back(token_);
    const std::vector<Val> outputs = r.b().Ops(node.op, inputs, attrs);
    token_ = outputs[1];
    begun_ = outputs[0];
  }

  const Graph& graph_;
  const size_t max_bytes_;
  std::vector<const Node*> gathers_;
  size_t next_ = 0;  // index of the first gather that has not begun
  Val begun_;        // the gather in flight
  Val token_;
};

}  // namespace

absl::StatusOr<Graph> PrefetchGathers(const Graph& graph, size_t max_bytes) {
  Prefetcher prefetcher(graph, max_bytes);
  return Rewrite(graph, [&](Rewriter& r, const Node& node) { return prefetcher.Rewrite(r, node); });
}

namespace {

bool IsCollective(const Node& node) { return FindOp(node.op)->collective; }

}  // namespace

bool HasCollectives(const Graph& graph) { return std::ranges::any_of(graph.nodes(), IsCollective); }

absl::StatusOr<Graph> OrderCollectives(const Graph& graph) {
  Val token;
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    if (!IsCollective(node)) return std::nullopt;
    std::vector<Val> inputs = {r.Map(node.inputs[0])};
    if (token) inputs.push_back(token);
    std::vector<Val> outputs = r.b().Ops(node.op, inputs, node.attrs);
    token = outputs[1];
    return outputs;
  });
}

namespace {

Val PerChannel(Val v, int rank) {
  Shape shape(rank, 1);
  shape[1] = v.dim(0);
  return Reshape(v, std::move(shape));
}

// Returns columns [begin, end) of a matrix.
Val Columns(Val x, int64_t begin, int64_t end) { return Slice(x, 1, begin, end - begin); }

struct Statistics {
  Val mean, var, count;  // [C], population variance; [1]
};

// Merges the statistics of all ranks. Each row has means, squared deviations and the count of a rank, or only zeros.
Statistics Merge(Val rows, int64_t channels) {
  const Val means = Columns(rows, 0, channels), squares = Columns(rows, channels, 2 * channels),
            counts = Columns(rows, 2 * channels, 2 * channels + 1);
  const Val count = ReduceSum(counts, {0}, false);
  const Val mean = ReduceSum(means * counts, {0}, false) / count;
  const Val deviation = means - mean;
  return {mean, ReduceSum(squares + deviation * deviation * counts, {0}, false) / count, count};
}

Statistics GatherStatistics(Val x, const RankGroup& group) {
  std::vector<int64_t> axes(x.rank() - 1, 0);
  std::iota(axes.begin() + 1, axes.end(), 2);
  const int64_t channels = x.dim(1), count = x.type().elements() / std::max<int64_t>(1, channels);
  const Val mean = ReduceMean(x, axes, false), centered = x - PerChannel(mean, x.rank());
  const Val own_count = Reshape(x.b().Scalar(x.dtype(), static_cast<double>(count)), {1});
  const Val row = Concat({mean, ReduceSum(centered * centered, axes, false), own_count}, 0);
  return Merge(AllGather(Reshape(row, {1, 2 * channels + 1}), group, 0), channels);
}

// Returns v such that v·n/(n − 1), with the sample count n of this rank, is the unbiased variance over all samples. For
// n = 1, v is that variance.
Val ForUnbiased(const Statistics& all, int64_t own) {
  const double n = static_cast<double>(own), undone = own > 1 ? (n - 1) / n : 1;
  const Val others = Max(all.count - 1.0, 1);
  return all.var * (all.count / others) * undone;
}

std::vector<Val> Normalize(Val x, Val scale, Val bias, double epsilon, const RankGroup& group) {
  const Val wide = Cast(x, scale.dtype());
  const Statistics all = GatherStatistics(wide, group);
  const Val factor = Rsqrt(all.var + epsilon) * scale;
  const Val y = (wide - PerChannel(all.mean, x.rank())) * PerChannel(factor, x.rank()) + PerChannel(bias, x.rank());
  const int64_t own = x.type().elements() / std::max<int64_t>(1, x.dim(1));
  return {Cast(y, x.dtype()), all.mean, Rsqrt(ForUnbiased(all, own) + epsilon)};
}

}  // namespace

absl::StatusOr<Graph> SyncBatchNorm(const Graph& graph, const RankGroup& group, std::vector<ValueId>* values) {
  const auto rule = [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    if (node.op != "BatchNorm") return std::nullopt;
    const std::vector<Val> operands = r.MapOperands(node);
    return Normalize(operands[0], operands[1], operands[2], node.attrs.Float("epsilon"), group);
  };
  return Rewrite(graph, rule, nullptr, values);
}

}  // namespace onnxtrain
