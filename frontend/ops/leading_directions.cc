#include "frontend/ops/leading_directions.h"

#include <Eigen/SVD>
#include <algorithm>
#include <utility>
#include <vector>

#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

absl::StatusOr<std::vector<Type>> InferLeadingDirections(const TypeContext& c) {
  RETURN_IF_ERROR(RequireFloat(c, 0));
  const Type &x = c.in(0), &basis = c.in(1);
  if (x.rank() != 2) return Invalid("expected a matrix, got ", ToString(x));
  const int64_t side = std::min(x.shape[0], x.shape[1]);
  if (basis.dtype != x.dtype || basis.rank() != 2 || basis.shape[0] != side || basis.shape[1] > side)
    return Invalid("expected a basis of at most ", side, " directions for ", ToString(x), ", got ", ToString(basis));
  RETURN_IF_ERROR(CheckInputType(c, 2, {x.dtype, {}}));
  if (c.attrs.Int("every") < 1) return Invalid("every must be at least 1");
  return std::vector<Type>{basis};
}

std::vector<HostTensor> EvaluateLeadingDirections(const EvalContext& c) {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const HostTensor &x = *c.inputs[0], &previous = *c.inputs[1];
  const std::vector<double> numbers = x.ToDoubles();
  const Eigen::Map<const Matrix> matrix(numbers.data(), x.shape()[0], x.shape()[1]);
  if (static_cast<int64_t>(c.inputs[2]->At(0)) % c.attrs.Int("every") != 0 || !matrix.allFinite()) return {previous};
  const Matrix tall = ProjectsColumns(x.shape()) ? Matrix(matrix) : Matrix(matrix.transpose());
  const Eigen::JacobiSVD<Matrix, Eigen::FullPivHouseholderQRPreconditioner> svd(tall, Eigen::ComputeFullV);
  HostTensor y(c.output_types[0]);
  const int64_t rank = y.shape()[1];
  for (int64_t j = 0; j < rank; ++j) {
    Eigen::VectorXd direction = svd.matrixV().col(j);
    Eigen::Index largest = 0;
    direction.cwiseAbs().maxCoeff(&largest);
    if (direction[largest] < 0) direction = -direction;
    for (int64_t i = 0; i < direction.size(); ++i) y.Set(i * rank + j, direction[i]);
  }
  return {std::move(y)};
}

// Some subspace iterations, on the average of the steps.
double CountFlops(std::span<const Type* const> inputs, std::span<const Type> outputs, const Attrs& attrs) {
  constexpr double kProducts = 16;
  const double products =
      kProducts * 2 * static_cast<double>(NumElements(inputs[0]->shape)) * static_cast<double>(outputs[0].shape[1]);
  return products / static_cast<double>(std::max<int64_t>(1, attrs.Int("every")));
}

}  // namespace

Val LeadingDirections(Val x, Val previous, Val step, int64_t every) {
  return x ? x.b().Op("LeadingDirections", {x, previous, step}, {{"every", every}}) : Val();
}

OpRow MakeLeadingDirectionsRow() {
  return {.name = "LeadingDirections",
          .inputs = {3, 3},
          .attrs = {{"every", int64_t{1}}},
          .infer = InferLeadingDirections,
          .evaluate = EvaluateLeadingDirections,
          .precision = Precision::kFloat32,
          .recompute = Recompute::kNever,
          .flops = CountFlops};
}

}  // namespace onnxtrain
