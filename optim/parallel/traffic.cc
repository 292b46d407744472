#include "optim/parallel/traffic.h"

#include <algorithm>
#include <set>

#include "frontend/ops/collective.h"
#include "frontend/ops/row.h"
#include "optim/parallel/gradient_tree.h"
#include "optim/step/global_batch.h"

namespace onnxtrain {
namespace {

int64_t CountReduced(const UpdateTraffic& traffic) {
  if (traffic.shard >= ShardLevel::kGradients) return traffic.rounds_of_micros;
  size_t most = 1;
  for (int r = 0; r < traffic.ranks && traffic.micros > 0; ++r) {
    const SampleRange share = ShareOfRank(traffic.micros, 1, r, traffic.ranks);
    most = std::max(most, CoverMicros(share.begin, share.end).size());
  }
  return static_cast<int64_t>(most);
}

}  // namespace

int64_t SentBytes(const UpdateTraffic& traffic) {
  const int64_t gathered = traffic.shard >= ShardLevel::kGradients ? 0 : 1, rounded = traffic.send_bf16 ? 2 : 1;
  const int64_t gradients = (CountReduced(traffic) + gathered) * traffic.gradient_bytes / rounded;
  const int64_t weights = traffic.shard != ShardLevel::kNone ? traffic.gradient_bytes - traffic.divided_bytes : 0;
  return (gradients + weights) * (traffic.ranks - 1) / traffic.ranks + traffic.rounds_of_micros * traffic.graph_bytes;
}

namespace {

// Returns the bytes that a rank sends in a collective operator.
int64_t SentBy(const Graph& program, const Node& node) {
  const int64_t ranks = node.attrs.Int("ranks"), bytes = static_cast<int64_t>(program.type(node.inputs[0]).bytes());
  if (node.op == "AllGather") return bytes * (ranks - 1);
  return (node.op == "AllReduce" ? 2 : 1) * bytes * (ranks - 1) / ranks;
}

}  // namespace

ProgramTraffic CountTraffic(const Graph& program) {
  ProgramTraffic traffic;
  for (const Node& node : program.nodes()) {
    if (!FindOp(node.op)->collective || node.op == kAwaitGather) continue;
    ++traffic.exchanges;
    traffic.bytes += SentBy(program, node);
  }
  return traffic;
}

int64_t CountGathered(const Graph& program) {
  std::set<ValueId> counted;
  int64_t bytes = 0;
  for (const Node& node : program.nodes()) {
    if (node.op != "AllGather" || !program.IsInput(node.inputs[0]) || !counted.insert(node.inputs[0]).second) continue;
    bytes += static_cast<int64_t>(program.type(node.outputs[0]).bytes());
  }
  return bytes;
}

int64_t CountRounds(int64_t samples, int64_t micro, int64_t unit, int ranks) {
  int64_t most = 0;
  for (int r = 0; r < ranks; ++r) {
    const SampleRange share = ShareOfRank(samples, unit, r, ranks);
    if (share.begin < share.end) most = std::max(most, (share.end + micro - 1) / micro - share.begin / micro);
  }
  return most;
}

}  // namespace onnxtrain
