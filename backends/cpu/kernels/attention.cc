// Computes attention without a tensor of all scores: multiplies a block of queries by all keys of one head. A row of
// scores is short enough to be kept whole, so that softmax needs no running maximum.
#include "backends/cpu/kernels/attention_heads.h"

namespace onnxtrain::cpu {
namespace {

constexpr int64_t kFewQueries = 8;           // so few read keys and values where they are
constexpr int64_t kScoresInCache = 1 << 16;  // scores of a block of queries

// Returns the queries of a block. Blocks of tiles are larger, so that sums over queries stay in registers for longer.
int64_t ChooseBlock(int64_t padded, bool tiles) {
  const int64_t unit = tiles ? 32 : 6, most = tiles ? 128 : 48, scores = tiles ? 4 * kScoresInCache : kScoresInCache;
  return std::clamp<int64_t>(scores / std::max<int64_t>(1, padded) / unit * unit, unit, most);
}

// Replaces scores q·k by unnormalized probabilities after the dropout, in elements S. Multiplied by `rows.inverse`,
// they are probabilities.
template <typename S>
void ComputeProbabilities(const AttentionGeometry& g, const ScoreBlock& b, const SoftmaxRows<float>& rows) {
  const auto& simd = GetAttentionSimd<S>();
  const ScoreRows& s = b.rows;
  const float scale = CapScores<S>(g, s, nullptr);
  if (!g.dropout) return simd.softmax(s, scale, b.mask(g), rows);
  simd.softmax_floats(s, scale, b.mask(g), rows);
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

// The forward pass of one head after another. Offsets are in words of the workspace.
template <typename S>
class AttentionForward {
 public:
  using F = GemmElement<S>;

  // `in_place`: keys are read where they are, and so are values of floats.
  AttentionForward(const AttentionGeometry& g, const Heads& y, bool in_place)
      : g_(g), y_(y), in_place_(in_place), copies_values_(!in_place || kIsBf16<S>), products_(g.tiles) {
    const int64_t padded = PadScores(g.keys(), g.tiles);
    stride_ = g.tiles ? AvoidSets(padded) : padded;
    queries_ = ChooseBlock(padded, g.tiles);
    WorkspaceLayout cut;
    rows_ = cut(std::max(products_.RowsScratch(g.k, g.keys()), products_.RowsScratch(g.q, queries_)));
    panels_ = cut(in_place ? 0 : products_.PanelsScratch(g.k));
    values_ = cut(copies_values_ ? products_.SummedScratch(g.v, g.keys()) : 0);
    p_ = cut(queries_ * stride_);
    out_row_ = products_.Extent(g.v.columns);
    out_ = cut(queries_ * out_row_);
    bytes_ = cut.bytes();
  }

  size_t workspace() const { return GetAttentionWorkspace(bytes_); }

  void Run(const Args& args) const {
    ForHeads<S>(g_, bytes_, args, 0, [&](const OperandOffsets& at, float* ws, const VisibleKeys& seen, bool same) {
      const Keys keys = Gather(args, at, ws, same);
      const Head head{.number = at[0],
                      .mask = g_.has_mask ? args.in(3) + at[4] : nullptr,
                      .random_key = g_.dropout ? args.in<uint32_t>(4) : nullptr};
      for (int64_t first = 0; first < g_.q.rows; first += queries_) {
        const int64_t count = std::min(queries_, g_.q.rows - first);
        const KeyRange range = seen.By(first, count);
        const Matrix<const F> q = products_.GatherRows(g_.q, args.in<S>(0) + at[1], first, count, At<S>(ws, rows_));
        float* max = args.out(1) + 2 * at[0] * g_.q.rows + first;
        RunBlock(q, keys, {head, seen, first, count, range}, {max, max + g_.q.rows}, ws, args.out<S>() + at[kYAt]);
      }
    });
  }

 private:
  static constexpr int kYAt = 5;  // among the offsets

  struct Keys {
    Matrix<const F> k, v;  // k: only if it is read in place
  };

  // `same`: the workspace has the copies of these keys and values.
  Keys Gather(const Args& args, const OperandOffsets& at, float* ws, bool same) const {
    const S *k = args.in<S>(1) + at[2], *v = args.in<S>(2) + at[3];
    Keys keys{.k = {}, .v = products_.SummedAt(g_.v, At<S>(ws, values_))};
    if (in_place_) {
      keys.k = products_.GatherRows(g_.k, k, 0, g_.keys(), nullptr);
    } else if (!same) {
      products_.PackPanels(products_.GatherRows(g_.k, k, 0, g_.keys(), At<S>(ws, rows_)), g_.keys(), g_.k.columns,
                           At<S>(ws, panels_));
    }
    if (!copies_values_) {
      keys.v = products_.GatherRows(g_.v, v, 0, g_.keys(), nullptr);
    } else if (!same) {
      products_.GatherSummed(g_.v, v, g_.keys(), At<S>(ws, values_));
    }
    return keys;
  }

  // Writes the rows of a block of queries.
  void RunBlock(const Matrix<const F>& q, const Keys& all, const HeadPart& part, const SoftmaxRows<float>& rows,
                float* ws, S* y) const {
    const ScoreBlock block = MakeScoreBlock(g_, part, ws + p_, stride_);
    const ScoreRows& s = block.rows;
    const KeyRange& range = part.keys;
    if (in_place_) {
      GetAttentionSimd<S>().multiply_transposed(q, {all.k.data + range.begin * all.k.row, all.k.row, 1},
                                                {s.data, s.ld, 1}, s.rows, s.keys, NumGemmElements<S>(g_.k.columns));
    } else {
      products_.MultiplyPanels(q, g_.k, At<S>(ws, panels_), range, s);
    }
    ComputeProbabilities<S>(g_, block, rows);
    const Matrix<const F> v = {all.v.data + NumGemmElements<S>(range.begin) * all.v.row, all.v.row, 1};
    const Matrix<const float> sums =
        products_.Multiply({At<S>(ws, p_), s.ld, 1}, v, {ws + out_, out_row_, 1}, s.rows, g_.v.columns, s.keys);
    ScatterRows(
        y_, sums, part.query, s.rows, [&](int64_t i) { return rows.inverse[i]; }, y);
  }

  AttentionGeometry g_;
  Heads y_;
  bool in_place_, copies_values_;
  AttentionProducts<S> products_;
  int64_t stride_, queries_;  // between rows of scores; of a block
  int64_t rows_, panels_, values_, p_, out_, out_row_;
  size_t bytes_;
};

template <typename S>
absl::StatusOr<Kernel> PrepareAttention(const KernelContext& c) {
  const bool in_place = ReadsInPlace<S>(c);
  const AttentionForward<S> forward(MakeAttentionGeometry(c, 0, kIsBf16<S> && !in_place && HasAmx()),
                                    MakeHeads(GetHeadOperands(c).back()), in_place);
  return Kernel{.run = [forward](const Args& args) { forward.Run(args); }, .workspace = forward.workspace()};
}

absl::StatusOr<Kernel> PrepareVisibleKeys(const KernelContext& c) {
  const int64_t keys = c.in().shape.back();
  return Kernel{.run = [keys, rows = c.out().shape[0]](const Args& args) {
    Parallel(rows, keys, [&](int64_t begin, int64_t end) {
      FindVisibleKeys(args.in() + begin * keys, end - begin, keys, args.out<KeyRange>() + begin);
    });
  }};
}

// The mask stays float32, the key is uint32 and visible keys are int64.
constexpr TypeSet kMaskTypes = kFloat | Only(DType::kInt64), kFloatTypes = kMaskTypes | Only(DType::kUInt32),
                  kPairTypes = kFloatTypes | Only(DType::kBFloat16);

}  // namespace

std::span<const KernelRow> AttentionKernels() {
  static constexpr KernelRow kRows[] = {
      {"cpu.VisibleKeys", PrepareVisibleKeys, kMaskTypes},
      {"cpu.Attention", PrepareAttention<float>, kFloatTypes},
      {"cpu.Attention", PrepareAttention<uint16_t>, kPairTypes},
      {"cpu.AttentionGrad", PrepareAttentionGrad<float>, kFloatTypes},
      {"cpu.AttentionGrad", PrepareAttentionGrad<uint16_t>, kPairTypes},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
