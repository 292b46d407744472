#include "optim/distributed/traffic.h"

#include <algorithm>

#include "optim/distributed/gradient_tree.h"
#include "optim/micro_batches.h"

namespace onnxtrain {
namespace {

int64_t CountReduced(const UpdateTraffic& traffic) {
  if (traffic.shard == ShardLevel::kGradients) return traffic.rounds_of_micros;
  size_t most = 1;
  for (int r = 0; r < traffic.ranks && traffic.micros > 0; ++r) {
    const SampleRange share = ShareOfRank(traffic.micros, 1, r, traffic.ranks);
    most = std::max(most, CoverMicros(share.begin, share.end).size());
  }
  return static_cast<int64_t>(most);
}

}  // namespace

int64_t SentBytes(const UpdateTraffic& traffic) {
  const int64_t gathered = traffic.shard == ShardLevel::kGradients ? 0 : 1, rounded = traffic.rounds ? 2 : 1;
  const int64_t gradients = (CountReduced(traffic) + gathered) * traffic.gradient_bytes / rounded;
  const int64_t weights = traffic.shard != ShardLevel::kNone ? traffic.gradient_bytes : 0;
  return (gradients + weights) * (traffic.ranks - 1) / traffic.ranks;
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
