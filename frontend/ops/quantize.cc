#include "frontend/ops/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/graph/small_types.h"
#include "frontend/graph/type.h"
#include "frontend/ops/dequantize.h"
#include "frontend/ops/dynamic_code.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/grouped_product.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

constexpr Grid kGrids[] = {
    {DType::kInt8, -128, 127},
    {DType::kUInt8, 0, 255},
    {DType::kInt16, -32768, 32767},
    {DType::kUInt16, 0, 65535},
    {DType::kInt32, -2147483648.0, 2147483647.0},
    {DType::kInt4, -8, 7},
    {DType::kUInt4, 0, 15},
    {DType::kInt2, -2, 1},
    {DType::kUInt2, 0, 3},
    {DType::kFloat8E4M3FN, -448, 448},
    {DType::kFloat8E4M3FNUZ, -240, 240},
    {DType::kFloat8E5M2, -57344, 57344},
    {DType::kFloat8E5M2FNUZ, -57344, 57344},
    {DType::kFloat4E2M1, -6, 6},
};

// Returns true if the operator maps points of a grid to points of the same grid.
bool KeepsGrid(std::string_view op) {
  const OpRow* row = FindOp(op);
  return row != nullptr && (row->moves_data || row->selects);
}

// Finds the floats that a quantized value was computed from.
class FloatFinder {
 public:
  explicit FloatFinder(DType type) : type_(type) {}

  // Returns an invalid Val if v is not computed from the operand of Quantized.
  Val operator()(Val v) {
    const Node* producer = v ? v.b().graph().producer(v.id()) : nullptr;
    if (producer == nullptr || --budget_ < 0) return Val();
    const Node node = *producer;  // a copy, since appending nodes moves them
    if (node.op == "StraightThrough") return Cast(v, type_);
    if (node.op == "Cast") return KeepsNumbers(v, node) ? (*this)(v.b().Wrap(node.inputs[0])) : Val();
    if (node.op == "Add" && IsInteger(v.dtype())) return Sum(v, node);
    if (in_sum_ && (node.op == "Floor" || node.op == "Round"))
      return Cast(StraightThrough(v, v.b().Wrap(node.inputs[0])), type_);
    return KeepsGrid(node.op) ? Moved(v, node) : Val();
  }

 private:
  // Returns true if the Cast changes no number of its source, which is on an integer grid or already of the target
  // type.
  static bool KeepsNumbers(Val v, const Node& cast) {
    const DType from = v.b().graph().type(cast.inputs[0]).dtype;
    const auto source = FindGrid(from), target = FindGrid(v.dtype());
    return IsFloat(from) || !target || (source && source->low >= target->low && source->high <= target->high);
  }

  Val Moved(Val v, const Node& node) {
    std::vector<Val> inputs;
    for (ValueId id : node.inputs) {
      inputs.push_back((*this)(v.b().Wrap(id)));
      if (!inputs.back()) return Val();
    }
    return v.b().Ops(node.op, std::move(inputs), node.attrs)[v.b().graph().value(v.id()).index];
  }

  // Returns the float form of a sum of products and a bias on the grid of products. Does not accept sums without a
  // product, since rounded numbers have no gradient.
  Val Sum(Val v, const Node& node) {
    const Val a = v.b().Wrap(node.inputs[0]), b = v.b().Wrap(node.inputs[1]);
    const Val x = (*this)(a), y = (*this)(b);
    if (!x && !y) return Val();
    const Val whole = x ? x : Bias(a), other = y ? y : Bias(b);
    return whole && other ? whole + other : Val();
  }

  Val Bias(Val v) {
    if (v.constant() != nullptr) return Cast(v, type_);
    const bool before = std::exchange(in_sum_, true);
    const Val floats = (*this)(v);
    in_sum_ = before;
    return floats;
  }

  DType type_;
  bool in_sum_ = false;  // the other operand of the sum is quantized
  int budget_ = 64;      // limit for visited nodes; longer chains get no gradient
};

bool ByStraightThrough(Val v) {
  const Node* producer = v.valid() ? v.b().graph().producer(v.id()) : nullptr;
  return producer != nullptr && producer->op == "StraightThrough";
}

// Returns the scale and the zero point of each element of a quantized tensor.
class Scales {
 public:
  Scales(const HostTensor& scale, const HostTensor* zero, const ScaleLayout& layout)
      : layout_(layout),
        scales_(scale.ToDoubles()),
        zeros_(zero == nullptr ? std::vector<double>{0} : zero->ToDoubles()) {}

  double scale(int64_t i) const { return scales_[scales_.size() == 1 ? 0 : layout_(i)]; }
  double zero(int64_t i) const { return zeros_[zeros_.size() == 1 ? 0 : layout_(i)]; }
  template <typename T>
  T Value(double point, int64_t i) const {
    return static_cast<T>(point - zero(i)) * static_cast<T>(scale(i));
  }

 private:
  const ScaleLayout& layout_;
  std::vector<double> scales_, zeros_;
};

constexpr int64_t kPart = 4096;  // elements converted at a time

template <typename T>
void Dequantize(const HostTensor& q, const Scales& scales, std::span<T> y) {
  std::vector<double> points(std::min(kPart, q.size()));
  for (int64_t begin = 0; begin < q.size(); begin += kPart) {
    const int64_t n = std::min(kPart, q.size() - begin);
    q.Read(begin, {points.data(), static_cast<size_t>(n)});
    for (int64_t i = 0; i < n; ++i) y[begin + i] = scales.Value<T>(points[i], begin + i);
  }
}

}  // namespace

std::optional<Grid> FindGrid(DType dtype) {
  for (const Grid& grid : kGrids) {
    if (grid.type == dtype) return grid;
  }
  return std::nullopt;
}

absl::StatusOr<ScaleLayout> ScaleLayout::Create(const Shape& tensor, const Shape& scale, int64_t axis, int64_t block) {
  ScaleLayout l;
  l.shape_ = tensor;
  l.scale_ = scale;
  if (NumElements(scale) == 1 && block == 0) return l;
  const auto mismatch = [&] {
    return Invalid("scales of shape ", ToString(scale), " do not belong to a tensor of shape ", ToString(tensor),
                   ", axis ", axis, block == 0 ? "" : StrCat(", blocks of ", block));
  };
  ASSIGN_OR_RETURN(const int64_t at, NormalizeAxis(axis, static_cast<int64_t>(tensor.size())));
  l.axis_ = static_cast<size_t>(at);
  l.inner_ = std::accumulate(tensor.begin() + at + 1, tensor.end(), int64_t{1}, std::multiplies<>());
  if (block == 0) {
    l.kind_ = Kind::kAxis;
    return NumElements(scale) == tensor[at] && scale.size() == 1 ? absl::StatusOr<ScaleLayout>(l) : mismatch();
  }
  l.kind_ = Kind::kBlock;
  Shape want = tensor;
  want[at] = block < 1 ? 0 : (tensor[at] + std::min(block, tensor[at] + 1) - 1) / std::min(block, tensor[at] + 1);
  if (scale.size() + 1 == want.size() && want[at] == 1) {  // the axis of a single block may be missing
    l.scale_.insert(l.scale_.begin() + at, 1);
  }
  if (block < 1 || l.scale_ != want) return mismatch();
  l.block_ = block;
  l.blocks_ = want[at];
  return l;
}

bool ScaleLayout::Fits(const Shape& zero) const {
  if (NumElements(zero) == 1) return true;
  if (kind_ != Kind::kBlock || (blocks_ == 1 && zero.size() + 1 == scale_.size()))
    return NumElements(zero) == NumElements(scale_);
  return zero == scale_;
}

Val ScaleLayout::Along(Val param) const {
  if (!param) return param;
  if (!Fits(param.shape()))
    return param.b().Fail(Invalid("a zero point ", ToString(param.type()), " beside scales ", ToString(scale_)));
  if (param.type().elements() == 1) return Reshape(param, {});
  if (kind_ != Kind::kBlock) {
    Shape shape(shape_.size(), 1);
    shape[axis_] = shape_[axis_];
    return Reshape(param, std::move(shape));
  }
  // Expands [.., blocks, ..] to [.., blocks, block, ..] and cuts the merged axis to the extent of the tensor.
  Shape wide = scale_;
  wide.insert(wide.begin() + static_cast<int64_t>(axis_) + 1, 1);
  const Val blocked = Reshape(param, wide);
  wide[axis_ + 1] = std::min(block_, shape_[axis_]);
  const Val repeated = Expand(blocked, wide);
  Shape joined = shape_;
  joined[axis_] = blocks_ * wide[axis_ + 1];
  return Slice(Reshape(repeated, joined), static_cast<int64_t>(axis_), 0, shape_[axis_]);
}

int64_t ScaleLayout::operator()(int64_t i) const {
  if (kind_ == Kind::kTensor) return 0;
  const int64_t extent = shape_[axis_], along = i / inner_ % extent;
  if (kind_ == Kind::kAxis) return along;
  return (i / inner_ / extent * blocks_ + along / block_) * inner_ + i % inner_;
}

HostTensor Dequantized(const HostTensor& q, const HostTensor& scale, const HostTensor* zero,
                       const ScaleLayout& layout) {
  HostTensor y({scale.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32, q.shape()});
  const Scales scales(scale, zero, layout);
  if (y.dtype() == DType::kFloat64) {
    Dequantize(q, scales, y.mutable_data<double>());
  } else {
    Dequantize(q, scales, y.mutable_data<float>());
  }
  return y;
}

HostTensor Requantized(const HostTensor& values, const HostTensor& old, const HostTensor& scale, const HostTensor* zero,
                       const ScaleLayout& layout) {
  HostTensor q(old.type());
  const Grid grid = *FindGrid(old.dtype());
  const Scales scales(scale, zero, layout);
  for (int64_t i = 0, n = q.size(); i < n; ++i) {
    const auto value = static_cast<float>(values.At(i));
    const double z = scales.zero(i);
    double point = old.At(i);
    if (value != scales.Value<float>(point, i)) {
      const double scaled = value / static_cast<float>(scales.scale(i));
      point = std::clamp((IsSmallFloat(grid.type) ? scaled : std::nearbyint(scaled)) + z, grid.low, grid.high);
    }
    q.Set(i, std::isnan(point) ? z : point);
  }
  return q;
}

HostTensor ProductOfScales(const HostTensor& scale, const HostTensor& factor) {
  const HostTensor& shape = scale.size() > factor.size() ? scale : factor;
  HostTensor y({DType::kFloat32, shape.shape()});
  for (int64_t i = 0; i < y.size(); ++i)
    y.Set(i, scale.At(scale.size() == 1 ? 0 : i) * factor.At(factor.size() == 1 ? 0 : i));
  return y;
}

Val StraightThrough(Val value, Val carrier) {
  return value ? value.b().Op("StraightThrough", {value, carrier}) : value;
}

Val FakeQuantize(Val scaled, Val zero, const Grid& grid, bool saturate) {
  if (!scaled) return scaled;
  if (DTypeSize(scaled.dtype()) < 4)
    scaled = Cast(scaled, DType::kFloat32);  // half precision has too few digits for the sums
  zero = Cast(zero, scaled.dtype());
  if (zero && zero.constant() != nullptr) {
    const std::vector<double> zeros = zero.constant()->ToDoubles();
    if (std::all_of(zeros.begin(), zeros.end(), [](double z) { return z == 0; })) zero = Val();
  }
  const Attrs range = {{"min", grid.low}, {"max", grid.high}};
  if (IsSmallFloat(grid.type)) {
    const Val sum = zero ? scaled + zero : scaled;
    if (!sum) return sum;
    const Val code = saturate ? Cast(sum, grid.type)
                              : sum.b().Op("EncodeFloat", {sum},
                                           {{"to", std::string(ToString(grid.type))}, {"saturate", int64_t{0}}});
    return StraightThrough(Cast(code, sum.dtype()), sum.b().Op("Clip", {sum}, range));
  }
  const Val rounded = StraightThrough(Unary("Round", scaled), scaled), sum = zero ? rounded + zero : rounded;
  const Val clipped = sum ? sum.b().Op("Clip", {sum}, range) : sum;
  return StraightThrough(clipped, clipped);
}

Val Quantized(Val on_grid, const Grid& grid) {
  if (on_grid && !ByStraightThrough(on_grid)) on_grid = StraightThrough(on_grid, on_grid);
  return Cast(on_grid, grid.type);
}

Val GetFloatValues(Val q, DType type) {
  if (!q) return q;
  const Val floats = FloatFinder(type)(q);
  return floats ? floats : Cast(q, type);
}

namespace {

TypesOr StraightThroughTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireFloat(c, 0));
  if (c.has(1) && !(c.in(1) == c.in(0)))
    return Invalid("the carrier of ", ToString(c.in(0)), " is ", ToString(c.in(1)));
  return SameAsInput(c);
}

}  // namespace

std::span<const OpRow> QuantizeOps() {
  static const std::vector<OpRow> rows = [] {
    std::vector<OpRow> all = MakeDequantizeRows();
    for (auto family : {MakeGroupedProductRows, MakeDynamicCodeRows}) {
      for (OpRow& row : family()) all.push_back(std::move(row));
    }
    all.push_back({.name = "StraightThrough",
                   .inputs = {1, 2},
                   .infer = StraightThroughTypes,
                   .grad_status = GradStatus::kFormula,
                   .gradient =
                       [](const GradContext& c) {
                         std::vector<Val> grads(c.inputs.size());
                         if (grads.size() > 1) grads[1] = c.dy();
                         return grads;
                       },
                   .decompose = [](const DecomposeContext& c) { return std::vector<Val>{c.x(0)}; },
                   .evaluate = [](const EvalContext& c) { return std::vector<HostTensor>{*c.inputs[0]}; }});
    return all;
  }();
  return rows;
}

std::span<const OnnxOp> QuantizeImports() {
  static const std::vector<OnnxOp> ops = [] {
    std::vector<OnnxOp> all;
    for (auto family : {QuantizeLinearImports, QuantizedOpImports, QonnxImports})
      all.insert(all.end(), family().begin(), family().end());
    return all;
  }();
  return ops;
}

}  // namespace onnxtrain
