#include "optim/distributed/traffic.h"

#include <algorithm>

#include "optim/distributed/gradient_tree.h"
#include "optim/micro_batches.h"

namespace onnxtrain {
namespace {

int64_t CountReduced(const UpdateTraffic& traffic) {
  size_t most = 1;
  for (int r = 0; r < traffic.ranks && traffic.micros > 0; ++r) {
    const SampleRange share = ShareOfRank(traffic.micros, 1, r, traffic.ranks);
    most = std::max(most, CoverMicros(share.begin, share.end).size());
  }
  return static_cast<int64_t>(most);
}

}  // namespace

int64_t SentBytes(const UpdateTraffic& traffic) {
  const int64_t gathered = 1, rounded = traffic.rounds ? 2 : 1;
  const int64_t gradients = (CountReduced(traffic) + gathered) * traffic.gradient_bytes / rounded;
  const int64_t weights = traffic.divides ? traffic.gradient_bytes : 0;
  return (gradients + weights) * (traffic.ranks - 1) / traffic.ranks;
}

}  // namespace onnxtrain
