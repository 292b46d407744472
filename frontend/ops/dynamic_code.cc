#include "frontend/ops/dynamic_code.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/base/status.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

constexpr int kDecades = 7;

// The values of decade i are 10^(i − 6) times the middles of equal intervals of [0.1, 1]: 2^i intervals for each sign,
// or 2^(i+1) of the unsigned code. 0 and 1 complete the 256 values.
DynamicCode MakeDynamicCode(bool is_signed) {
  std::vector<float> values = {0, 1};
  for (int decade = 0; decade < kDecades; ++decade) {
    const int intervals = is_signed ? 1 << decade : 2 << decade;
    const double scale = std::pow(10.0, decade + 1 - kDecades);
    for (int i = 0; i < intervals; ++i) {
      const double value = scale * (0.1 + 0.9 * (i + 0.5) / intervals);
      values.push_back(static_cast<float>(value));
      if (is_signed) values.push_back(static_cast<float>(-value));
    }
  }
  std::sort(values.begin(), values.end());
  DynamicCode code;
  std::copy(values.begin(), values.end(), code.values.begin());
  code.zero = static_cast<int>(std::find(values.begin(), values.end(), 0.0f) - values.begin());
  for (size_t k = code.zero; k + 1 < values.size(); ++k)
    code.thresholds.push_back(static_cast<float>((double{values[k]} + values[k + 1]) / 2));
  if (!is_signed) code.thresholds[0] = 0;
  return code;
}

bool IsSigned(const Attrs& attrs) { return attrs.Int("signed") != 0; }

bool IsStateType(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kFloat64; }

TypesOr QuantizeTypes(const TypeContext& c) {
  const Type& x = c.in(0);
  if (!IsStateType(x.dtype)) return Invalid("expected f32 or f64, got ", ToString(x));
  return std::vector<Type>{{DType::kUInt8, x.shape}, {x.dtype, {DynamicBlocks(x.elements())}}};
}

TypesOr DequantizeTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireDType(c, 0, DType::kUInt8));
  if (!IsStateType(c.in(1).dtype)) return Invalid("expected scales of f32 or f64, got ", ToString(c.in(1)));
  RETURN_IF_ERROR(RequireShape(c, 1, {DynamicBlocks(c.in(0).elements())}));
  return std::vector<Type>{{c.in(1).dtype, c.in(0).shape}};
}

// Returns the elements as [blocks, kDynamicBlock], the last block filled up with zeros.
Val AsBlocks(Val x) {
  const int64_t elements = x.type().elements(), blocks = DynamicBlocks(elements);
  const Val flat = Reshape(x, {elements});
  const std::vector<int64_t> pads = {0, blocks * kDynamicBlock - elements};
  const Val padded = pads[1] == 0 ? flat : x.b().Op("Pad", {flat}, {{"pads", pads}, {"value", 0.0}});
  return Reshape(padded, {blocks, kDynamicBlock});
}

Val FromBlocks(Val blocks, const Shape& shape) {
  return Reshape(Slice(Reshape(blocks, {blocks.type().elements()}), 0, 0, NumElements(shape)), shape);
}

// Counts the thresholds below each magnitude by bisection.
Val CountBelow(Val magnitude, const std::vector<float>& thresholds) {
  std::vector<double> table(thresholds.begin(), thresholds.end());
  table.resize(255, std::numeric_limits<double>::infinity());
  Builder& b = magnitude.b();
  const Val all = b.Constant(HostTensor::FromDoubles({magnitude.dtype(), {255}}, table));
  Val count = Cast(magnitude * 0.0, DType::kInt64);
  for (int step = 128; step > 0; step /= 2) {
    const Val probe = Gather(all, count + static_cast<double>(step - 1), 0);
    count = count + Cast(Greater(magnitude, probe), DType::kInt64) * static_cast<double>(step);
  }
  return count;
}

std::vector<Val> DecomposeQuantize(const DecomposeContext& c) {
  const DynamicCode& code = GetDynamicCode(IsSigned(c.attrs));
  const Shape shape = c.x(0).shape();
  const Val blocks = AsBlocks(c.x(0));
  const Val scale = ReduceMax(Abs(blocks), {1});
  const Val x = blocks / Max(scale, double{kMinDynamicScale});
  const Val count = CountBelow(code.is_signed() ? Abs(x) : Max(x, 0.0), code.thresholds);
  const Val above = count + static_cast<double>(code.zero);
  const Val below = Max(static_cast<double>(code.zero) - count, 0.0);
  const Val codes = code.is_signed() ? Where(Less(x, 0.0), below, above) : above;
  return {Cast(FromBlocks(codes, shape), DType::kUInt8), Reshape(scale, {DynamicBlocks(NumElements(shape))})};
}

std::vector<Val> DecomposeDequantize(const DecomposeContext& c) {
  const DynamicCode& code = GetDynamicCode(IsSigned(c.attrs));
  const std::vector<double> values(code.values.begin(), code.values.end());
  const Val scales = c.x(1);
  const Shape shape = c.x(0).shape();
  const Val table = c.b.Constant(HostTensor::FromDoubles({scales.dtype(), {256}}, values));
  const Val numbers = AsBlocks(Gather(table, Cast(c.x(0), DType::kInt64), 0));
  return {FromBlocks(numbers * Reshape(scales, {scales.dim(0), 1}), shape)};
}

template <typename T>
void EncodeAll(const HostTensor& x, const DynamicCode& code, HostTensor* codes, HostTensor* scales) {
  const auto from = x.data<T>();
  for (int64_t block = 0; block < scales->size(); ++block) {
    const int64_t begin = block * kDynamicBlock, end = std::min(x.size(), begin + kDynamicBlock);
    T most = 0;
    for (int64_t i = begin; i < end; ++i) most = std::max(most, std::fabs(from[i]));
    scales->mutable_data<T>()[block] = most;
    const T divisor = std::max(most, static_cast<T>(kMinDynamicScale));
    for (int64_t i = begin; i < end; ++i) codes->mutable_data<uint8_t>()[i] = code.Encode(from[i] / divisor);
  }
}

std::vector<HostTensor> EvaluateQuantize(const EvalContext& c) {
  HostTensor codes(c.output_types[0]), scales(c.output_types[1]);
  const DynamicCode& code = GetDynamicCode(IsSigned(c.attrs));
  const HostTensor& x = *c.inputs[0];
  x.dtype() == DType::kFloat64 ? EncodeAll<double>(x, code, &codes, &scales)
                               : EncodeAll<float>(x, code, &codes, &scales);
  return {std::move(codes), std::move(scales)};
}

std::vector<HostTensor> EvaluateDequantize(const EvalContext& c) {
  HostTensor y(c.output_types[0]);
  const DynamicCode& code = GetDynamicCode(IsSigned(c.attrs));
  for (int64_t i = 0; i < y.size(); ++i)
    y.Set(i, double{code.values[c.inputs[0]->IntAt(i)]} * c.inputs[1]->At(i / kDynamicBlock));
  return {std::move(y)};
}

}  // namespace

const DynamicCode& GetDynamicCode(bool is_signed) {
  static const DynamicCode codes[] = {MakeDynamicCode(false), MakeDynamicCode(true)};
  return codes[is_signed ? 1 : 0];
}

DynamicTensor QuantizeDynamic(Val x, bool is_signed) {
  if (!x) return {};
  const auto outputs = x.b().Ops("QuantizeDynamic", {x}, {{"signed", int64_t{is_signed}}});
  return outputs.size() < 2 ? DynamicTensor() : DynamicTensor{outputs[0], outputs[1]};
}

Val DequantizeDynamic(const DynamicTensor& x, bool is_signed) {
  if (!x.codes || !x.scales) return Val();
  return x.codes.b().Op("DequantizeDynamic", {x.codes, x.scales}, {{"signed", int64_t{is_signed}}});
}

std::vector<OpRow> MakeDynamicCodeRows() {
  const AttrSpec is_signed = {"signed", int64_t{1}};
  return {{.name = "QuantizeDynamic",
           .inputs = {1, 1},
           .outputs = 2,
           .attrs = {is_signed},
           .infer = QuantizeTypes,
           .grad_status = GradStatus::kZero,
           .decompose = DecomposeQuantize,
           .evaluate = EvaluateQuantize,
           .precision = Precision::kFloat32},
          {.name = "DequantizeDynamic",
           .inputs = {2, 2},
           .attrs = {is_signed},
           .infer = DequantizeTypes,
           .grad_status = GradStatus::kZero,
           .decompose = DecomposeDequantize,
           .evaluate = EvaluateDequantize,
           .precision = Precision::kFloat32}};
}

}  // namespace onnxtrain
