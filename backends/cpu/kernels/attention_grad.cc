// The backward pass of attention computes the probabilities again, block by block, from the maximum and the sum of each
// row's softmax (Dao, FlashAttention-2, 2023). A block of scores stays in the first-level cache until it is elements
// that products read. The gradients of keys and values are summed over queries as transposed matrices: their products
// then read the probabilities and the gradients of scores as they are stored.
#include "backends/cpu/kernels/attention_heads.h"

namespace onnxtrain::cpu {
namespace {

// The operands of cpu.AttentionGrad besides q, k and v.
struct GradHeads {
  Heads dy, y, dq, dk, dv;
};

// The backward pass of one head after another. Offsets are in words of the workspace.
template <typename S>
class AttentionGrad {
 public:
  using F = GemmElement<S>;

  AttentionGrad(const AttentionGeometry& g, const GradHeads& h)
      : g_(g),
        h_(h),
        products_(g.tiles),
        queries_(g.tiles ? 128 : 96),
        rows_(g.tiles ? 32 : 48),
        keys_(std::min(kMaxKeys, RoundUp(g.keys(), kPanel))) {
    if (g.heads.size() / g.repeats >= kManyGroups) g_.unit = g.repeats;
    WorkspaceLayout cut;
    const int64_t blocks = Pieces(g.q.rows, queries_), d = products_.Extent(g.q.columns);
    gathered_ = cut(std::max(products_.RowsScratch(g.k, g.keys()), products_.RowsScratch(g.v, g.keys())));
    k_panels_ = cut(products_.PanelsScratch(g.k));
    v_panels_ = cut(products_.PanelsScratch(g.v));
    k_ = cut(products_.SummedScratch(g.k, g.keys()));
    dy_ = cut(products_.RowsScratch(h.dy, g.q.rows));
    q_ = cut(products_.RowsScratch(g.q, g.q.rows));
    dy_t_of_block_ = products_.TransposedScratch(h.dy, queries_);
    q_t_of_block_ = products_.TransposedScratch(g.q, queries_);
    dy_t_ = cut(blocks * dy_t_of_block_);
    q_t_ = cut(blocks * q_t_of_block_);
    dot_ = cut(g.q.rows);
    for (int64_t* at : {&scores_, &dp_}) *at = cut(rows_ * kColumns);
    kept_ = cut(g.dropout ? rows_ * kColumns : 0);
    slope_ = cut(g.softcap != 0 ? rows_ * kColumns : 0);
    for (int64_t* at : {&p_, &ds_}) *at = cut(products_.Words(queries_) * keys_);
    across_ = kIsBf16<S> ? cut(queries_ * keys_ / 2) : ds_;
    dq_ = cut(RoundUp(g.q.rows, kTile) * d);
    of_keys_ = d * keys_;
    of_block_ = of_keys_ + products_.Extent(g.v.columns) * keys_;
    sums_ = of_block_ * Pieces(g.keys(), keys_);
    if (AddsInPlace()) dk_ = cut(sums_);
    result_ = cut(keys_ * RoundUp(std::max(g.q.columns, g.v.columns), kTile));
    bytes_ = cut.bytes();
  }

  // Returns the bytes of workspace.
  size_t workspace() const { return partial_at() + (AddsInPlace() ? 0 : g_.heads.size() * sums_ * sizeof(float)); }

  void Run(const Args& args) const {
    float* partial = reinterpret_cast<float*>(static_cast<char*>(args.workspace) + partial_at());
    ForHeads<S>(g_, bytes_, args, kFirst, [&](const OperandOffsets& at, float* ws, const VisibleKeys& seen, bool same) {
      float* sums = AddsInPlace() ? ws + dk_ : partial + at[0] * sums_;
      const Head head{.number = at[0],
                      .mask = g_.has_mask ? args.in(kFirst + 3) + at[kFirst + 4] : nullptr,
                      .random_key = g_.dropout ? args.in<uint32_t>(kFirst + 4) : nullptr,
                      .softmax = args.in(kSoftmaxInput) + 2 * at[0] * g_.q.rows};
      const QueryRows rows = Gather(args, at, ws, same);
      if (!AddsInPlace() || !same) std::fill_n(sums, sums_, 0.0f);
      RunHead(rows, head, seen, ws, sums, args.out<S>(0) + at[kOutputsAt]);
      if (AddsInPlace() && (at[0] + 1) % g_.repeats == 0) ScatterSums(args, at, sums, ws);
    });
    if (!AddsInPlace()) AddRepeats(args, partial);
  }

 private:
  static constexpr int kFirst = 2;               // q among the inputs
  static constexpr int kOutputsAt = kFirst + 5;  // among the offsets
  static constexpr int64_t kTile = AttentionProducts<S>::kTile;
  static constexpr int64_t kManyGroups = 32;       // of heads that share keys: enough for all threads
  static constexpr int64_t kMaxKeys = 256;         // whose sums stay in the second-level cache
  static constexpr int64_t kColumns = 2 * kPanel;  // of scores that stay in the first-level cache
  static int64_t Pieces(int64_t n, int64_t size) { return (n + size - 1) / size; }

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
    for (int64_t key = 0; key < g_.keys(); key += keys_, sums += of_block_) {
      ScatterTransposed(h_.dk, sums, key, g_.scale, ws, args.out<S>(1) + at[kOutputsAt + 1]);
      ScatterTransposed(h_.dv, sums + of_keys_, key, 1, ws, args.out<S>(2) + at[kOutputsAt + 2]);
    }
  }

  // Writes the rows of a block of keys, sums [columns, keys] multiplied by `by`.
  void ScatterTransposed(const Heads& h, const float* sums, int64_t key, float by, float* ws, S* to) const {
    const int64_t width = RoundUp(h.columns, kTile), count = std::min(keys_, h.rows - key);
    F* rows = At<S>(ws, result_);
    AttentionProducts<S>::Transpose({reinterpret_cast<const F*>(sums), keys_, 1}, h.columns, count, rows, width);
    ScatterRows(
        h, {ws + result_, width, 1}, key, count, [by](int64_t) { return by; }, to);
  }

  // Rows of queries and of dy as products read them.
  struct QueryRows {
    Matrix<const F> q, dy;
  };

  // Copies the operands of a head so that products read them.
  QueryRows Gather(const Args& args, const OperandOffsets& at, float* ws, bool same_keys) const {
    const S *dy = args.in<S>(0) + at[1], *y = args.in<S>(1) + at[2], *q = args.in<S>(2) + at[3];
    if (!same_keys) GatherKeys(args.in<S>(3) + at[4], args.in<S>(4) + at[5], ws);
    for (int64_t first = 0, block = 0; first < g_.q.rows; first += queries_, ++block) {
      const int64_t count = std::min(queries_, g_.q.rows - first);
      products_.GatherTransposed(g_.q, q + first * g_.q.row, count, At<S>(ws, q_t_) + block * q_t_of_block_);
      products_.GatherTransposed(h_.dy, dy + first * h_.dy.row, count, At<S>(ws, dy_t_) + block * dy_t_of_block_);
    }
    for (int64_t i = 0; i < g_.q.rows; ++i) {
      ws[dot_ + i] =
          GetAttentionSimd<S>().dot(dy + i * h_.dy.row, h_.dy.column, y + i * h_.y.row, h_.y.column, h_.dy.columns);
    }
    return {products_.GatherRows(g_.q, q, 0, g_.q.rows, At<S>(ws, q_)),
            products_.GatherRows(h_.dy, dy, 0, g_.q.rows, At<S>(ws, dy_))};
  }

  void GatherKeys(const S* k, const S* v, float* ws) const {
    F* rows = At<S>(ws, gathered_);
    products_.PackPanels(products_.GatherRows(g_.k, k, 0, g_.keys(), rows), g_.keys(), g_.k.columns,
                         At<S>(ws, k_panels_));
    products_.PackPanels(products_.GatherRows(g_.v, v, 0, g_.keys(), rows), g_.keys(), g_.v.columns,
                         At<S>(ws, v_panels_));
    products_.GatherSummed(g_.k, k, g_.keys(), At<S>(ws, k_));
  }

  // Writes dq of a head, and adds its dk and dv to `sums`.
  void RunHead(const QueryRows& x, const Head& head, const VisibleKeys& seen, float* ws, float* sums, S* dq) const {
    const int64_t queries = g_.q.rows, d = products_.Extent(g_.q.columns);
    std::fill_n(ws + dq_, queries * d, 0.0f);
    for (int64_t key = 0; key < g_.keys(); key += keys_, sums += of_block_) {
      for (int64_t query = 0; query < queries; query += queries_) {
        const int64_t count = std::min(queries_, queries - query);
        const HeadPart part{head, seen, query, count, Intersect(seen.By(query, count), key, key + keys_)};
        if (part.keys.size() > 0) RunBlock(x, part, ws, sums + part.keys.begin - key);
      }
    }
    ScatterRows(
        h_.dq, {ws + dq_, d, 1}, 0, queries, [this](int64_t) { return g_.scale; }, dq);
  }

  // Adds the contributions of a block of queries and keys to dq and to the sums of these keys.
  void RunBlock(const QueryRows& x, const HeadPart& part, float* ws, float* sums) const {
    const int64_t count = part.count, block = part.query / queries_, row = PadScores(part.keys.size(), g_.tiles);
    for (int64_t i = 0; i < count; i += rows_) {
      for (int64_t key = part.keys.begin; key < part.keys.end; key += kColumns) {
        const HeadPart scores{part.head, part.seen, part.query + i, std::min(rows_, count - i),
                              Intersect(part.keys, key, key + kColumns)};
        ComputeScores(x, scores, ws, NumGemmElements<S>(i) * row + key - part.keys.begin,
                      i * row + key - part.keys.begin, row);
      }
    }
    for (const int64_t at : {p_, ds_}) {
      F* words = At<S>(ws, at);
      std::fill(words + NumGemmElements<S>(count) * row, words + products_.Words(count) * row, F(0));
    }
    const auto add = [&](const Matrix<const F>& rows, const Heads& h, int64_t scratch, int64_t s, float* to) {
      products_.Multiply(products_.TransposedAt(h, Below(rows, part.query), count, At<S>(ws, scratch)),
                         {At<S>(ws, s), row, 1}, {to, keys_, 1}, h.columns, RoundUp(part.keys.size(), kTile), count,
                         true);
    };
    add(x.dy, h_.dy, dy_t_ + block * dy_t_of_block_, p_, sums + of_keys_);
    add(x.q, g_.q, q_t_ + block * q_t_of_block_, ds_, sums);
    const int64_t d = products_.Extent(g_.q.columns);
    products_.Multiply({At<S>(ws, across_), NumGemmElements<S>(row), 1},
                       Below(products_.SummedAt(g_.k, At<S>(ws, k_)), NumGemmElements<S>(part.keys.begin)),
                       {ws + dq_ + part.query * d, d, 1}, count, g_.q.columns, part.keys.size(), true);
  }

  // Computes probabilities and gradients of scores from words `at` of p and ds on, and elements `across` of rows.
  void ComputeScores(const QueryRows& x, const HeadPart& part, float* ws, int64_t at, int64_t across,
                     int64_t row) const {
    const ScoreBlock block = MakeScoreBlock(g_, part, ws + scores_, kColumns);
    const ScoreRows& s = block.rows;
    ScoreRows dp = s;
    dp.data = ws + dp_;
    ScoreFactors factors;
    float scale = g_.scale;
    if (Intersect(part.seen.By(part.query, part.count), part.keys.begin, part.keys.end).size() > 0) {
      products_.MultiplyPanels(Below(x.q, part.query), g_.k, At<S>(ws, k_panels_), part.keys, s);
      products_.MultiplyPanels(Below(x.dy, part.query), g_.v, At<S>(ws, v_panels_), part.keys, dp);
      factors = ComputeFactors(block, ws);
      scale = CapScores<S>(g_, s, ws + slope_);
    }
    const float* max = part.head.softmax + part.query;
    GetAttentionSimd<S>().score_grads({.scores = s,
                                       .dp = dp.data,
                                       .scale = scale,
                                       .mask = block.mask(g_),
                                       .softmax = {max, max + g_.q.rows},
                                       .dot = ws + dot_ + part.query,
                                       .has_all_keys = part.keys.size() == g_.keys(),
                                       .factors = factors,
                                       .p = At<S>(ws, p_) + at,
                                       .ds = At<S>(ws, ds_) + at,
                                       .row = row,
                                       .across = reinterpret_cast<S*>(ws + across_) + across});
  }

  ScoreFactors ComputeFactors(const ScoreBlock& b, float* ws) const {
    if (g_.dropout) {
      std::fill_n(ws + kept_, b.rows.rows * b.rows.ld, 1.0f);
      DropRows(g_, b, ws + kept_);
    }
    return {g_.dropout ? ws + kept_ : nullptr, g_.softcap != 0 ? ws + slope_ : nullptr};
  }

  static Matrix<const F> Below(const Matrix<const F>& m, int64_t rows) {
    return {m.data + rows * m.row, m.row, m.column};
  }

  AttentionGeometry g_;
  GradHeads h_;
  AttentionProducts<S> products_;
  int64_t queries_, rows_, keys_;  // queries of a block, of a block of scores; keys of a block
  int64_t gathered_, k_panels_, v_panels_, k_, dy_, q_, dy_t_, q_t_, dot_, scores_, dp_, kept_, slope_, p_, ds_,
      across_, dq_, dk_ = 0, result_;
  int64_t dy_t_of_block_, q_t_of_block_;
  int64_t of_keys_, of_block_, sums_;  // floats of dk of a block of keys, of dk and dv of it, of both of a head
  size_t bytes_;
};

}  // namespace

template <typename S>
absl::StatusOr<Kernel> PrepareAttentionGrad(const KernelContext& c) {
  const std::vector<StridedType> operands = GetHeadOperands(c);
  constexpr int kOutputs = 6;  // among the operands
  const GradHeads h{MakeHeads(operands[0]), MakeHeads(operands[1]), MakeHeads(operands[kOutputs]),
                    MakeHeads(operands[kOutputs + 1]), MakeHeads(operands[kOutputs + 2])};
  const AttentionGrad<S> grad(MakeAttentionGeometry(c, 2, kIsBf16<S> && HasAmx()), h);
  return Kernel{.run = [grad](const Args& args) { grad.Run(args); }, .workspace = grad.workspace()};
}

template absl::StatusOr<Kernel> PrepareAttentionGrad<float>(const KernelContext& c);
template absl::StatusOr<Kernel> PrepareAttentionGrad<uint16_t>(const KernelContext& c);

}  // namespace onnxtrain::cpu
