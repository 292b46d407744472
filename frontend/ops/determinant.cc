// Determinants. The gradient of det is the matrix of cofactors, det(x)·x⁻ᵀ, which exists for singular matrices too.
#include <Eigen/LU>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

// A square matrix in the last two axes. Determinants of larger matrices over- or underflow.
absl::Status CheckSquare(const Shape& x) {
  if (x.size() < 2 || x.back() != x[x.size() - 2]) return Invalid("expected square matrices, got ", ToString(x));
  return x.back() <= 1024 ? absl::OkStatus()
                          : Invalid("matrices of ", x.back(), " rows are too large for a determinant");
}

TypesOr DetTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireFloat(c, 0));
  RETURN_IF_ERROR(CheckSquare(c.in(0).shape));
  return std::vector<Type>{{c.in(0).dtype, Shape(c.in(0).shape.begin(), c.in(0).shape.end() - 2)}};
}

TypesOr CofactorTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireFloat(c, 0));
  RETURN_IF_ERROR(CheckSquare(c.in(0).shape));
  return std::vector<Type>{c.in(0)};
}

std::vector<Val> DetGradient(const GradContext& c) {
  Shape scale = c.y().shape();
  scale.insert(scale.end(), 2, 1);
  return {Reshape(c.dy(), scale) * c.b.Op("Cofactor", {c.x(0)})};
}

std::vector<HostTensor> EvaluateDet(const EvalContext& c) {
  HostTensor y(c.output_types[0]);
  const int64_t n = c.inputs[0]->shape().back();
  const std::vector<double> x = c.inputs[0]->ToDoubles();
  for (int64_t i = 0; i < y.size(); ++i) {
    const Eigen::Map<const Eigen::MatrixXd> matrix(x.data() + i * n * n, n, n);
    y.Set(i, n == 0 ? 1 : matrix.fullPivLu().determinant());
  }
  return {std::move(y)};
}

}  // namespace

std::span<const OpRow> DeterminantOps() {
  static const auto* rows = new std::vector<OpRow>{
      {.name = "Det",
       .inputs = {1, 1},
       .infer = DetTypes,
       .grad_status = GradStatus::kFormula,
       .gradient = DetGradient,
       .evaluate = EvaluateDet,
       .precision = Precision::kFloat32,
       .onnx = ImportSame},
      {.name = "Cofactor", .inputs = {1, 1}, .infer = CofactorTypes, .precision = Precision::kFloat32},
  };
  return *rows;
}

}  // namespace onnxtrain
