// Runs collective operators (frontend/ops/collective.h) on host memory: the part of their kernels that all backends
// share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "backends/collectives.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

class CollectiveCall {
 public:
  // Sums support f32, f64 and i64 only. With `may_begin`, the node that begins an AllGather returns at once and the
  // AwaitGather node waits for it; `in` and `out` must not be touched in between. Otherwise the first node blocks until
  // the AllGather has finished.
  CollectiveCall(const Node& node, const Type& in, const Type& out, bool may_begin = false);

  size_t workspace() const;  // bytes
  // `in` and `out` may alias for AllReduce and AwaitGather. `ranks` may be null for a group of one rank.
  absl::Status Run(Collectives* ranks, const void* in, void* out, void* workspace) const;

 private:
  using Function = absl::Status (CollectiveCall::*)(Collectives&, const std::byte*, std::byte*, std::byte*) const;

  static Function FindFunction(const Node& node, const Type& in, bool may_begin);
  absl::Status ReduceAll(Collectives& ranks, const std::byte* in, std::byte* out, std::byte* workspace) const;
  absl::Status ReduceInOrder(Collectives& ranks, const std::byte* in, std::byte* out, std::byte* workspace) const;
  absl::Status Gather(Collectives& ranks, const std::byte* in, std::byte* out, std::byte* workspace) const;
  absl::Status BeginGather(Collectives& ranks, const std::byte* in, std::byte* out, std::byte* workspace) const;
  absl::Status AwaitGather(Collectives& ranks, const std::byte* in, std::byte* out, std::byte* workspace) const;
  absl::Status Copy(Collectives& ranks, const std::byte* in, std::byte* out, std::byte* workspace) const;
  absl::Status Scatter(Collectives& ranks, const std::byte* in, std::byte* out, std::byte* workspace) const;
  void AddInOrder(const std::byte* parts, size_t part, std::byte* sum) const;
  size_t SliceBytes() const;
  bool gathers() const;
  bool GathersByRow() const;

  Function function_;
  DType dtype_;
  int64_t ranks_;
  size_t in_bytes_, out_bytes_;
  size_t outer_ = 1;  // product of the dimensions before the axis; 1 without an axis
};

}  // namespace onnxtrain
