#include "optim/record/adapter_summary.h"

#include <Eigen/QR>
#include <Eigen/SVD>
#include <algorithm>

namespace onnxtrain {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Matrix ToMatrix(const HostTensor& tensor) {
  Matrix matrix(tensor.shape()[0], tensor.shape()[1]);
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

}  // namespace

std::vector<AdapterSummary> SummarizeAdapters(const std::vector<LowRankUpdate>& updates,
                                              const std::map<std::string, HostTensor>& weights) {
  const auto find = [&](const std::string& name, const HostTensor& initial) {
    const auto trained = weights.find(name);
    return trained == weights.end() ? initial : trained->second;
  };
  std::vector<AdapterSummary> adapters;
  for (const LowRankUpdate& update : updates) {
    const HostTensor a = find(update.a_name(), update.a), b = find(update.b_name(), update.b);
    adapters.push_back({.module = update.module,
                        .rank = update.rank(),
                        .inputs = a.shape()[1],
                        .outputs = b.shape()[0],
                        .singular_values = FindSingularValues(a, b, update.scale)});
  }
  return adapters;
}

}  // namespace onnxtrain
