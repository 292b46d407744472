// Attention without a tensor of all scores: a block of queries at a time against all keys of one head. The backward pass computes
// the probabilities again (Dao et al., FlashAttention, 2022; here a row of scores is short enough to be kept whole, so that
// softmax needs no running maximum).
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "backends/cpu/attention_ops.h"
#include "backends/cpu/isa.h"
#include "backends/cpu/kernel.h"
#include "backends/cpu/kernels/softmax.h"
#include "backends/cpu/loop.h"
#include "backends/cpu/parallel.h"

namespace onnxtrain::cpu {

struct Matrix {
  const float* data;
  int64_t row, column;  // strides
};

struct AttentionLeaf {
  // c[m,n] = a·b, or added to c. b [k,n] and c have rows that are contiguous, ldb and ldc elements apart.
  void (*multiply)(const Matrix& a, const float* b, int64_t ldb, float* c, int64_t ldc, int64_t m, int64_t n, int64_t k, bool add);
  // to[columns, 16] (rows `width` apart) = up to 16 rows of x, transposed, and zeros.
  void (*pack_tile)(const float* x, int64_t row, int64_t column, int64_t rows, int64_t columns, float* to, int64_t width);
  // s·scale + mask; the mask (or null) is stepped over by `step`.
  void (*scale_and_mask)(float* s, int64_t n, float scale, const float* mask, int64_t step);
  // The largest Σ x² of a row; NaN where there is one.
  float (*largest_square)(const Matrix& x, int64_t rows, int64_t columns);
  // dp becomes p∘(dp − Σ p∘dp)·scale.
  void (*score_grad)(const float* p, float* dp, int64_t n, float scale);
};

}  // namespace onnxtrain::cpu

#define ONNXTRAIN_LEAF "backends/cpu/kernels/attention.leaf.inc"
#include "backends/cpu/foreach_isa.inc"

namespace onnxtrain::cpu {
namespace {

constexpr int64_t kPanel = 64;               // keys side by side, so that a product reads them in order
constexpr int64_t kScoresInCache = 1 << 16;  // of a block of queries
constexpr int64_t kTile = 16;                // of a transposition

const AttentionLeaf& Leaf() { return ONNXTRAIN_PICK(kAttention); }

// The matrices [rows, columns] of all heads, wherever they lie.
struct Heads {
  Shape batch_strides;
  int64_t rows, columns, row, column;  // extents, strides

  Matrix At(const float* data) const { return {data, row, column}; }
};

Heads HeadsOf(const StridedType& t) {
  const size_t r = t.shape.size();
  return {Shape(t.strides.begin(), t.strides.end() - 2), t.shape[r - 2], t.shape[r - 1], t.strides[r - 2], t.strides[r - 1]};
}

void Gather(const Heads& h, const float* from, float* to) {
  for (int64_t i = 0; i < h.rows; ++i) {
    const float* x = from + i * h.row;
    float* y = to + i * h.columns;
    if (h.column == 1) {
      std::copy_n(x, h.columns, y);
    } else {
      for (int64_t j = 0; j < h.columns; ++j) y[j] = x[j * h.column];
    }
  }
}

void Scatter(const Heads& h, const float* from, int64_t first, int64_t rows, float* to) {
  for (int64_t i = 0; i < rows; ++i) {
    const float* x = from + i * h.columns;
    float* y = to + (first + i) * h.row;
    if (h.column == 1) {
      std::copy_n(x, h.columns, y);
    } else {
      for (int64_t j = 0; j < h.columns; ++j) y[j * h.column] = x[j];
    }
  }
}

int64_t Padded(int64_t n) { return (n + kTile - 1) / kTile * kTile; }

// x [rows, columns] transposed, as panels of kPanel (the last one: as many as are left, padded with zeros) of its rows.
void PackTransposed(const Heads& h, const float* x, float* to) {
  const int64_t padded = Padded(h.rows);
  for (int64_t first = 0; first < padded; first += kPanel) {
    const int64_t width = std::min(kPanel, padded - first);
    for (int64_t j = 0; j < width; j += kTile) {
      const int64_t row = first + j;
      Leaf().pack_tile(x + row * h.row, h.row, h.column, std::min(kTile, h.rows - row), h.columns, to + j, width);
    }
    to += width * h.columns;
  }
}

// s[m, padded keys] = a·packedᵀ for the keys up to `keys`.
void MultiplyPanels(const Matrix& a, const float* packed, int64_t depth, int64_t keys, float* s, int64_t lds, int64_t m) {
  for (int64_t first = 0; first < keys; first += kPanel) {
    const int64_t width = std::min(kPanel, lds - first);
    Leaf().multiply(a, packed, width, s + first, lds, m, width, depth, false);
    packed += width * depth;
  }
}

// What forward and backward know.
struct Geometry {
  Heads q, k, v;
  Loop heads;                 // over the batch axes; operand 0: nothing, then those of the node in order
  float scale;
  bool has_mask = false;
  int64_t mask_row = 0, mask_column = 0;
  bool scans_mask = false;    // it is one [queries, keys] for all heads
  int64_t block;              // queries at a time

  int64_t keys() const { return k.rows; }
  int64_t padded() const { return Padded(k.rows); }
};

// How many of the first keys a query sees, counted over all queries up to it. A constant or computed mask that hides the last
// keys from the first queries (a causal model) halves the work.
struct Seen {
  const int64_t* by_query;  // null: all of them
  int64_t keys;

  int64_t By(int64_t first, int64_t count) const { return by_query == nullptr ? keys : by_query[first + count - 1]; }
};

// A hidden key's probability is exactly zero, so that it can be left out, if it lies kHidden or more below zero by the mask, an
// open one of its query no more than kOpen, and no product q·k·scale exceeds kMostReach: e^−4900 is zero.
constexpr float kHidden = -9000, kOpen = -100, kMostReach = 2000;

// From a mask [queries, keys]; false where nothing is gained.
bool FindSeen(const float* mask, int64_t queries, int64_t keys, int64_t* seen) {
  int64_t most = 0;
  for (int64_t i = 0; i < queries; ++i) {
    const float* row = mask + i * keys;
    int64_t last = keys;
    while (last > 0 && row[last - 1] <= kHidden) --last;
    if (std::none_of(row, row + last, [](float x) { return x >= kOpen; })) return false;
    seen[i] = most = std::max(most, last);
  }
  return queries > 0 && seen[0] < keys;
}

Geometry GeometryOf(const KernelContext& c, size_t first) {
  std::vector<StridedType> operands = HeadOperands(c);
  Geometry g{.q = HeadsOf(operands[first]), .k = HeadsOf(operands[first + 1]), .v = HeadsOf(operands[first + 2]), .heads = {},
             .scale = static_cast<float>(c.attrs().Float("scale")), .has_mask = c.has(first + 3), .block = 0};
  const Shape& q = operands[first].shape;
  if (g.has_mask) {
    StridedType& mask = operands[first + 3];
    Shape scores = q;
    scores.back() = g.keys();
    mask = {scores, BroadcastStrides(mask.shape, scores)};
    g.mask_row = HeadsOf(mask).row;
    g.mask_column = HeadsOf(mask).column;
    const bool matrix = g.mask_row == g.keys() && g.mask_column == 1;
    g.scans_mask = matrix && c.in(first + 3).elements() == g.q.rows * g.keys();
  }
  const Shape batch(q.begin(), q.end() - 2);
  std::vector<Shape> strides = {Shape(batch.size(), 0)};
  for (const StridedType& t : operands) strides.push_back(HeadsOf(t).batch_strides);
  g.heads = MakeLoop(batch, strides);
  g.block = std::clamp<int64_t>(kScoresInCache / std::max<int64_t>(1, g.padded()) / 6 * 6, 6, 48);
  return g;
}

// Probabilities of `count` queries from `first` on, in rows of g.padded().
void Probabilities(const Geometry& g, const Matrix& q, const float* packed_k, const float* mask, int64_t seen, int64_t first,
                   int64_t count, float* p) {
  const int64_t ld = g.padded();
  MultiplyPanels({q.data + first * q.row, q.row, q.column}, packed_k, g.q.columns, seen, p, ld, count);
  for (int64_t i = 0; i < count; ++i) {
    float* row = p + i * ld;
    Leaf().scale_and_mask(row, seen, g.scale, mask == nullptr ? nullptr : mask + (first + i) * g.mask_row, g.mask_column);
    Softmaxes().softmax(row, row, seen);
  }
}

// What no |q·k·scale| exceeds (Cauchy, Schwarz).
float Reach(const Geometry& g, const float* q, const float* k) {
  const auto squares = [](const Heads& h, const float* x) { return Leaf().largest_square(h.At(x), h.rows, h.columns); };
  return std::abs(g.scale) * std::sqrt(squares(g.q, q) * squares(g.k, k));
}

size_t WorkspaceOf(const Geometry& g, size_t of_thread) {
  return of_thread * omp_get_max_threads() + (g.scans_mask ? g.q.rows * sizeof(int64_t) : 0);
}

// Calls f(offsets, workspace of the thread, what is seen) for every head. q, k and the mask are the inputs from `first` on.
template <typename F>
void ForHeads(const Geometry& g, size_t workspace, const Args& args, int first, F&& f) {
  auto* counts = reinterpret_cast<int64_t*>(static_cast<char*>(args.workspace) + omp_get_max_threads() * workspace);
  const bool hides = g.scans_mask && FindSeen(args.in(first + 3), g.q.rows, g.keys(), counts);
  const int64_t cost = g.q.rows * g.keys() * (g.q.columns + g.v.columns);
  Parallel(g.heads.size(), cost, [&](int64_t begin, int64_t end) {
    auto* mine = reinterpret_cast<float*>(static_cast<char*>(args.workspace) + omp_get_thread_num() * workspace);
    ForRows(g.heads, begin, end, [&](const OperandOffsets& at, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        OperandOffsets here = at;
        for (int k = 0; k < g.heads.operands; ++k) here[k] += i * g.heads.InnerStride(k);
        const float* q = args.in(first) + here[1 + first];
        const float* k = args.in(first + 1) + here[2 + first];
        f(here, mine, Seen{hides && Reach(g, q, k) <= kMostReach ? counts : nullptr, g.keys()});
      }
    });
  });
}

// Parts of a workspace, each aligned.
class Cut {
 public:
  int64_t operator()(int64_t floats) {
    const int64_t at = size_;
    size_ += Padded(floats);
    return at;
  }
  size_t bytes() const { return size_ * sizeof(float); }

 private:
  int64_t size_ = 0;
};

absl::StatusOr<Kernel> PrepareAttention(const KernelContext& c) {
  const Geometry g = GeometryOf(c, 0);
  const Heads y = HeadsOf(HeadOperands(c).back());
  Cut cut;
  const int64_t packed_k = cut(g.padded() * g.q.columns), v = cut(g.keys() * g.v.columns), p = cut(g.block * g.padded());
  const int64_t out = cut(g.block * g.v.columns);
  const size_t bytes = cut.bytes();
  const int y_at = 1 + static_cast<int>(c.node.inputs.size());
  return Kernel{.run = [=](const Args& args) {
    ForHeads(g, bytes, args, 0, [&](const OperandOffsets& at, float* ws, const Seen& seen) {
      PackTransposed(g.k, args.in(1) + at[2], ws + packed_k);
      Gather(g.v, args.in(2) + at[3], ws + v);
      const float* mask = g.has_mask ? args.in(3) + at[4] : nullptr;
      for (int64_t first = 0; first < g.q.rows; first += g.block) {
        const int64_t count = std::min(g.block, g.q.rows - first);
        const int64_t keys = seen.By(first, count);
        Probabilities(g, g.q.At(args.in(0) + at[1]), ws + packed_k, mask, keys, first, count, ws + p);
        Leaf().multiply({ws + p, g.padded(), 1}, ws + v, g.v.columns, ws + out, g.v.columns, count, g.v.columns, keys, false);
        Scatter(y, ws + out, first, count, args.out() + at[y_at]);
      }
    });
  }, .workspace = WorkspaceOf(g, bytes)};
}

// The workspace of one head's backward pass, as offsets.
struct GradSpace {
  int64_t dy, q, k, packed_k, packed_v, p, dp, dq, dk, dv;
  size_t bytes;
};

GradSpace SpaceOf(const Geometry& g) {
  Cut cut;
  GradSpace s{};
  s.dy = cut(g.q.rows * g.v.columns);
  s.q = cut(g.q.rows * g.q.columns);
  s.k = cut(g.keys() * g.q.columns);
  s.packed_k = cut(g.padded() * g.q.columns);
  s.packed_v = cut(g.padded() * g.v.columns);
  s.p = cut(g.block * g.padded());
  s.dp = cut(g.block * g.padded());
  s.dq = cut(g.block * g.q.columns);
  s.dk = cut(g.keys() * g.q.columns);
  s.dv = cut(g.keys() * g.v.columns);
  s.bytes = cut.bytes();
  return s;
}

// Adds what `count` queries from `first` on give to dk and dv, and computes their dq.
void GradBlock(const Geometry& g, const GradSpace& s, const float* mask, int64_t seen, int64_t first, int64_t count, float* ws) {
  const int64_t d = g.q.columns, e = g.v.columns, ld = g.padded();
  float *p = ws + s.p, *dp = ws + s.dp, *dy = ws + s.dy + first * e, *q = ws + s.q + first * d;
  Probabilities(g, {ws + s.q, d, 1}, ws + s.packed_k, mask, seen, first, count, p);
  Leaf().multiply({p, 1, ld}, dy, e, ws + s.dv, e, seen, e, count, true);
  MultiplyPanels({dy, e, 1}, ws + s.packed_v, e, seen, dp, ld, count);
  for (int64_t i = 0; i < count; ++i) Leaf().score_grad(p + i * ld, dp + i * ld, seen, g.scale);
  Leaf().multiply({dp, ld, 1}, ws + s.k, d, ws + s.dq, d, count, d, seen, false);
  Leaf().multiply({dp, 1, ld}, q, d, ws + s.dk, d, seen, d, count, true);
}

absl::StatusOr<Kernel> PrepareAttentionGrad(const KernelContext& c) {
  const Geometry g = GeometryOf(c, 1);
  const GradSpace s = SpaceOf(g);
  const std::vector<StridedType> operands = HeadOperands(c);
  const size_t inputs = c.node.inputs.size();
  const Heads dy = HeadsOf(operands[0]), dq = HeadsOf(operands[inputs]), dk = HeadsOf(operands[inputs + 1]),
              dv = HeadsOf(operands[inputs + 2]);
  return Kernel{.run = [=](const Args& args) {
    ForHeads(g, s.bytes, args, 1, [&](const OperandOffsets& at, float* ws, const Seen& seen) {
      Gather(dy, args.in(0) + at[1], ws + s.dy);
      Gather(g.q, args.in(1) + at[2], ws + s.q);
      Gather(g.k, args.in(2) + at[3], ws + s.k);
      PackTransposed(g.k, args.in(2) + at[3], ws + s.packed_k);
      PackTransposed(g.v, args.in(3) + at[4], ws + s.packed_v);
      std::fill_n(ws + s.dk, g.keys() * g.q.columns, 0.0f);
      std::fill_n(ws + s.dv, g.keys() * g.v.columns, 0.0f);
      const float* mask = g.has_mask ? args.in(4) + at[5] : nullptr;
      for (int64_t first = 0; first < g.q.rows; first += g.block) {
        const int64_t count = std::min(g.block, g.q.rows - first);
        GradBlock(g, s, mask, seen.By(first, count), first, count, ws);
        Scatter(dq, ws + s.dq, first, count, args.out(0) + at[1 + inputs]);
      }
      Scatter(dk, ws + s.dk, 0, g.keys(), args.out(1) + at[2 + inputs]);
      Scatter(dv, ws + s.dv, 0, g.keys(), args.out(2) + at[3 + inputs]);
    });
  }, .workspace = WorkspaceOf(g, s.bytes)};
}

}  // namespace

std::span<const KernelRow> AttentionKernels() {
  static constexpr KernelRow kRows[] = {{"cpu.Attention", PrepareAttention}, {"cpu.AttentionGrad", PrepareAttentionGrad}};
  return kRows;
}

}  // namespace onnxtrain::cpu
