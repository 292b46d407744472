// Attention without a tensor of all scores: a block of queries at a time against all keys of one head. The backward pass computes
// the probabilities again (Dao et al., FlashAttention, 2022; here a row of scores is short enough to be kept whole, so that
// softmax needs no running maximum).
#include <omp.h>

#include <algorithm>

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
  // s·scale + mask; the mask (or null) is stepped over by `step`.
  void (*scale_and_mask)(float* s, int64_t n, float scale, const float* mask, int64_t step);
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
    for (int64_t j = 0; j < width; ++j) {
      const int64_t row = first + j;
      for (int64_t k = 0; k < h.columns; ++k) to[k * width + j] = row < h.rows ? x[row * h.row + k * h.column] : 0.0f;
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
  std::vector<int64_t> seen;  // by query: keys from here on are masked for it and all queries before it; empty: none are known to be
  int64_t block;              // queries at a time

  int64_t keys() const { return k.rows; }
  int64_t padded() const { return Padded(k.rows); }
  int64_t SeenBy(int64_t first, int64_t count) const { return seen.empty() ? keys() : seen[first + count - 1]; }
};

// A score this far below another one of its row has a probability of exactly zero.
constexpr float kMasked = -1e6f, kOpen = -1e3f;

// Where a constant mask hides the last keys from the first queries (a causal model): nothing is computed for those.
std::vector<int64_t> SeenKeys(const HostTensor* mask, const Shape& scores) {
  const size_t r = scores.size();
  if (mask == nullptr || mask->size() != scores[r - 2] * scores[r - 1] || mask->type().dtype != DType::kFloat32) return {};
  std::vector<int64_t> seen(scores[r - 2]);
  int64_t most = 0;
  for (int64_t i = 0; i < scores[r - 2]; ++i) {
    const float* row = mask->data<float>().data() + i * scores[r - 1];
    int64_t last = scores[r - 1];
    while (last > 0 && row[last - 1] <= kMasked) --last;
    if (std::none_of(row, row + last, [](float x) { return x >= kOpen; })) return {};
    seen[i] = most = std::max(most, last);
  }
  return seen;
}

Geometry GeometryOf(const KernelContext& c, size_t first) {
  std::vector<StridedType> operands = HeadOperands(c);
  Geometry g{.q = HeadsOf(operands[first]), .k = HeadsOf(operands[first + 1]), .v = HeadsOf(operands[first + 2]), .heads = {},
             .scale = static_cast<float>(c.attrs().Float("scale")), .has_mask = c.has(first + 3), .seen = {}, .block = 0};
  const Shape& q = operands[first].shape;
  if (g.has_mask) {
    StridedType& mask = operands[first + 3];
    Shape scores = q;
    scores.back() = g.keys();
    mask = {scores, BroadcastStrides(mask.shape, scores)};
    g.mask_row = HeadsOf(mask).row;
    g.mask_column = HeadsOf(mask).column;
    g.seen = SeenKeys(c.graph.ConstantOf(c.node.inputs[first + 3]), scores);
  }
  const Shape batch(q.begin(), q.end() - 2);
  std::vector<Shape> strides = {Shape(batch.size(), 0)};
  for (const StridedType& t : operands) strides.push_back(HeadsOf(t).batch_strides);
  g.heads = MakeLoop(batch, strides);
  g.block = std::clamp<int64_t>(kScoresInCache / std::max<int64_t>(1, g.padded()) / 6 * 6, 6, 96);
  return g;
}

// Probabilities of `count` queries from `first` on, in rows of g.padded().
void Probabilities(const Geometry& g, const Matrix& q, const float* packed_k, const float* mask, int64_t first, int64_t count, float* p) {
  const int64_t seen = g.SeenBy(first, count), ld = g.padded();
  MultiplyPanels({q.data + first * q.row, q.row, q.column}, packed_k, g.q.columns, seen, p, ld, count);
  for (int64_t i = 0; i < count; ++i) {
    float* row = p + i * ld;
    Leaf().scale_and_mask(row, seen, g.scale, mask == nullptr ? nullptr : mask + (first + i) * g.mask_row, g.mask_column);
    Softmaxes().softmax(row, row, seen);
  }
}

// Calls f(offsets, workspace of the thread) for every head.
template <typename F>
void ForHeads(const Geometry& g, size_t workspace, const Args& args, F&& f) {
  const int64_t cost = g.q.rows * g.keys() * (g.q.columns + g.v.columns);
  Parallel(g.heads.size(), cost, [&](int64_t begin, int64_t end) {
    auto* mine = reinterpret_cast<float*>(static_cast<char*>(args.workspace) + omp_get_thread_num() * workspace);
    ForRows(g.heads, begin, end, [&](const OperandOffsets& at, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        OperandOffsets here = at;
        for (int k = 0; k < g.heads.operands; ++k) here[k] += i * g.heads.InnerStride(k);
        f(here, mine);
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
    ForHeads(g, bytes, args, [&](const OperandOffsets& at, float* ws) {
      PackTransposed(g.k, args.in(1) + at[2], ws + packed_k);
      Gather(g.v, args.in(2) + at[3], ws + v);
      const float* mask = g.has_mask ? args.in(3) + at[4] : nullptr;
      for (int64_t first = 0; first < g.q.rows; first += g.block) {
        const int64_t count = std::min(g.block, g.q.rows - first);
        Probabilities(g, g.q.At(args.in(0) + at[1]), ws + packed_k, mask, first, count, ws + p);
        Leaf().multiply({ws + p, g.padded(), 1}, ws + v, g.v.columns, ws + out, g.v.columns, count, g.v.columns,
                        g.SeenBy(first, count), false);
        Scatter(y, ws + out, first, count, args.out() + at[y_at]);
      }
    });
  }, .workspace = bytes * omp_get_max_threads()};
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
void GradBlock(const Geometry& g, const GradSpace& s, const float* mask, int64_t first, int64_t count, float* ws) {
  const int64_t d = g.q.columns, e = g.v.columns, ld = g.padded(), seen = g.SeenBy(first, count);
  float *p = ws + s.p, *dp = ws + s.dp, *dy = ws + s.dy + first * e, *q = ws + s.q + first * d;
  Probabilities(g, {ws + s.q, d, 1}, ws + s.packed_k, mask, first, count, p);
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
    ForHeads(g, s.bytes, args, [&](const OperandOffsets& at, float* ws) {
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
        GradBlock(g, s, mask, first, count, ws);
        Scatter(dq, ws + s.dq, first, count, args.out(0) + at[1 + inputs]);
      }
      Scatter(dk, ws + s.dk, 0, g.keys(), args.out(1) + at[2 + inputs]);
      Scatter(dv, ws + s.dv, 0, g.keys(), args.out(2) + at[3 + inputs]);
    });
  }, .workspace = s.bytes * omp_get_max_threads()};
}

}  // namespace

std::span<const KernelRow> AttentionKernels() {
  static constexpr KernelRow kRows[] = {{"cpu.Attention", PrepareAttention}, {"cpu.AttentionGrad", PrepareAttentionGrad}};
  return kRows;
}

}  // namespace onnxtrain::cpu
