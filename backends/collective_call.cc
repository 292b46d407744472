#include "backends/collective_call.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "frontend/base/status.h"
#include "frontend/ops/collective.h"

namespace onnxtrain {
namespace {

// Sums `count` consecutive parts of `bytes` bytes, in order.
template <typename T>
void AddParts(const std::byte* parts, int64_t count, size_t bytes, std::byte* sum) {
  const size_t elements = bytes / sizeof(T);
  T* const to = reinterpret_cast<T*>(sum);
  std::memcpy(to, parts, bytes);
  for (int64_t p = 1; p < count; ++p) {
    const T* const from = reinterpret_cast<const T*>(parts + p * bytes);
    for (size_t i = 0; i < elements; ++i) to[i] += from[i];
  }
}

size_t CountBefore(const Shape& shape, int64_t axis) {
  return std::accumulate(shape.begin(), shape.begin() + axis, size_t{1}, std::multiplies<>());
}

// Copies [outer, ranks, block] to [ranks, outer, block], or back.
enum class Direction : uint8_t { kToRanks, kFromRanks };

void Permute(Direction direction, const std::byte* from, std::byte* to, size_t outer, size_t ranks, size_t block) {
  for (size_t o = 0; o < outer; ++o) {
    for (size_t r = 0; r < ranks; ++r) {
      const size_t by_outer = (o * ranks + r) * block, by_rank = (r * outer + o) * block;
      const bool to_ranks = direction == Direction::kToRanks;
      std::memcpy(to + (to_ranks ? by_rank : by_outer), from + (to_ranks ? by_outer : by_rank), block);
    }
  }
}

}  // namespace

CollectiveCall::CollectiveCall(const Node& node, const Type& in, const Type& out, bool may_begin)
    : function_(FindFunction(node, in, may_begin)),
      dtype_(in.dtype),
      ranks_(node.attrs.Int("ranks")),
      in_bytes_(in.bytes()),
      out_bytes_(out.bytes()) {
  if (gathers() || function_ == &CollectiveCall::Scatter)
    outer_ = std::max<size_t>(1, CountBefore(in.shape, node.attrs.Int("axis")));
}

CollectiveCall::Function CollectiveCall::FindFunction(const Node& node, const Type& in, bool may_begin) {
  if (node.op == kAwaitGather) return may_begin ? &CollectiveCall::AwaitGather : &CollectiveCall::Copy;
  if (node.op == "AllGather")
    return may_begin && node.attrs.Int("begins") != 0 ? &CollectiveCall::BeginGather : &CollectiveCall::Gather;
  if (node.op == "ReduceScatter") return &CollectiveCall::Scatter;
  const bool in_order = node.attrs.Int("deterministic") != 0 && IsFloat(in.dtype);
  return in_order ? &CollectiveCall::ReduceInOrder : &CollectiveCall::ReduceAll;
}

bool CollectiveCall::gathers() const {
  return function_ == &CollectiveCall::Gather || function_ == &CollectiveCall::BeginGather;
}

// Returns true if rows are large enough to be gathered one by one, which needs no workspace for a permutation.
bool CollectiveCall::GathersByRow() const {
  constexpr size_t kLarge = size_t{64} << 10;  // bytes that a rank sends
  return gathers() && outer_ > 1 && in_bytes_ / outer_ >= kLarge;
}

// Returns the bytes that each rank sums in ReduceInOrder, the last slice padded.
size_t CollectiveCall::SliceBytes() const {
  const size_t element = DTypeSize(dtype_), elements = in_bytes_ / element;
  return (elements + ranks_ - 1) / ranks_ * element;
}

size_t CollectiveCall::workspace() const {
  if (ranks_ == 1 || function_ == &CollectiveCall::ReduceAll) return 0;
  if (function_ == &CollectiveCall::ReduceInOrder) return 2 * SliceBytes() * ranks_;
  if (GathersByRow() || function_ == &CollectiveCall::Copy || function_ == &CollectiveCall::AwaitGather) return 0;
  const size_t permuted = outer_ > 1 ? std::max(in_bytes_, out_bytes_) : 0;
  return permuted + (function_ == &CollectiveCall::Scatter ? in_bytes_ : 0);
}

absl::Status CollectiveCall::Run(Collectives* ranks, const void* in, void* out, void* workspace) const {
  if (in_bytes_ == 0) return absl::OkStatus();
  const auto* const from = static_cast<const std::byte*>(in);
  auto* const to = static_cast<std::byte*>(out);
  if (ranks_ > 1) return (this->*function_)(*ranks, from, to, static_cast<std::byte*>(workspace));
  if (from != to) std::memcpy(to, from, in_bytes_);
  return absl::OkStatus();
}

absl::Status CollectiveCall::ReduceAll(Collectives& ranks, const std::byte* in, std::byte* out, std::byte*) const {
  if (in != out) std::memcpy(out, in, in_bytes_);
  return ranks.AllReduce("all-reduce of the graph", dtype_, {out, in_bytes_}, Reduction::kSum);
}

absl::Status CollectiveCall::ReduceInOrder(Collectives& ranks, const std::byte* in, std::byte* out,
                                           std::byte* workspace) const {
  constexpr char kWhat[] = "ordered all-reduce of the graph";
  const size_t slice = SliceBytes(), bytes = slice * ranks_;
  std::byte* const parts = workspace + bytes;
  std::memcpy(workspace, in, in_bytes_);
  std::memset(workspace + in_bytes_, 0, bytes - in_bytes_);
  RETURN_IF_ERROR(ranks.AllToAll(kWhat, {workspace, bytes}, {parts, bytes}));
  AddInOrder(parts, slice, workspace);
  RETURN_IF_ERROR(ranks.AllGather(kWhat, {workspace, slice}, {parts, bytes}));
  std::memcpy(out, parts, in_bytes_);
  return absl::OkStatus();
}

absl::Status CollectiveCall::Gather(Collectives& ranks, const std::byte* in, std::byte* out,
                                    std::byte* workspace) const {
  constexpr char kWhat[] = "all-gather of the graph";
  const size_t row = in_bytes_ / outer_;
  for (size_t o = 0; GathersByRow() && o < outer_; ++o)
    RETURN_IF_ERROR(ranks.AllGather(kWhat, {in + o * row, row}, {out + o * row * ranks_, row * ranks_}));
  if (GathersByRow()) return absl::OkStatus();
  std::byte* const all = outer_ > 1 ? workspace : out;
  RETURN_IF_ERROR(ranks.AllGather(kWhat, {in, in_bytes_}, {all, out_bytes_}));
  if (outer_ > 1) Permute(Direction::kFromRanks, all, out, outer_, ranks_, in_bytes_ / outer_);
  return absl::OkStatus();
}

// Blocks for small rows, because their permutation needs the workspace, which is valid only during this node.
absl::Status CollectiveCall::BeginGather(Collectives& ranks, const std::byte* in, std::byte* out,
                                         std::byte* workspace) const {
  const bool at_once = outer_ > 1 && !GathersByRow();
  if (at_once) RETURN_IF_ERROR(Gather(ranks, in, out, workspace));
  ranks.BeginGather("all-gather of the graph", {in, in_bytes_}, {out, out_bytes_}, at_once ? 0 : outer_);
  return absl::OkStatus();
}

absl::Status CollectiveCall::AwaitGather(Collectives& ranks, const std::byte* in, std::byte* out,
                                         std::byte* workspace) const {
  RETURN_IF_ERROR(ranks.AwaitGather());
  return Copy(ranks, in, out, workspace);
}

absl::Status CollectiveCall::Copy(Collectives&, const std::byte* in, std::byte* out, std::byte*) const {
  if (in != out) std::memcpy(out, in, in_bytes_);
  return absl::OkStatus();
}

absl::Status CollectiveCall::Scatter(Collectives& ranks, const std::byte* in, std::byte* out,
                                     std::byte* workspace) const {
  std::byte* const permuted = workspace + in_bytes_;
  if (outer_ > 1) Permute(Direction::kToRanks, in, permuted, outer_, ranks_, out_bytes_ / outer_);
  const std::byte* const own = outer_ > 1 ? permuted : in;
  RETURN_IF_ERROR(ranks.AllToAll("reduce-scatter of the graph", {own, in_bytes_}, {workspace, in_bytes_}));
  AddInOrder(workspace, out_bytes_, out);
  return absl::OkStatus();
}

void CollectiveCall::AddInOrder(const std::byte* parts, size_t part, std::byte* sum) const {
  dtype_ == DType::kFloat64 ? AddParts<double>(parts, ranks_, part, sum) : AddParts<float>(parts, ranks_, part, sum);
}

}  // namespace onnxtrain
