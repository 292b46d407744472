// The backward pass of attention recomputes the probabilities of a block of queries (Dao et al., FlashAttention, 2022).
// The gradients of keys and values are summed over blocks as transposed matrices: their products then read the
// probabilities and the gradients of scores as they are stored.
#include "backends/cpu/kernels/attention_heads.h"

namespace onnxtrain::cpu {
namespace {

// Operands of one head as products read them.
template <typename S>
struct GradOperands {
  using M = Matrix<const GemmElement<S>>;
  M q, dy;      // rows
  M q_t, dy_t;  // transposed
  M k;          // summed over keys
};

// The operands of cpu.AttentionGrad besides q, k and v.
struct GradHeads {
  Heads dy, dq, dk, dv;
};

// The backward pass of one head after another. Offsets are in words of the workspace.
template <typename S>
class AttentionGrad {
 public:
  using F = GemmElement<S>;

  AttentionGrad(const AttentionGeometry& g, const GradHeads& h) : g_(g), h_(h), products_(g.tiles) {
    if (g.heads.size() / g.repeats >= kManyGroups) g_.unit = g.repeats;
    WorkspaceLayout cut;
    const int64_t queries = g.q.rows, scores = g.block * g.stride;
    const int64_t d = products_.Extent(g.q.columns), e = products_.Extent(g.v.columns);
    rows_ = cut(std::max(products_.RowsScratch(g.k, g.keys()), products_.RowsScratch(g.v, g.keys())));
    k_panels_ = cut(products_.PanelsScratch(g.k));
    v_panels_ = cut(products_.PanelsScratch(g.v));
    dy_ = cut(products_.RowsScratch(h.dy, queries));
    q_ = cut(products_.RowsScratch(g.q, queries));
    dy_t_ = cut(products_.TransposedScratch(h.dy));
    q_t_ = cut(products_.TransposedScratch(g.q));
    k_ = cut(products_.SummedScratch(g.k));
    p_ = cut(scores);
    dp_ = cut(scores);
    across_ = kIsBf16<S> ? cut(scores / 2) : dp_;
    kept_ = cut(g.dropout ? scores : 0);
    slope_ = cut(g.softcap != 0 ? scores : 0);
    dq_ = cut(g.block * d);
    of_keys_ = d * g.stride;
    sums_ = of_keys_ + e * g.stride;
    if (AddsInPlace()) dk_ = cut(sums_);
    result_ = cut(g.keys() * RoundUp(std::max(d, e), AttentionProducts<S>::kTile));
    bytes_ = cut.bytes();
  }

  // Returns the bytes of workspace.
  size_t workspace() const { return partial_at() + (AddsInPlace() ? 0 : g_.heads.size() * sums_ * sizeof(float)); }

  void Run(const Args& args) const {
    float* partial = reinterpret_cast<float*>(static_cast<char*>(args.workspace) + partial_at());
    ForHeads<S>(g_, bytes_, args, 1, [&](const OperandOffsets& at, float* ws, const VisibleKeys& seen, bool same) {
      const GradOperands<S> x = Gather(args, at, ws, same);
      float* sums = AddsInPlace() ? ws + dk_ : partial + at[0] * sums_;
      const Head head{.number = at[0],
                      .mask = g_.has_mask ? args.in(4) + at[5] : nullptr,
                      .random_key = g_.dropout ? args.in<uint32_t>(5) : nullptr};
      if (!AddsInPlace() || !same) std::fill_n(sums, sums_, 0.0f);
      for (int64_t first = 0; first < g_.q.rows; first += g_.block) {
        const int64_t count = std::min(g_.block, g_.q.rows - first);
        const KeyRange keys = seen.By(first, count);
        const ScoreRows p = g_.MakeRows(ws + p_, count, keys, seen.From(first));
        const Matrix<const float> dq = RunBlock(x, {p, head, first, keys.begin}, keys, ws, sums);
        ScatterRows(h_.dq, dq, first, count, One, args.out<S>(0) + at[kOutputsAt]);
      }
      if (AddsInPlace() && (at[0] + 1) % g_.repeats == 0) ScatterSums(args, at, sums, ws);
    });
    if (!AddsInPlace()) AddRepeats(args, partial);
  }

 private:
  static constexpr int64_t kManyGroups = 32;  // of heads that share keys: enough for all threads

  // Returns true if one thread computes all heads that share keys, and adds their gradients up.
  bool AddsInPlace() const { return g_.unit == g_.repeats; }

  // Returns the offset in the workspace of the sums of each head, if several threads compute the heads that share keys.
  size_t partial_at() const { return RoundUp(static_cast<int64_t>(GetAttentionWorkspace(bytes_)), 64); }

  // Writes dk and dv, the sums of the heads that share keys. Threads compute single heads, so that few groups of heads
  // occupy many threads, too.
  void AddRepeats(const Args& args, float* partial) const {
    Parallel(g_.heads.size() / g_.repeats, g_.repeats * sums_, [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) {
        const int64_t head = group * g_.repeats;
        float* sums = partial + head * sums_;
        for (int64_t i = 1; i < g_.repeats; ++i) {
          const float* other = sums + i * sums_;
          for (int64_t j = 0; j < sums_; ++j) sums[j] += other[j];
        }
        ForRows(g_.heads, head, head + 1, [&](const OperandOffsets& at, int64_t) {
          ScatterSums(args, at, sums, GetThreadWorkspace(args, bytes_));
        });
      }
    });
  }

  void ScatterSums(const Args& args, const OperandOffsets& at, const float* sums, float* ws) const {
    ScatterTransposed(h_.dk, sums, ws, args.out<S>(1) + at[kOutputsAt + 1]);
    ScatterTransposed(h_.dv, sums + of_keys_, ws, args.out<S>(2) + at[kOutputsAt + 2]);
  }

  static constexpr int kOutputsAt = 6;  // among the offsets
  static float One(int64_t) { return 1; }

  // Copies keys and values so that products read them.
  void GatherKeys(const S* k, const S* v, float* ws) const {
    F* rows = At<S>(ws, rows_);
    products_.PackPanels(products_.GatherRows(g_.k, k, 0, g_.keys(), rows), g_.keys(), g_.k.columns,
                         At<S>(ws, k_panels_));
    products_.PackPanels(products_.GatherRows(g_.v, v, 0, g_.keys(), rows), g_.keys(), g_.v.columns,
                         At<S>(ws, v_panels_));
    products_.GatherSummed(g_.k, k, At<S>(ws, k_));
  }

  GradOperands<S> Gather(const Args& args, const OperandOffsets& at, float* ws, bool same_keys) const {
    if (!same_keys) GatherKeys(args.in<S>(2) + at[3], args.in<S>(3) + at[4], ws);
    const S *dy = args.in<S>(0) + at[1], *q = args.in<S>(1) + at[2];
    GradOperands<S> x{.q = products_.GatherRows(g_.q, q, 0, g_.q.rows, At<S>(ws, q_)),
                      .dy = products_.GatherRows(h_.dy, dy, 0, g_.q.rows, At<S>(ws, dy_)),
                      .q_t = {},
                      .dy_t = {},
                      .k = products_.SummedAt(g_.k, At<S>(ws, k_))};
    x.q_t = products_.GatherTransposed(g_.q, q, x.q, At<S>(ws, q_t_));
    x.dy_t = products_.GatherTransposed(h_.dy, dy, x.dy, At<S>(ws, dy_t_));
    return x;
  }

  // Replaces scores q·k by unnormalized probabilities. Returns the factors of their gradients.
  ScoreFactors ComputeFactors(const ScoreBlock& b, float* ws, float* inverse) const {
    const ScoreFactors factors{g_.dropout ? ws + kept_ : nullptr, g_.softcap != 0 ? ws + slope_ : nullptr};
    const float scale = CapScores<S>(g_, b.rows, ws + slope_);
    GetAttentionSimd<S>().softmax_floats(b.rows, scale, b.mask(g_), inverse);
    if (g_.dropout) {
      std::fill_n(ws + kept_, b.rows.rows * b.rows.ld, 1.0f);
      DropRows(g_, b, ws + kept_);
    }
    return factors;
  }

  // Returns dq of a block of queries, and adds their contributions to dk and dv, `sums`.
  Matrix<const float> RunBlock(const GradOperands<S>& x, const ScoreBlock& b, KeyRange keys, float* ws,
                               float* sums) const {
    const ScoreRows& p = b.rows;
    ScoreRows dp = p;
    dp.data = ws + dp_;
    float inverse[kMaxQueries];
    products_.MultiplyPanels(Below(x.q, b.query), g_.k, At<S>(ws, k_panels_), keys, p);
    const ScoreFactors factors = ComputeFactors(b, ws, inverse);
    products_.MultiplyPanels(Below(x.dy, b.query), g_.v, At<S>(ws, v_panels_), keys, dp);
    GetAttentionSimd<S>().score_grads(p, dp.data, g_.scale, inverse, factors, At<S>(ws, across_));
    AddTransposed(x.dy_t, p, b, keys, g_.v.columns, sums + of_keys_);
    AddTransposed(x.q_t, dp, b, keys, g_.q.columns, sums);
    const int64_t width = products_.Extent(g_.q.columns);
    return products_.Multiply({At<S>(ws, across_), NumGemmElements<S>(p.ld), 1},
                              Below(x.k, NumGemmElements<S>(keys.begin)), {ws + dq_, width, 1}, p.rows, g_.q.columns,
                              p.keys);
  }

  static Matrix<const F> Below(const Matrix<const F>& m, int64_t rows) {
    return {m.data + rows * m.row, m.row, m.column};
  }

  // Adds x·s to the columns of the keys of `sums` [columns, padded].
  void AddTransposed(const Matrix<const F>& x, const ScoreRows& s, const ScoreBlock& b, KeyRange keys, int64_t columns,
                     float* sums) const {
    const int64_t row = kIsBf16<S> ? 2 * s.ld : s.ld;
    F* data = reinterpret_cast<F*>(s.data);
    for (int64_t i = NumGemmElements<S>(s.rows); i < products_.Words(s.rows); ++i)
      std::fill_n(data + i * row, s.padded, F(0));
    const int64_t before = NumGemmElements<S>(b.query);
    products_.Multiply({x.data + before * x.column, x.row, x.column}, {data, row, 1}, {sums + keys.begin, g_.stride, 1},
                       columns, RoundUp(s.keys, AttentionProducts<S>::kTile), s.rows, true);
  }

  void ScatterTransposed(const Heads& h, const float* sums, float* ws, S* to) const {
    const int64_t width = RoundUp(h.columns, AttentionProducts<S>::kTile);
    F* rows = At<S>(ws, result_);
    AttentionProducts<S>::Transpose({reinterpret_cast<const F*>(sums), g_.stride, 1}, h.columns, h.rows, rows, width);
    ScatterRows(h, {ws + result_, width, 1}, 0, h.rows, One, to);
  }

  AttentionGeometry g_;
  GradHeads h_;
  AttentionProducts<S> products_;
  int64_t rows_, k_panels_, v_panels_, dy_, q_, dy_t_, q_t_, k_, p_, dp_, across_, kept_, slope_, dq_, dk_ = 0, result_;
  int64_t of_keys_, sums_;  // floats of dk, and of dk and dv, of a head
  size_t bytes_;
};

}  // namespace

template <typename S>
absl::StatusOr<Kernel> PrepareAttentionGrad(const KernelContext& c) {
  const std::vector<StridedType> operands = GetHeadOperands(c);
  constexpr int kOutputs = 5;  // among the operands
  const GradHeads h{MakeHeads(operands[0]), MakeHeads(operands[kOutputs]), MakeHeads(operands[kOutputs + 1]),
                    MakeHeads(operands[kOutputs + 2])};
  const AttentionGrad<S> grad(MakeAttentionGeometry(c, 1, kIsBf16<S> && HasAmx()), h);
  return Kernel{.run = [grad](const Args& args) { grad.Run(args); }, .workspace = grad.workspace()};
}

template absl::StatusOr<Kernel> PrepareAttentionGrad<float>(const KernelContext& c);
template absl::StatusOr<Kernel> PrepareAttentionGrad<uint16_t>(const KernelContext& c);

}  // namespace onnxtrain::cpu
