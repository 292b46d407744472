// Sums the gradients of micro-batches in an order that depends only on their number, not on the rank that computes
// them, so that any number of ranks gets the same bits.
//
// The order is a binary tree over the micro-batches of a global batch. A node covers 2^level of them, starting at a
// multiple of 2^level, and is the sum of its two halves; if the right half is empty, it equals the left half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "backends/backend.h"
#include "backends/collectives.h"
#include "optim/step/global_batch.h"

namespace onnxtrain {

// A node that covers micro-batches [first, first + 2^level).
struct TreeNode {
  int64_t first = 0;
  int level = 0;

  bool operator==(const TreeNode&) const = default;
};

// Returns the largest nodes that together cover micro-batches [begin, end), from left to right.
std::vector<TreeNode> CoverMicros(int64_t begin, int64_t end);

// Returns the memory that rank `rank` of `size` needs in addition to the pending sums, in multiples of their size.
int64_t CountTreeBuffers(int64_t micros, int rank, int size);
// Returns the rank that needs the most memory.
int FindLargestTree(int64_t micros, int size);

// The sum of a node.
struct TreeSum {
  TreeNode node;
  size_t at = 0;
};

class GradientTree {
 public:
  static constexpr size_t kPieceBytes = size_t{4} << 20;  // bytes of a node that are exchanged at a time

  // `pending` is host memory that every micro-batch overwrites with values of `dtype`, with the same sizes on all
  // ranks. `backend` must outlive the tree.
  GradientTree(Backend* backend, DType dtype, std::vector<std::span<std::byte>> pending);

  // Begins a global batch of `micros` micro-batches. This rank adds those of its share (ShareOfRank), in order.
  absl::Status Begin(int64_t micros, int rank, int size);
  SampleRange share() const { return share_; }  // of micro-batches
  // Adds the pending values of the next micro-batch.
  void Add();
  // Replaces the pending values with the sum of all micro-batches. This rank must have added all of them.
  void Finish();
  // Replaces the pending values with the sum over all ranks. All ranks call it, with equal `micros`.
  absl::Status FinishTogether(Collectives& ranks, std::string_view what);

  int64_t pending_bytes() const { return static_cast<int64_t>(bytes_); }
  int64_t bytes() const { return static_cast<int64_t>(nodes_memory_.size() * bytes_); }
  // Returns the bytes that this rank sends in FinishTogether.
  int64_t sent_bytes() const { return sent_bytes_; }

 private:
  std::byte* NodeAt(size_t index) { return static_cast<std::byte*>(nodes_memory_[index]->data()); }
  void Merge();
  // Copies bytes [begin, begin + size) of the pending values to or from `other`.
  void CopyPending(size_t begin, size_t size, std::byte* other, bool to_pending);
  void AddBytes(std::byte* to, const std::byte* term, size_t size) const;
  void PlanExchange(const Collectives& ranks);
  void PackPiece(size_t begin, size_t size, size_t slice, size_t ranks);
  absl::Status ExchangePiece(Collectives& ranks, std::string_view what, size_t begin, size_t size);

  Backend& backend_;
  const DType dtype_;
  const std::vector<std::span<std::byte>> pending_;
  size_t bytes_ = 0;  // of all that is pending
  SampleRange share_;
  int64_t micros_ = 0, sent_bytes_ = 0;
  int rank_ = 0, size_ = 0;
  std::vector<TreeSum> sums_;    // memory for sums of nodes
  std::vector<TreeNode> nodes_;  // that this rank has summed, from left to right
  std::vector<std::unique_ptr<Buffer>> nodes_memory_;
  // Layout of an exchange, which depends on the number of micro-batches.
  bool planned_ = false;
  size_t most_nodes_ = 0;            // largest number of nodes of a rank
  std::vector<TreeNode> all_nodes_;  // nodes of all ranks, from left to right
  std::vector<size_t> places_;       // position of a rank's slice of each node, in slices
  std::vector<std::byte> own_, parts_, all_;
};

}  // namespace onnxtrain
