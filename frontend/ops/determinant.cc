// Determinants. The gradient of det is the matrix of cofactors, det(x)·x⁻ᵀ, which exists for singular matrices too.
#include <algorithm>
#include <cmath>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

// A square matrix in the last two axes. Determinants of larger ones over- or underflow whatever one does.
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

// Gaussian elimination with partial pivoting.
double Det(std::vector<double> m, int64_t n) {
  double det = 1;
  for (int64_t k = 0; k < n; ++k) {
    int64_t pivot = k;
    for (int64_t r = k + 1; r < n; ++r) {
      if (std::fabs(m[r * n + k]) > std::fabs(m[pivot * n + k])) pivot = r;
    }
    if (m[pivot * n + k] == 0) return 0;
    if (pivot != k) {
      std::swap_ranges(m.begin() + pivot * n, m.begin() + (pivot + 1) * n, m.begin() + k * n);
      det = -det;
    }
    det *= m[k * n + k];
    for (int64_t r = k + 1; r < n; ++r) {
      const double f = m[r * n + k] / m[k * n + k];
      for (int64_t j = k; j < n; ++j) m[r * n + j] -= f * m[k * n + j];
    }
  }
  return det;
}

std::vector<HostTensor> EvaluateDet(const EvalContext& c) {
  HostTensor y(c.output_types[0]);
  const int64_t n = c.inputs[0]->shape().back();
  const std::vector<double> x = c.inputs[0]->ToDoubles();
  for (int64_t i = 0; i < y.size(); ++i) y.Set(i, Det({x.begin() + i * n * n, x.begin() + (i + 1) * n * n}, n));
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
       .precision = Precision::kFloat32},
      {.name = "Cofactor", .inputs = {1, 1}, .infer = CofactorTypes, .precision = Precision::kFloat32},
  };
  return *rows;
}

}  // namespace onnxtrain
