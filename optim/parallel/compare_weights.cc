#include "optim/parallel/compare_weights.h"

#include <string>
#include <vector>

#include "frontend/base/status.h"
#include "optim/record/checkpoint/crc64.h"

namespace onnxtrain {
namespace {

absl::StatusOr<uint64_t> ComputeChecksum(Session& session) {
  ASSIGN_OR_RETURN(const std::vector<StateTensor> tensors, session.State());
  uint64_t crc = 0;
  for (const StateTensor& tensor : tensors) {
    if (!tensor.of_model || tensor.region.view.buffer == nullptr) continue;
    ASSIGN_OR_RETURN(const HostTensor value, ReadRegion(tensor.region));
    crc = ExtendCrc64(crc, value.bytes());
  }
  return crc;
}

}  // namespace

absl::Status CompareWeights(Session& session, DataParallel& ranks) {
  constexpr char kWhat[] = "comparison of weights";
  const auto own = ComputeChecksum(session);
  RETURN_IF_ERROR(ranks.Agree(kWhat, own.status()));
  std::vector<uint64_t> all(ranks.size());
  RETURN_IF_ERROR(
      ranks.ranks().AllGather(kWhat, std::as_bytes(std::span(&*own, 1)), std::as_writable_bytes(std::span(all))));
  std::string differ;
  for (int r = 1; r < ranks.size(); ++r) {
    if (all[r] != all[0]) StrAppend(&differ, differ.empty() ? "" : ", ", r);
  }
  if (differ.empty()) return absl::OkStatus();
  const absl::Status status = absl::DataLossError(
      StrCat("after update ", session.steps(), " the weights differ from those of rank 0 on rank ", differ));
  const absl::Status agreed = ranks.Agree(kWhat, status);  // which every rank knows already, but not that all do
  return absl::IsUnavailable(agreed) ? agreed : status;
}

}  // namespace onnxtrain
