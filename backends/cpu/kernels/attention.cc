// Computes attention without a tensor of all scores: multiplies a block of queries by all keys of one head. A row of
// scores is short enough to be kept whole, so that softmax needs no running maximum.
#include "backends/cpu/kernels/attention_heads.h"

namespace onnxtrain::cpu {
namespace {

constexpr int64_t kFewQueries = 8;  // so few read keys and values where they are

// Replaces scores q·k by unnormalized probabilities after the dropout, in elements S. Multiplied by `inverse`, they are
// probabilities.
template <typename S>
void ComputeProbabilities(const AttentionGeometry& g, const ScoreBlock& b, float* inverse) {
  const auto& simd = GetAttentionSimd<S>();
  const ScoreRows& s = b.rows;
  const float scale = CapScores<S>(g, s, nullptr);
  if (!g.dropout) return simd.softmax(s, scale, b.mask(g), inverse);
  simd.softmax_floats(s, scale, b.mask(g), inverse);
  DropRows(g, b, s.data);
  if constexpr (kIsBf16<S>) {
    for (float* row = s.data; row < s.data + s.rows * s.ld; row += s.ld)
      simd.scale(row, s.padded, 1, reinterpret_cast<S*>(row));
  }
}

// Returns true if few queries read the keys of each head, and the values if these are floats, without copies.
template <typename S>
bool ReadsInPlace(const KernelContext& c) {
  const std::vector<StridedType> operands = GetHeadOperands(c);
  const AttentionProducts<S> products(false);
  const Heads q = MakeHeads(operands[0]), k = MakeHeads(operands[1]), v = MakeHeads(operands[2]);
  return q.rows <= kFewQueries && products.ReadsRows(k) && (kIsBf16<S> || products.ReadsRows(v));
}

template <typename S>
absl::StatusOr<Kernel> PrepareAttention(const KernelContext& c) {
  const bool in_place = ReadsInPlace<S>(c), copies_values = !in_place || kIsBf16<S>;
  const AttentionGeometry g = MakeAttentionGeometry(c, 0, kIsBf16<S> && !in_place && HasAmx());
  const Heads y = MakeHeads(GetHeadOperands(c).back());
  const AttentionProducts<S> products(g.tiles);
  WorkspaceLayout cut;
  const int64_t rows = cut(std::max(products.RowsScratch(g.k, g.keys()), products.RowsScratch(g.q, g.block))),
                panels = cut(in_place ? 0 : products.PanelsScratch(g.k)),
                values = cut(copies_values ? products.SummedScratch(g.v) : 0), p = cut(g.block * g.stride),
                out_row = products.Extent(g.v.columns), out = cut(g.block * out_row);
  const size_t bytes = cut.bytes();
  constexpr int kYAt = 5;
  return Kernel{
      .run =
          [=](const Args& args) {
            ForHeads<S>(g, bytes, args, 0, [&](const OperandOffsets& at, float* ws, const VisibleKeys& seen,
                                              bool same) {
              using F = GemmElement<S>;
              const S *all_k = args.in<S>(1) + at[2], *all_v = args.in<S>(2) + at[3];
              Matrix<const F> k, v = products.SummedAt(g.v, At<S>(ws, values));
              if (in_place || !same) k = products.GatherRows(g.k, all_k, 0, g.keys(), At<S>(ws, rows));
              if (!in_place && !same) products.PackPanels(k, g.keys(), g.k.columns, At<S>(ws, panels));
              if (!copies_values) v = products.GatherRows(g.v, all_v, 0, g.keys(), nullptr);
              if (copies_values && !same) v = products.GatherSummed(g.v, all_v, At<S>(ws, values));
              const Head head{.number = at[0],
                              .mask = g.has_mask ? args.in(3) + at[4] : nullptr,
                              .random_key = g.dropout ? args.in<uint32_t>(4) : nullptr};
              for (int64_t first = 0; first < g.q.rows; first += g.block) {
                const int64_t count = std::min(g.block, g.q.rows - first);
                const KeyRange range = seen.By(first, count);
                const ScoreRows scores = g.MakeRows(ws + p, count, range, seen.From(first));
                float inverse[kMaxQueries];
                const Matrix<const F> q =
                    products.GatherRows(g.q, args.in<S>(0) + at[1], first, count, At<S>(ws, rows));
                if (in_place) {
                  GetAttentionSimd<S>().multiply_transposed(q, {k.data + range.begin * k.row, k.row, 1},
                                                            {scores.data, scores.ld, 1}, count, scores.keys,
                                                            NumGemmElements<S>(g.k.columns));
                } else {
                  products.MultiplyPanels(q, g.k, At<S>(ws, panels), range, scores);
                }
                ComputeProbabilities<S>(g, {scores, head, first, range.begin}, inverse);
                const Matrix<const float> sums = products.Multiply(
                    {At<S>(ws, p), scores.ld, 1}, {v.data + NumGemmElements<S>(range.begin) * v.row, v.row, 1},
                    {ws + out, out_row, 1}, count, g.v.columns, scores.keys);
                ScatterRows(
                    y, sums, first, count, [&](int64_t i) { return inverse[i]; }, args.out<S>() + at[kYAt]);
              }
            });
          },
      .workspace = GetAttentionWorkspace(g, bytes)};
}

// The mask stays float32 and the key uint32.
constexpr TypeSet kFloatTypes = kFloat | Only(DType::kUInt32), kPairTypes = kFloatTypes | Only(DType::kBFloat16);

}  // namespace

std::span<const KernelRow> AttentionKernels() {
  static constexpr KernelRow kRows[] = {
      {"cpu.Attention", PrepareAttention<float>, kFloatTypes},
      {"cpu.Attention", PrepareAttention<uint16_t>, kPairTypes},
      {"cpu.AttentionGrad", PrepareAttentionGrad<float>, kFloatTypes},
      {"cpu.AttentionGrad", PrepareAttentionGrad<uint16_t>, kPairTypes},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
