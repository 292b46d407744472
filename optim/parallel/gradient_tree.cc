#include "optim/parallel/gradient_tree.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "backends/backend.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

bool AreHalves(const TreeNode& left, const TreeNode& right) {
  const int64_t covered = int64_t{1} << left.level;
  return left.level == right.level && left.first + covered == right.first && left.first % (2 * covered) == 0;
}

// Sums nodes from left to right: `add` adds the sum at one index to the sum at a lower index. The total is at index 0.
// `memory` holds the pending nodes.
template <typename Add>
void SumNodes(std::span<const TreeNode> nodes, std::vector<TreeSum>* memory, const Add& add) {
  std::vector<TreeSum>& sums = *memory;
  sums.clear();
  const auto join = [&] {
    const TreeSum right = sums.back();
    sums.pop_back();
    add(sums.back().at, right.at);
  };
  for (size_t i = 0; i < nodes.size(); ++i) {
    sums.push_back({nodes[i], i});
    while (sums.size() > 1 && AreHalves(sums[sums.size() - 2].node, sums.back().node)) {
      join();
      ++sums.back().node.level;
    }
  }
  while (sums.size() > 1) join();
}

template <typename T>
void AddTo(std::byte* to, const std::byte* term, size_t bytes) {
  T* const sums = reinterpret_cast<T*>(to);
  const T* const terms = reinterpret_cast<const T*>(term);
  for (size_t i = 0; i < bytes / sizeof(T); ++i) sums[i] += terms[i];
}

}  // namespace

std::vector<TreeNode> CoverMicros(int64_t begin, int64_t end) {
  std::vector<TreeNode> nodes;
  while (begin < end) {
    int level = std::bit_width(static_cast<uint64_t>(end - begin)) - 1;
    if (begin > 0) level = std::min(level, std::countr_zero(static_cast<uint64_t>(begin)));
    nodes.push_back({begin, level});
    begin += int64_t{1} << level;
  }
  return nodes;
}

// While micro-batches are added, the node that is added comes to the others.
int64_t CountTreeBuffers(int64_t micros, int rank, int size) {
  const SampleRange share = ShareOfRank(micros, 1, rank, size);
  size_t most = 0;
  for (int64_t end = share.begin; end < share.end; ++end)
    most = std::max(most, CoverMicros(share.begin, end).size() + 1);
  return static_cast<int64_t>(most);
}

int FindLargestTree(int64_t micros, int size) {
  int largest = 0;
  for (int r = 1; r < size; ++r) {
    if (CountTreeBuffers(micros, r, size) > CountTreeBuffers(micros, largest, size)) largest = r;
  }
  return largest;
}

GradientTree::GradientTree(Backend* backend, DType dtype, std::vector<std::span<std::byte>> pending)
    : backend_(*backend), dtype_(dtype), pending_(std::move(pending)) {
  for (const std::span<std::byte> memory : pending_) bytes_ += memory.size();
}

absl::Status GradientTree::Begin(int64_t micros, int rank, int size) {
  nodes_.clear();
  if (micros == micros_ && rank == rank_ && size == size_) return absl::OkStatus();
  planned_ = false;
  const auto needed = static_cast<size_t>(CountTreeBuffers(micros, rank, size));
  while (nodes_memory_.size() < needed) {
    ASSIGN_OR_RETURN(nodes_memory_.emplace_back(), AllocateChecked(backend_, bytes_, "gradients"));
  }
  share_ = ShareOfRank(micros, 1, rank, size);
  micros_ = micros;
  rank_ = rank;
  size_ = size;
  return absl::OkStatus();
}

void GradientTree::Add() {
  const int64_t micro = nodes_.empty() ? share_.begin : nodes_.back().first + (int64_t{1} << nodes_.back().level);
  CopyPending(0, bytes_, NodeAt(nodes_.size()), false);
  nodes_.push_back({micro, 0});
  while (nodes_.size() > 1 && AreHalves(nodes_[nodes_.size() - 2], nodes_.back())) Merge();
}

// Adds the last node to the one before.
void GradientTree::Merge() {
  AddBytes(NodeAt(nodes_.size() - 2), NodeAt(nodes_.size() - 1), bytes_);
  nodes_.pop_back();
  ++nodes_.back().level;
}

void GradientTree::Finish() {
  SumNodes(nodes_, &sums_, [this](size_t to, size_t term) { AddBytes(NodeAt(to), NodeAt(term), bytes_); });
  CopyPending(0, bytes_, NodeAt(0), true);
}

void GradientTree::AddBytes(std::byte* to, const std::byte* term, size_t size) const {
  dtype_ == DType::kFloat64 ? AddTo<double>(to, term, size) : AddTo<float>(to, term, size);
}

void GradientTree::CopyPending(size_t begin, size_t size, std::byte* other, bool to_pending) {
  size_t offset = 0;  // of a span
  for (const std::span<std::byte> bytes : pending_) {
    const size_t from = std::max(begin, offset), to = std::min(begin + size, offset + bytes.size());
    if (from < to) {
      std::byte *const own = bytes.data() + (from - offset), *const their = other + (from - begin);
      to_pending ? std::memcpy(own, their, to - from) : std::memcpy(their, own, to - from);
    }
    offset += bytes.size();
  }
}

// Plans the exchange once; the plan is valid for all updates with the same number of micro-batches.
void GradientTree::PlanExchange(const Collectives& ranks) {
  if (std::exchange(planned_, true)) return;
  most_nodes_ = 0;
  all_nodes_.clear();
  std::vector<std::vector<TreeNode>> of_ranks;
  for (int r = 0; r < ranks.size(); ++r) {
    const SampleRange share = ShareOfRank(micros_, 1, r, ranks.size());
    const auto& nodes = of_ranks.emplace_back(CoverMicros(share.begin, share.end));
    most_nodes_ = std::max(most_nodes_, nodes.size());
  }
  CHECK(of_ranks[ranks.rank()] == nodes_) << "the share of a rank is not complete";
  places_.clear();
  for (size_t r = 0; r < of_ranks.size(); ++r) {
    all_nodes_.insert(all_nodes_.end(), of_ranks[r].begin(), of_ranks[r].end());
    for (size_t n = 0; n < of_ranks[r].size(); ++n) places_.push_back(r * most_nodes_ + n);
  }
}

absl::Status GradientTree::FinishTogether(Collectives& ranks, std::string_view what) {
  PlanExchange(ranks);
  sent_bytes_ = 0;
  for (size_t at = 0; at < bytes_; at += kPieceBytes)
    RETURN_IF_ERROR(ExchangePiece(ranks, what, at, std::min(kPieceBytes, bytes_ - at)));
  return absl::OkStatus();
}

// Lays out what each rank gets: its slice of the piece, of every node that this rank has.
void GradientTree::PackPiece(size_t begin, size_t size, size_t slice, size_t ranks) {
  own_.assign(slice * most_nodes_ * ranks, std::byte{0});
  for (size_t r = 0; r < ranks; ++r) {
    const size_t first = std::min(size, r * slice), bytes = std::min(slice, size - first);
    for (size_t node = 0; node < nodes_.size(); ++node)
      std::memcpy(own_.data() + (r * most_nodes_ + node) * slice, NodeAt(node) + begin + first, bytes);
  }
}

// Every rank sums a slice of the piece and sends it to all.
absl::Status GradientTree::ExchangePiece(Collectives& ranks, std::string_view what, size_t begin, size_t size) {
  const size_t element = DTypeSize(dtype_), n = ranks.size(), slice = (size / element + n - 1) / n * element;
  PackPiece(begin, size, slice, n);
  parts_.resize(own_.size());
  RETURN_IF_ERROR(ranks.AllToAll(what, own_, parts_));
  const auto sent = [&](size_t node) { return parts_.data() + places_[node] * slice; };
  SumNodes(all_nodes_, &sums_, [&](size_t to, size_t term) { AddBytes(sent(to), sent(term), slice); });
  all_.resize(slice * n);
  RETURN_IF_ERROR(ranks.AllGather(what, {sent(0), slice}, all_));
  CopyPending(begin, size, all_.data(), true);
  sent_bytes_ += static_cast<int64_t>((most_nodes_ + 1) * slice * (n - 1));
  return absl::OkStatus();
}

}  // namespace onnxtrain
