// Imports fused operators and packed weights that graph optimizers write in the domain com.microsoft
// (ContribOperators.md of ONNX Runtime).
#include <algorithm>

#include "frontend/ops/formula.h"
#include "frontend/ops/import/attention.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/import/quantize.h"
#include "frontend/ops/quantize.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

// Transposes [N,spatial…,C] to [N,C,spatial…].
Val ChannelsSecond(Val x) {
  std::vector<int64_t> perm = {0, x.rank() - 1};
  for (int64_t i = 1; i + 1 < x.rank(); ++i) perm.push_back(i);
  return Transpose(x, std::move(perm));
}
Val ChannelsLast(Val x) {
  std::vector<int64_t> perm = {0};
  for (int64_t i = 2; i < x.rank(); ++i) perm.push_back(i);
  perm.push_back(1);
  return Transpose(x, std::move(perm));
}

ImportOr Each(ImportOr results, Val (*f)(Val)) {
  if (!results.ok()) return results;
  for (Val& v : *results) v = v ? f(v) : v;
  return results;
}

// Imports a convolution of x [N,spatial…,C] with weights in the layout of Conv.
ImportOr ImportNhwcConv(ImportContext& c) {
  if (c.in(0).rank() < 3) return Invalid("expected [N,spatial…,C], got ", ToString(c.in(0).type()));
  return Each(ImportAs(c, "", "Conv", {ChannelsSecond(c.in(0)), c.in(1), c.in(2)}, c.attrs()), ChannelsLast);
}

Val Silu(Val x) { return x ? x * Sigmoid(x) : x; }

// Imports GroupNorm of x, gamma, beta. Channels are last unless channels_last is 0; activation 1 is SiLU.
ImportOr ImportMsGroupNorm(ImportContext& c) {
  const bool last = c.attrs().Int("channels_last", 1) != 0;
  if (c.in(0).rank() < 3) return Invalid("expected 3 or more axes, got ", ToString(c.in(0).type()));
  const Attrs attrs = {{"num_groups", c.attrs().Int("groups")}, {"epsilon", c.attrs().Float("epsilon", 1e-5)}};
  ImportOr y =
      ImportAs(c, "", "GroupNormalization", {last ? ChannelsSecond(c.in(0)) : c.in(0), c.in(1), c.in(2)}, attrs);
  const int64_t activation = c.attrs().Int("activation");
  if (activation != 0 && activation != 1) return Invalid("activation ", activation, " does not exist");
  if (activation == 1) y = Each(std::move(y), Silu);
  return last ? Each(std::move(y), ChannelsLast) : y;
}

ImportOr ImportFusedGemm(ImportContext& c) {
  Attrs attrs = c.attrs();
  const std::string activation = attrs.String("activation");
  struct Parameter {
    std::string_view from, to;
  };
  Attrs parameters;
  for (const Parameter& p :
       {Parameter{"activation_alpha", "alpha"}, {"activation_beta", "beta"}, {"activation_gamma", "gamma"}}) {
    if (attrs.Has(p.from)) parameters.Set(std::string(p.to), attrs.Float(p.from));
    attrs.Erase(p.from);
  }
  attrs.Erase("activation");
  ImportOr y = ImportAs(c, "", "Gemm", c.node().inputs, std::move(attrs));
  if (!y.ok() || activation.empty()) return y;
  return ImportAs(c, "", activation, {y->front()}, std::move(parameters));
}

// Splits x + bias in halves along the last axis and multiplies the first half by Gelu of the second.
ImportOr ImportBiasSplitGelu(ImportContext& c) {
  const Val x = c.in(0) + c.in(1);
  if (!x || x.rank() < 1 || x.dim(-1) % 2 != 0) return Invalid("cannot halve ", ToString(c.in(0).type()));
  const int64_t half = x.dim(-1) / 2, axis = x.rank() - 1;
  return One(Slice(x, axis, 0, half) *
             c.b().Op("Gelu", {Slice(x, axis, half, half)}, {{"approximate", std::string("none")}}));
}

ImportOr ImportBiasAdd(ImportContext& c) { return One(c.in(0) + c.in(1) + c.in(2)); }

struct Blocks {
  int64_t k, n, bits, size, count;
};

absl::StatusOr<Blocks> ReadBlocks(const ImportContext& c) {
  Blocks b = {c.attrs().Int("K"), c.attrs().Int("N"), c.attrs().Int("bits", 4), c.attrs().Int("block_size"), 0};
  constexpr int64_t kMax = int64_t{1} << 31;
  const bool bits =
      (b.bits == 2 || b.bits == 4 || b.bits == 8) && b.size >= 1 && b.size <= kMax / 8 && b.size * b.bits % 8 == 0;
  if (!bits || b.k < 1 || b.n < 1 || b.k > kMax || b.n > kMax) {
    return Invalid("cannot unpack K ", b.k, ", N ", b.n, ", bits ", b.bits, ", block_size ", b.size);
  }
  b.count = (b.k + b.size - 1) / b.size;
  return b;
}

// Returns the zero points [N, blocks], which may be packed like the weights or not; by default, they are 2^(bits−1).
absl::StatusOr<Val> ZeroPoints(ImportContext& c, const Blocks& b, DType type) {
  if (!c.has(3)) return c.b().Scalar(type, static_cast<double>(int64_t{1} << (b.bits - 1)));
  const HostTensor* zero = c.Known(3);
  if (zero == nullptr) return Unsupported("zero points that are computed");
  const int64_t bytes = (b.count * b.bits + 7) / 8;
  if (zero->dtype() == DType::kUInt8 && zero->size() == b.n * bytes) {
    return Cast(c.b().Constant(UnpackNumbers(zero->Reshaped({b.n, bytes}), b.bits, b.count)), type);
  }
  if (zero->size() != b.n * b.count)
    return Invalid("zero points ", ToString(zero->type()), " are not ", b.n, " by ", b.count);
  return Cast(c.b().Constant(zero->Reshaped({b.n, b.count})), type);
}

// Returns, for each column k, the block whose scale and zero point apply: g_idx[k] or, without g_idx, k / block size.
// (onnxruntime 1.23 on the CPU ignores packed zero points if there is a g_idx, contrary to its documentation.)
absl::StatusOr<std::vector<int64_t>> BlockOfColumn(ImportContext& c, const Blocks& b) {
  std::vector<int64_t> block(b.k);
  for (int64_t k = 0; k < b.k; ++k) block[k] = k / b.size;
  if (!c.has(4)) return block;
  ASSIGN_OR_RETURN(const std::vector<int64_t> given, c.KnownInts(4, "g_idx"));
  if (static_cast<int64_t>(given.size()) < b.k) return Invalid("g_idx has ", given.size(), " entries, K is ", b.k);
  for (int64_t k = 0; k < b.k; ++k) {
    if (given[k] < 0 || given[k] >= b.count) return Invalid("g_idx names block ", given[k], " of ", b.count);
    block[k] = given[k];
  }
  return block;
}

// Returns A·Wᵀ with columns that name their blocks, for floats W that are computed at import.
ImportOr MultiplyByColumnBlocks(ImportContext& c, const Blocks& b, const HostTensor* packed) {
  const Val a = c.in(0);
  const int64_t bytes = b.size * b.bits / 8;
  RETURN_IF_ERROR(CheckHostConstant({DType::kUInt8, {b.n, b.count * b.size}}));
  const Val codes = c.b().Constant(UnpackNumbers(packed->Reshaped({b.n, b.count * bytes}), b.bits, b.k));
  const Val scales = FixedInput(c, 2);
  ASSIGN_OR_RETURN(const Val zero, ZeroPoints(c, b, a.dtype()));
  ASSIGN_OR_RETURN(const std::vector<int64_t> block, BlockOfColumn(c, b));
  const Val scale = GatherConstant(Reshape(Cast(scales, a.dtype()), {b.n, b.count}), block, 1);
  const Val offset = zero.rank() == 0 ? zero : GatherConstant(zero, block, 1);
  const Val w = (Cast(codes, a.dtype()) - offset) * scale;
  return ImportAs(c, "", "MatMul", {a, Transpose(w, {1, 0})}, {});
}

// Returns the stored matrix of MatMulNBits, [N,K].
absl::StatusOr<QuantizedOperands> ReadStoredBlocks(ImportContext& c, const Blocks& b) {
  QuantizedOperands w{.q = Reshape(c.in(1), {b.n, b.count * b.size * b.bits / 8}),
                      .scale = Reshape(c.in(2), {b.n, b.count}),
                      .matrix = {.rows = b.n,
                                 .columns = b.k,
                                 .bits = b.bits,
                                 .block_columns = b.size,
                                 .zero_bits = b.bits,
                                 .zero = static_cast<double>(int64_t{1} << (b.bits - 1))}};
  if (!c.has(3)) return w;
  const Type zero = c.in(3).type();
  const int64_t bytes = w.matrix.zero_row_bytes();
  const bool packed = zero.dtype == DType::kUInt8 && zero.elements() == b.n * bytes;
  if (!packed && zero.elements() != b.n * b.count)
    return Invalid("zero points ", ToString(zero), " are not ", b.n, " by ", b.count);
  if (!packed) w.matrix.zero_bits = 8;
  w.zero = Reshape(c.in(3), {b.n, packed ? bytes : b.count});
  return w;
}

// Returns A·Wᵀ for A [..,K], which may be a vector.
absl::StatusOr<Val> MultiplyRows(Val a, const QuantizedOperands& w) {
  if (a.rank() == 0 || a.dim(-1) != w.matrix.columns)
    return Invalid("A ", ToString(a.type()), " has no rows of ", w.matrix.columns);
  if (a.rank() > 1) return MatMulDequantized(a, w, true);
  return Reshape(MatMulDequantized(Reshape(a, {1, a.dim(0)}), w, true), {w.matrix.rows});
}

// Imports A [..,K] times the transpose of weights [N,K] of 2, 4 or 8 bits, quantized in blocks along K. The weights are
// not trained.
ImportOr ImportMatMulNBits(ImportContext& c) {
  ASSIGN_OR_RETURN(const Blocks b, ReadBlocks(c));
  const HostTensor* packed = c.Known(1);
  if (packed == nullptr || packed->dtype() != DType::kUInt8) return Unsupported("weights that are no constant bytes");
  if (packed->size() != b.n * b.count * b.size * b.bits / 8)
    return Invalid("weights ", ToString(packed->type()), " are not ", b.n, " by ", b.count, " blocks of ", b.size);
  if (c.in(2).type().elements() != b.n * b.count)
    return Invalid("scales ", ToString(c.in(2).type()), " are not ", b.n, " by ", b.count);
  Val y;
  if (c.has(4)) {
    ASSIGN_OR_RETURN(const std::vector<Val> product, MultiplyByColumnBlocks(c, b, packed));
    y = product[0];
  } else {
    ASSIGN_OR_RETURN(const QuantizedOperands w, ReadStoredBlocks(c, b));
    ASSIGN_OR_RETURN(y, MultiplyRows(c.in(0), w));
  }
  return One(c.has(5) ? y + c.in(5) : y);
}

// Returns the stored table of GatherBlockQuantized if it is a matrix that is gathered by rows; nothing otherwise.
std::optional<QuantizedOperands> ReadStoredTable(ImportContext& c, int64_t bits, int64_t size) {
  const Attrs& attrs = c.attrs();
  if (!IsWeightInput(c, 0) || c.in(0).rank() != 2 || attrs.Int("gather_axis") != 0) return std::nullopt;
  const int64_t axis = attrs.Int("quantize_axis", 1);
  if (axis != 1 && axis != -1) return std::nullopt;
  const Type q = c.in(0).type();
  const bool bytes = q.dtype == DType::kUInt8;
  QuantizedOperands w{.q = c.in(0), .scale = c.in(2), .zero = c.in(3)};
  w.matrix = {.columns = bytes ? q.shape[1] * 8 / bits : q.shape[1],
              .bits = bytes ? bits : 8,
              .block_columns = size,
              .zero = bytes ? static_cast<double>(int64_t{1} << (bits - 1)) : 0};
  w.matrix.zero_bits = w.zero && w.zero.dtype() == DType::kUInt8 ? w.matrix.bits : 8;
  const Type* zero = w.zero ? &w.zero.type() : nullptr;
  const auto read = ReadQuantizedMatrix(w.matrix.ToAttrs(), q, w.scale.type(), zero);
  if (!read.ok()) return std::nullopt;
  w.matrix = *read;
  return w;
}

// Gathers rows of a table that is quantized in blocks, and dequantizes them. Each byte has two numbers of 4 bits.
ImportOr ImportGatherBlockQuantized(ImportContext& c) {
  const HostTensor* data = c.Known(0);
  const int64_t bits = c.attrs().Int("bits", 4), size = c.attrs().Int("block_size", 128);
  if (data == nullptr || data->shape().empty()) return Unsupported("a table that is computed");
  const bool packed = data->dtype() == DType::kUInt8 && bits == 4;
  if (bits != 4 && bits != 8) return Unsupported(StrCat("bits ", bits));
  if (const auto table = ReadStoredTable(c, bits, size)) return GatherRows(c, *table, c.in(1));
  Type wide = data->type();
  if (packed) wide.shape.back() *= 2;
  RETURN_IF_ERROR(CheckHostConstant(wide));
  const Val table = packed ? c.b().Constant(UnpackNumbers(*data, 4, wide.shape.back())) : c.in(0);
  const Val scales = FixedInput(c, 2);
  ASSIGN_OR_RETURN(const ScaleLayout layout,
                   ScaleLayout::Create(wide.shape, scales.shape(), c.attrs().Int("quantize_axis", 1), size));
  Val zero = packed || data->dtype() == DType::kUInt8 ? c.b().Scalar(scales.dtype(), bits == 4 ? 8 : 128) : Val();
  if (c.has(3)) {
    const HostTensor* given = c.Known(3);
    if (given == nullptr) return Unsupported("zero points that are computed");
    const bool nibbles = packed && given->dtype() == DType::kUInt8;
    if (nibbles && (given->shape().empty() || given->shape().back() != (scales.dim(-1) + 1) / 2))
      return Invalid("zero points ", ToString(given->type()), " beside scales ", ToString(scales.type()));
    const Val numbers = c.b().Constant(nibbles ? UnpackNumbers(*given, 4, scales.dim(-1)) : *given);
    if (numbers.shape() != scales.shape())
      return Invalid("zero points ", ToString(given->type()), " beside scales ", ToString(scales.type()));
    zero = layout.Along(Cast(numbers, scales.dtype()));
  }
  Val values = Cast(table, scales.dtype());
  if (zero) values = values - zero;
  return ImportAs(c, "", "Gather", {values * layout.Along(scales), c.in(1)}, {{"axis", c.attrs().Int("gather_axis")}});
}

}  // namespace

std::span<const OnnxOp> FusedOpImports() {
  static constexpr OnnxOp ops[] = {
      {"com.microsoft", "NhwcConv", 2, 3, ImportNhwcConv, {.weight_inputs = 0b110}},
      {"com.microsoft", "GroupNorm", 3, 3, ImportMsGroupNorm, {.weight_inputs = 0b110}},
      {"com.microsoft", "FusedGemm", 2, 3, ImportFusedGemm, {.weight_inputs = 0b110}},
      {"com.microsoft", "BiasSplitGelu", 2, 2, ImportBiasSplitGelu, {.weight_inputs = 0b10}},
      {"com.microsoft", "BiasAdd", 3, 3, ImportBiasAdd, {.weight_inputs = 0b10}},
      {"com.microsoft", "MatMulNBits", 3, 6, ImportMatMulNBits},
      {"com.microsoft", "GatherBlockQuantized", 3, 4, ImportGatherBlockQuantized},
  };
  return ops;
}

}  // namespace onnxtrain
