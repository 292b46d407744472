// The geometry that the forward and backward kernels of attention share, and the loop over heads.
#pragma once

#include <omp.h>

#include <cmath>
#include <optional>
#include <vector>

#include "backends/cpu/kernels/attention_products.h"
#include "backends/cpu/kernels/row_functions.h"
#include "backends/cpu/ops/ops.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"

namespace onnxtrain::cpu {

// The geometry and operands of a kernel.
struct AttentionGeometry {
  Heads q, k, v;
  std::vector<Heads> inputs;  // all but the mask, in the order of the node
  Loop heads;                 // over the batch axes; operand 0 is the number of the head, then GetHeadOperands
  float scale, softcap;
  std::optional<DropoutSpan> dropout;  // applied to probabilities
  bool has_mask = false;
  int64_t mask_row = 0, mask_column = 0;
  int64_t masks = 0;    // matrices [queries, keys] of the mask whose visible keys are known
  int64_t repeats = 1;  // successive heads that share keys and values
  int64_t unit = 1;     // successive heads that one thread computes
  bool tiles = false;   // products in tiles of AMX

  int64_t keys() const { return k.rows; }
};

Heads MakeHeads(const StridedType& t);

// Reads a node whose query is operand `first`. `tiles`: AMX, where the processor has it.
AttentionGeometry MakeAttentionGeometry(const KernelContext& c, size_t first, bool tiles);

// Prepares cpu.AttentionGrad for operands S, float or uint16_t (bf16).
template <typename S>
absl::StatusOr<Kernel> PrepareAttentionGrad(const KernelContext& c);

// Returns the bytes of workspace for parts of `of_thread` bytes.
inline size_t GetAttentionWorkspace(size_t of_thread) { return of_thread * omp_get_max_threads(); }

// Divides a workspace into aligned parts.
class WorkspaceLayout {
 public:
  // Adds a part of four-byte words and returns its offset in words.
  int64_t operator()(int64_t words) {
    const int64_t at = size_;
    size_ += RoundUp(words, 16);
    return at;
  }
  size_t bytes() const { return size_ * sizeof(float); }

 private:
  int64_t size_ = 0;
};

template <typename S>
GemmElement<S>* At(float* workspace, int64_t offset) {
  return reinterpret_cast<GemmElement<S>*>(workspace + offset);
}

// One head of a run.
struct Head {
  int64_t number = 0;
  const float* mask = nullptr;           // null: none
  const uint32_t* random_key = nullptr;  // of the dropout
  const float* softmax = nullptr;        // of the forward pass: the maximum of each query, then the inverse sums
};

// The scores of a block of queries of a head.
struct ScoreBlock {
  ScoreRows rows;
  const Head& head;
  int64_t query, key;  // the first ones

  ScoreMask mask(const AttentionGeometry& g) const {
    const float* data = head.mask == nullptr ? nullptr : head.mask + query * g.mask_row + key * g.mask_column;
    return {data, g.mask_row, g.mask_column};
  }
};

// Part of one head.
struct HeadPart {
  const Head& head;
  const VisibleKeys& seen;
  int64_t query, count;  // the first query, their number
  KeyRange keys;
};

inline KeyRange Intersect(const KeyRange& a, int64_t begin, int64_t end) {
  return {std::max(a.begin, begin), std::min(a.end, end), a.masked};
}

// Returns the scores of this part, in rows `ld` floats apart.
inline ScoreBlock MakeScoreBlock(const AttentionGeometry& g, const HeadPart& part, float* data, int64_t ld) {
  const int64_t keys = part.keys.size();
  return {.rows = {data, ld, part.count, keys, PadScores(keys, g.tiles), part.seen.From(part.query), part.keys.begin},
          .head = part.head,
          .query = part.query,
          .key = part.keys.begin};
}

// Applies the dropout to rows of probabilities in place.
void DropRows(const AttentionGeometry& g, const ScoreBlock& b, float* rows);

// Caps scores q·k if there is a softcap. Returns the factor by which they must still be multiplied.
template <typename S>
float CapScores(const AttentionGeometry& g, const ScoreRows& s, float* slopes) {
  if (g.softcap == 0) return g.scale;
  GetAttentionSimd<S>().softcap(s, g.scale, g.softcap, slopes);
  return 1;
}

// Returns an upper bound of |q·k·scale| (Cauchy–Schwarz).
template <typename S>
float BoundScores(const AttentionGeometry& g, const S* q, const S* k) {
  const auto squares = [](const Heads& h, const S* x) {
    return GetAttentionSimd<S>().largest_square(x, h.row, h.column, h.rows, h.columns);
  };
  return std::abs(g.scale) * std::sqrt(squares(g.q, q) * squares(g.k, k));
}

// Prefetches the inputs of the next head, whose rows are too short for the hardware prefetcher.
template <typename S>
void PrefetchNext(const AttentionGeometry& g, const Args& args, int inputs, const OperandOffsets& at) {
  for (int k = 0; k < inputs; ++k) {
    const Heads& h = g.inputs[k];
    const S* x = args.in<S>(k) + at[1 + k] + g.heads.InnerStride(1 + k);
    for (int64_t i = 0; i < h.rows; ++i) {
      for (int64_t j = 0; j < h.columns; j += 64 / sizeof(S)) __builtin_prefetch(x + i * h.row + j * h.column, 0, 2);
    }
  }
}

// Returns the workspace of this thread.
inline float* GetThreadWorkspace(const Args& args, size_t of_thread) {
  return reinterpret_cast<float*>(static_cast<char*>(args.workspace) + omp_get_thread_num() * of_thread);
}

// Calls f(offsets, workspace of the thread, visible keys, same) for every head. q, k, v and the mask are the inputs
// from `first` on. `same`: keys and values are those of the last call with this workspace.
template <typename S, typename F>
void ForHeads(const AttentionGeometry& g, size_t workspace, const Args& args, int first, F&& f) {
  const auto* visible = g.masks == 0 ? nullptr : args.in<KeyRange>(first + 5);
  const int64_t of_mask = g.q.rows * g.keys();
  const int64_t cost = of_mask * (g.q.columns + g.v.columns);
  Parallel(g.heads.size() / g.unit, cost * g.unit, [&](int64_t first_unit, int64_t last_unit) {
    const int64_t begin = first_unit * g.unit, end = last_unit * g.unit;
    std::optional<AmxScope> tiles;
    if (g.tiles) tiles.emplace();
    float* mine = GetThreadWorkspace(args, workspace);
    const bool repeats = g.repeats > 1 && g.heads.InnerStride(2 + first) == 0;
    ForRows(g.heads, begin, end, [&](const OperandOffsets& at, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        OperandOffsets here = at;
        for (int k = 0; k < g.heads.operands; ++k) here[k] += i * g.heads.InnerStride(k);
        const S* q = args.in<S>(first) + here[1 + first];
        const S* k = args.in<S>(first + 1) + here[2 + first];
        if (i + 1 < count) PrefetchNext<S>(g, args, first + 3, here);
        const bool hides = g.masks != 0 && BoundScores(g, q, k) <= kMaxScore;
        const KeyRange* ranges = hides ? visible + here[4 + first] / of_mask * g.q.rows : nullptr;
        f(here, mine, VisibleKeys{ranges, g.keys()}, repeats && i > 0);
      }
    });
  });
}

}  // namespace onnxtrain::cpu
