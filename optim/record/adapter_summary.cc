#include "optim/record/adapter_summary.h"

#include <Eigen/QR>
#include <Eigen/SVD>
#include <algorithm>
#include <functional>
#include <iterator>

#include "frontend/onnx/recover/updated_weight.h"

namespace onnxtrain {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// The weight of a convolution is one row for each output.
Matrix ToMatrix(const HostTensor& tensor) {
  Matrix matrix(tensor.shape()[0], tensor.size() / tensor.shape()[0]);
  tensor.Read(0, {matrix.data(), static_cast<size_t>(matrix.size())});
  return matrix;
}

// The triangular factor of a QR decomposition.
Matrix TriangularFactor(const Matrix& matrix) {
  const Eigen::HouseholderQR<Matrix> qr(matrix);
  return qr.matrixQR().topRows(std::min(matrix.rows(), matrix.cols())).template triangularView<Eigen::Upper>();
}

// Returns the singular values of scale·B·A from those of R_B·R_Aᵀ, which has the extents of the rank.
std::vector<double> FindSingularValues(const HostTensor& a, const HostTensor& b, double scale) {
  const Matrix core = TriangularFactor(ToMatrix(b)) * TriangularFactor(ToMatrix(a).transpose()).transpose();
  const Eigen::VectorXd values = Eigen::JacobiSVD<Matrix>(core).singularValues() * std::abs(scale);
  return {values.data(), values.data() + values.size()};
}

// Returns those of the matrices of all experts, the largest first.
std::vector<double> FindSingularValues(const HostTensor& a, const HostTensor& b, const LowRankUpdate& update) {
  if (update.experts == 0) return FindSingularValues(a, b, update.scale);
  std::vector<double> all;
  for (int64_t e = 0; e < update.experts; ++e) {
    const auto [rows, columns] = FactorsOfExpert(a, b, update.experts, e);
    std::ranges::copy(FindSingularValues(rows, columns, update.scale), std::back_inserter(all));
  }
  std::ranges::sort(all, std::greater<>());
  return all;
}

}  // namespace

std::vector<AdapterSummary> SummarizeAdapters(const std::vector<LowRankUpdate>& updates,
                                              const std::map<std::string, HostTensor>& weights) {
  std::vector<AdapterSummary> adapters;
  for (const LowRankUpdate& update : updates) {
    const auto [a, b] = WholeFactors(update, weights);
    adapters.push_back({.module = update.module,
                        .rank = update.rank(),
                        .inputs = a.size() / a.shape()[0],
                        .outputs = b.shape()[0],
                        .singular_values = FindSingularValues(a, b, update)});
  }
  return adapters;
}

}  // namespace onnxtrain
