// Normalizations: y = (x − mean)·rstd·scale + bias, with statistics of the batch, running averages, or statistics of
// each sample.
//
// The backward rows read the outputs mean and rstd. If the model reads them too, their gradients use ∂mean/∂x = 1/n and
// ∂rstd/∂x = −rstd³·(x − mean)/n.
#include <numeric>

#include "frontend/ops/formula.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

// Returns all axes except the channel axis.
std::vector<int64_t> ChannelStatAxes(const Shape& x) {
  std::vector<int64_t> axes(x.size() - 1, 0);
  std::iota(axes.begin() + 1, axes.end(), 2);
  return axes;
}

// Reshapes [C] to [1,C,1,…] to broadcast against x.
Val PerChannel(Val v, int rank) {
  Shape shape(rank, 1);
  shape[1] = v.dim(0);
  return Reshape(v, std::move(shape));
}

std::vector<int64_t> AxesFrom(int64_t axis, int rank) {
  std::vector<int64_t> axes(rank - axis);
  std::iota(axes.begin(), axes.end(), axis);
  return axes;
}

int64_t CountOver(const Shape& x, const std::vector<int64_t>& axes) {
  int64_t n = 1;
  for (int64_t a : axes) n *= x[a];
  return n;
}

// Requires the inputs from `first` on to be [C], where input `x` is [N,C,…]. They have the element type of x, or are
// all float32 if x has a 16-bit type.
absl::Status CheckChannels(const TypeContext& c, size_t x, size_t first) {
  for (size_t i = 0; i <= x; ++i) RETURN_IF_ERROR(RequireFloat(c, i));
  for (size_t i = 0; i < x; ++i) RETURN_IF_ERROR(RequireSameDType(c, i, x));
  const Shape& shape = c.in(x).shape;
  if (shape.size() < 2) return Invalid("expected [N,C,…], got ", ToString(c.in(x)));
  const bool mixed = DTypeSize(c.in(x).dtype) == 2 && c.in(first).dtype == DType::kFloat32;
  for (size_t i = first; i < c.inputs.size(); ++i) {
    RETURN_IF_ERROR(RequireSameDType(c, i, mixed ? first : x));
    RETURN_IF_ERROR(CheckInputShape(c, i, {shape[1]}));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Type>> InferBatchNorm(const TypeContext& c) {
  RETURN_IF_ERROR(CheckChannels(c, 0, 1));
  const Type stat = {c.in(1).dtype, {c.in(0).shape[1]}};
  return std::vector<Type>{c.in(0), stat, stat};
}

absl::StatusOr<std::vector<Type>> InferBatchNormGrad(const TypeContext& c) {
  RETURN_IF_ERROR(CheckChannels(c, 1, 2));
  RETURN_IF_ERROR(CheckInputShape(c, 0, c.in(1).shape));
  return std::vector<Type>{c.in(1), c.in(2), c.in(2)};
}

absl::StatusOr<std::vector<Type>> InferBatchNormInference(const TypeContext& c) {
  RETURN_IF_ERROR(CheckChannels(c, 0, 1));
  return std::vector<Type>{c.in(0)};
}

Shape ScaleShape(const Shape& x, int64_t axis) { return Shape(x.begin() + axis, x.end()); }

Shape StatShape(Shape x, int64_t axis) {
  std::fill(x.begin() + axis, x.end(), 1);
  return x;
}

absl::StatusOr<std::vector<Type>> InferLayerNorm(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 3));
  RETURN_IF_ERROR(CheckAxis(c));
  const Type& x = c.in(0);
  const int64_t axis = c.attrs.Int("axis");
  for (size_t i : {1, 2}) RETURN_IF_ERROR(CheckInputShape(c, i, ScaleShape(x.shape, axis)));
  const Type stat = {x.dtype, StatShape(x.shape, axis)};
  return std::vector<Type>{x, stat, stat};
}

absl::StatusOr<std::vector<Type>> InferLayerNormGrad(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 5));
  RETURN_IF_ERROR(CheckAxis(c));
  const Type& x = c.in(1);
  RETURN_IF_ERROR(CheckInputShape(c, 0, x.shape));
  const int64_t axis = c.attrs.Int("axis");
  const Type scale = {x.dtype, ScaleShape(x.shape, axis)};
  RETURN_IF_ERROR(CheckInputShape(c, 2, scale.shape));
  for (size_t i : {3, 4}) RETURN_IF_ERROR(CheckInputShape(c, i, StatShape(x.shape, axis)));
  return std::vector<Type>{x, scale, scale};
}

struct Normalized {
  Val x, mean, rstd;  // x is normalized; mean and rstd have extents 1 along the reduced axes
};

Normalized Normalize(Val x, const std::vector<int64_t>& axes, double epsilon) {
  const Val mean = ReduceMean(x, axes);
  const Val centered = x - mean;
  const Val rstd = Rsqrt(ReduceMean(centered * centered, axes) + epsilon);
  return {centered * rstd, mean, rstd};
}

// Normalizes in the type of the parameters, so in float32 if x has a 16-bit type and they are float32.
std::vector<Val> DecomposeBatchNorm(const DecomposeContext& c) {
  const Val x = Cast(c.x(0), c.x(1).dtype());
  const Normalized n = Normalize(x, ChannelStatAxes(x.shape()), c.attrs.Float("epsilon"));
  const Val y = n.x * PerChannel(c.x(1), x.rank()) + PerChannel(c.x(2), x.rank());
  return {Cast(y, c.x(0).dtype()), Reshape(n.mean, {x.dim(1)}), Reshape(n.rstd, {x.dim(1)})};
}

std::vector<Val> DecomposeLayerNorm(const DecomposeContext& c) {
  const Val x = c.x(0);
  const Normalized n = Normalize(x, AxesFrom(c.attrs.Int("axis"), x.rank()), c.attrs.Float("epsilon"));
  const Val y = n.x * c.x(1);
  return {c.x(2) ? y + c.x(2) : y, n.mean, n.rstd};
}

// Returns dx = rstd·(g − mean(g) − x̂·mean(g·x̂)) with x̂ = (x − mean)·rstd and g = dy·scale.
Val NormalizeGrad(Val g, Val normalized, Val rstd, const std::vector<int64_t>& axes) {
  return rstd * (g - ReduceMean(g, axes) - normalized * ReduceMean(g * normalized, axes));
}

std::vector<Val> DecomposeBatchNormGrad(const DecomposeContext& c) {
  const Val dy = Cast(c.x(0), c.x(2).dtype()), x = Cast(c.x(1), c.x(2).dtype());
  const int rank = x.rank();
  const Val rstd = PerChannel(c.x(4), rank);
  const Val normalized = (x - PerChannel(c.x(3), rank)) * rstd;
  const std::vector<int64_t> axes = ChannelStatAxes(x.shape());
  const Val dx = NormalizeGrad(dy * PerChannel(c.x(2), rank), normalized, rstd, axes);
  return {Cast(dx, c.x(1).dtype()), ReduceSum(dy * normalized, axes, false), ReduceSum(dy, axes, false)};
}

std::vector<Val> DecomposeLayerNormGrad(const DecomposeContext& c) {
  const Val dy = c.x(0), x = c.x(1), scale = c.x(2), rstd = c.x(4);
  const Val normalized = (x - c.x(3)) * rstd;
  return {NormalizeGrad(dy * scale, normalized, rstd, AxesFrom(c.attrs.Int("axis"), x.rank())),
          SumTo(dy * normalized, scale.shape()), SumTo(dy, scale.shape())};
}

std::vector<Val> DecomposeBatchNormInference(const DecomposeContext& c) {
  const Val x = Cast(c.x(0), c.x(1).dtype());
  const int rank = x.rank();
  const Val factor = c.x(1) * Rsqrt(c.x(4) + c.attrs.Float("epsilon"));
  const Val y = (x - PerChannel(c.x(3), rank)) * PerChannel(factor, rank) + PerChannel(c.x(2), rank);
  return {Cast(y, c.x(0).dtype())};
}

// Adds the gradients of the outputs mean and rstd to dx. `mean`, `rstd` and their gradients broadcast against x.
Val AddStatGrads(Val dx, Val x, Val mean, Val rstd, Val dmean, Val drstd, int64_t n) {
  const double scale = 1.0 / static_cast<double>(n);
  if (dmean) dx = dx + dmean * scale;
  if (drstd) dx = dx - (x - mean) * (rstd * rstd * rstd * drstd * scale);
  return dx;
}

std::vector<Val> BatchNormGradient(const GradContext& c) {
  const Val x = c.x(0);
  const int rank = x.rank();
  const Val dy = c.dy() ? c.dy() : ZerosLike(c.y());
  std::vector<Val> grads = c.b.Ops("BatchNormGrad", {dy, x, c.x(1), c.y(1), c.y(2)});
  auto wide = [&](Val v) { return v ? PerChannel(v, rank) : Val(); };
  if (c.dy(1) || c.dy(2)) {
    grads[0] = AddStatGrads(grads[0], x, wide(c.y(1)), wide(c.y(2)), wide(c.dy(1)), wide(c.dy(2)),
                            CountOver(x.shape(), ChannelStatAxes(x.shape())));
  }
  return grads;
}

std::vector<Val> LayerNormGradient(const GradContext& c) {
  const int64_t axis = c.node.attrs.Int("axis");
  const Val x = c.x(0);
  const Val dy = c.dy() ? c.dy() : ZerosLike(c.y());
  std::vector<Val> grads = c.b.Ops("LayerNormGrad", {dy, x, c.x(1), c.y(1), c.y(2)}, {{"axis", axis}});
  grads[0] =
      AddStatGrads(grads[0], x, c.y(1), c.y(2), c.dy(1), c.dy(2), CountOver(x.shape(), AxesFrom(axis, x.rank())));
  grads.resize(c.inputs.size());
  return grads;
}

// Returns the FLOPs. BatchNorm needs three operations per element for its sums and three for its result, its gradient
// four and five.
template <int kPerElement>
double PerElement(std::span<const Type* const>, std::span<const Type> out, const Attrs&) {
  return kPerElement * static_cast<double>(out[0].elements());
}

}  // namespace

std::span<const OpRow> NormOps() {
  const AttrSpec epsilon = {"epsilon", 1e-5};
  const AttrSpec axis = {"axis", int64_t{0}, true};
  const std::vector<WeightRole> roles = {WeightRole::kData, WeightRole::kNormScale, WeightRole::kNormBias,
                                         WeightRole::kNormMean, WeightRole::kNormVariance};
  static const std::vector<OpRow> rows = {
      {.name = "BatchNorm",
       .inputs = {3, 3},
       .outputs = 3,
       .attrs = {epsilon},
       .infer = InferBatchNorm,
       .grad_status = GradStatus::kFormula,
       .gradient = BatchNormGradient,
       .decompose = DecomposeBatchNorm,
       .precision = Precision::kMixedIo,
       .flops = PerElement<6>,
       .layout = {.inputs = 1, .outputs = 1},
       .overwrites = kAnyInput,
       .batch_coupled = true,
       .init = {.roles = roles, .transparent = true}},
      {.name = "BatchNormGrad",
       .inputs = {5, 5},
       .outputs = 3,
       .infer = InferBatchNormGrad,
       .decompose = DecomposeBatchNormGrad,
       .precision = Precision::kMixedIo,
       .flops = PerElement<9>,
       .layout = {.inputs = 3, .outputs = 1},
       .overwrites = kAnyInput,
       .batch_coupled = true,
       .is_gradient = true},
      {.name = "BatchNormInference",
       .inputs = {5, 5},
       .attrs = {epsilon},
       .infer = InferBatchNormInference,
       .grad_status = GradStatus::kDecomposition,
       .decompose = DecomposeBatchNormInference,
       .precision = Precision::kMixedIo,
       .flops = PerElement<3>,
       .layout = {.inputs = 1, .outputs = 1},
       .overwrites = kAnyInput,
       .init = {.roles = roles, .transparent = true}},
      {.name = "LayerNorm",
       .inputs = {2, 3},
       .outputs = 3,
       .attrs = {axis, epsilon},
       .infer = InferLayerNorm,
       .grad_status = GradStatus::kFormula,
       .gradient = LayerNormGradient,
       .decompose = DecomposeLayerNorm,
       .precision = Precision::kFloat32,
       .init = {.roles = roles}},
      {.name = "LayerNormGrad",
       .inputs = {5, 5},
       .outputs = 3,
       .attrs = {axis},
       .infer = InferLayerNormGrad,
       .decompose = DecomposeLayerNormGrad,
       .precision = Precision::kFloat32,
       .is_gradient = true},
  };
  return rows;
}

namespace {

Shape StatisticShape(Shape x, int64_t axis) {
  std::fill(x.begin() + axis, x.end(), 1);
  return x;
}

TypesOr InferRmsNorm(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 2));
  RETURN_IF_ERROR(CheckAxis(c));
  const Type& x = c.in(0);
  const int64_t axis = c.attrs.Int("axis");
  RETURN_IF_ERROR(CheckInputShape(c, 1, Shape(x.shape.begin() + axis, x.shape.end())));
  return std::vector<Type>{x, {x.dtype, StatisticShape(x.shape, axis)}};
}

TypesOr InferRmsNormGrad(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 4));
  RETURN_IF_ERROR(CheckAxis(c));
  const Type& x = c.in(1);
  const int64_t axis = c.attrs.Int("axis");
  RETURN_IF_ERROR(CheckInputShape(c, 0, x.shape));
  RETURN_IF_ERROR(CheckInputShape(c, 2, Shape(x.shape.begin() + axis, x.shape.end())));
  RETURN_IF_ERROR(CheckInputShape(c, 3, StatisticShape(x.shape, axis)));
  return std::vector<Type>{x, c.in(2)};
}

// Converts 16-bit types to float32, in which squares, means and sums are computed.
Val Wide(Val x) { return DTypeSize(x.dtype()) < 4 ? Cast(x, DType::kFloat32) : x; }

std::vector<Val> DecomposeRmsNorm(const DecomposeContext& c) {
  const Val x = c.x(0), wide = Wide(x);
  const Val rstd = Rsqrt(ReduceMean(wide * wide, AxesFrom(c.attrs.Int("axis"), x.rank())) + c.attrs.Float("epsilon"));
  return {Cast(wide * rstd, x.dtype()) * c.x(1), Cast(rstd, x.dtype())};
}

// Computes dx = rstd·(g − n·mean(g·n)) with n = x·rstd and g = dy·scale.
std::vector<Val> DecomposeRmsNormGrad(const DecomposeContext& c) {
  const Val dy = Wide(c.x(0)), scale = Wide(c.x(2)), rstd = Wide(c.x(3)), n = Wide(c.x(1)) * rstd, g = dy * scale;
  const Val dx = rstd * (g - n * ReduceMean(g * n, AxesFrom(c.attrs.Int("axis"), n.rank())));
  return {Cast(dx, c.x(0).dtype()), Cast(SumTo(dy * n, scale.shape()), c.x(0).dtype())};
}

// Adds −x·rstd³·mean(drstd) to dx if the model reads rstd.
std::vector<Val> RmsNormGradient(const GradContext& c) {
  const Val x = c.x(0), rstd = c.y(1);
  Val dx, dscale;
  if (c.dy()) {
    const std::vector<Val> grads =
        c.b.Ops("RmsNormGrad", {c.dy(), x, c.x(1), rstd}, {{"axis", c.node.attrs.Int("axis")}});
    dx = grads[0];
    dscale = grads[1];
  }
  if (c.dy(1)) {
    const double count = static_cast<double>(std::max<int64_t>(1, c.x(1).type().elements()));
    const Val more = x * (rstd * rstd * rstd * c.dy(1) * (-1 / count));
    dx = dx ? dx + more : more;
  }
  return {dx, dscale};
}

}  // namespace

std::span<const OpRow> RmsNormOps() {
  const AttrSpec axis = {"axis", int64_t{0}, true};
  static const std::vector<OpRow> rows = {
      {.name = "RmsNorm",
       .inputs = {2, 2},
       .outputs = 2,
       .attrs = {axis, {"epsilon", 1e-5}},
       .infer = InferRmsNorm,
       .grad_status = GradStatus::kFormula,
       .gradient = RmsNormGradient,
       .decompose = DecomposeRmsNorm,
       .precision = Precision::kFloat32,
       .init = {.roles = {WeightRole::kData, WeightRole::kNormScale}}},
      {.name = "RmsNormGrad",
       .inputs = {4, 4},
       .outputs = 2,
       .attrs = {axis},
       .infer = InferRmsNormGrad,
       .grad_status = GradStatus::kDecomposition,
       .decompose = DecomposeRmsNormGrad,
       .precision = Precision::kFloat32,
       .is_gradient = true},
  };
  return rows;
}

}  // namespace onnxtrain
