// What a collective operator (frontend/ops/collective.h) does on the memory of the host: the part of its kernels that
// all backends share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "backends/collectives.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

class CollectiveCall {
 public:
  // f32, f64 and i64 where values are summed. `may_begin`: an AllGather that begins returns before it has ended, and
  // AwaitGather waits for it; the memory of both stays what it was meanwhile. Else the first one does it all.
  CollectiveCall(const Node& node, const Type& in, const Type& out, bool may_begin = false);

  size_t workspace() const;  // bytes
  // `in` and `out` may be the same memory where the node is an AllReduce or AwaitGather. `ranks` may be null for a
  // group of one.
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
  size_t outer_ = 1;  // of the axis: repetitions of blocks, one per rank
};

}  // namespace onnxtrain
