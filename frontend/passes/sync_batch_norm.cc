#include "frontend/passes/sync_batch_norm.h"

#include <algorithm>
#include <numeric>

#include "frontend/passes/rewrite.h"

namespace onnxtrain {
namespace {

Val PerChannel(Val v, int rank) {
  Shape shape(rank, 1);
  shape[1] = v.dim(0);
  return Reshape(v, std::move(shape));
}

// Columns [begin, end) of a matrix.
Val Columns(Val x, int64_t begin, int64_t end) {
  return x.b().Op("Slice", {x},
                  {{"starts", std::vector<int64_t>{0, begin}},
                   {"sizes", std::vector<int64_t>{x.dim(0), end - begin}},
                   {"steps", std::vector<int64_t>{1, 1}}});
}

struct Statistics {
  Val mean, var, count;  // [C], population variance; [1]
};

// A row per rank, which may be one of zeros: mean, squared deviations, count.
Statistics Merge(Val rows, int64_t channels) {
  const Val means = Columns(rows, 0, channels), squares = Columns(rows, channels, 2 * channels),
            counts = Columns(rows, 2 * channels, 2 * channels + 1);
  const Val count = ReduceSum(counts, {0}, false);
  const Val mean = ReduceSum(means * counts, {0}, false) / count;
  const Val apart = means - mean;
  return {mean, ReduceSum(squares + apart * apart * counts, {0}, false) / count, count};
}

Statistics GatherStatistics(Val x, const RankGroup& group) {
  std::vector<int64_t> axes(x.rank() - 1, 0);
  std::iota(axes.begin() + 1, axes.end(), 2);
  const int64_t channels = x.dim(1), count = x.type().elements() / std::max<int64_t>(1, channels);
  const Val mean = ReduceMean(x, axes, false), centered = x - PerChannel(mean, x.rank());
  const Val own_count = Reshape(x.b().Scalar(x.dtype(), static_cast<double>(count)), {1});
  const Val row =
      x.b().Op("Concat", {mean, ReduceSum(centered * centered, axes, false), own_count}, {{"axis", int64_t{0}}});
  return Merge(AllGather(Reshape(row, {1, 2 * channels + 1}), group, 0), channels);
}

// The variance that v·n/(n − 1) makes the unbiased one of all samples, with the count n of this rank; of one sample,
// v itself does.
Val ForUnbiased(const Statistics& all, int64_t own) {
  const double n = static_cast<double>(own), undone = own > 1 ? (n - 1) / n : 1;
  const Val others = all.count.b().Op("Max", {all.count - 1.0, all.count.b().Scalar(all.count.dtype(), 1)});
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
