// Computes determinants and cofactors of square matrices in double precision by LU with full pivoting (Eigen).
#include <Eigen/LU>
#include <optional>

#include "backends/cpu/kernels/leading_directions.h"
#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/runtime/kernel.h"

namespace onnxtrain::cpu {
namespace {

template <typename T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Factors matrices [n, n] in memory that it keeps between calls.
class Factorization {
 public:
  explicit Factorization(int64_t n) : n_(n), lu_(n, n), x_(n, n), adjugate_(n, n) {}

  // Returns the factorization of the calling thread. Allocates if n differs from the previous call.
  static Factorization& ForSize(int64_t n) {
    thread_local std::optional<Factorization> kept;
    if (!kept.has_value() || kept->n_ != n) kept.emplace(n);
    return *kept;
  }

  template <typename T>
  double Determinant(const T* x) {
    if (n_ == 0) return 1;
    Factor(x);
    return lu_.determinant();
  }

  // With P·x·Q = L·U, the adjugate of x is ±Q·adj(U)·L⁻¹·P. The adjugate of U = [V u; 0 s] is
  // det V·[s·V⁻¹, −V⁻¹u; 0, 1], which divides by a pivot of 0 only if all cofactors are 0.
  template <typename T>
  void Cofactors(const T* x, T* y) {
    Factor(x);
    const auto& lu = lu_.matrixLU();
    const double det = lu_.permutationP().determinant() * lu_.permutationQ().determinant() *
                       lu.diagonal().head(n_ - 1).prod(),
                 s = lu(n_ - 1, n_ - 1);
    Eigen::Map<RowMajor<T>> cofactors(y, n_, n_);
    if (det == 0) return cofactors.setZero(), void();
    adjugate_ = lu_.permutationP();
    lu.template triangularView<Eigen::UnitLower>().solveInPlace(adjugate_);
    auto top = adjugate_.topRows(n_ - 1);
    top *= s;
    top.noalias() -= lu.col(n_ - 1).head(n_ - 1) * adjugate_.row(n_ - 1);
    lu.topLeftCorner(n_ - 1, n_ - 1).template triangularView<Eigen::Upper>().solveInPlace(top);
    x_.noalias() = lu_.permutationQ() * adjugate_;
    cofactors = (det * x_).transpose().template cast<T>();
  }

 private:
  template <typename T>
  void Factor(const T* x) {
    x_ = Eigen::Map<const RowMajor<T>>(x, n_, n_).template cast<double>();
    lu_.compute(x_);
  }

  int64_t n_;
  Eigen::FullPivLU<Eigen::MatrixXd> lu_;
  Eigen::MatrixXd x_, adjugate_;
};

absl::StatusOr<Kernel> PrepareDet(const KernelContext& c) {
  const int64_t n = c.in().shape.back(), count = c.out().elements();
  return ForReal(c.in().dtype, [&]<typename T>(T) {
    return Kernel{.run = [=](const Args& args) {
      for (int64_t i = 0; i < count; ++i)
        args.out<T>()[i] = static_cast<T>(Factorization::ForSize(n).Determinant(args.in<T>() + i * n * n));
    }};
  });
}

absl::StatusOr<Kernel> PrepareCofactor(const KernelContext& c) {
  const int64_t n = c.in().shape.back(), count = n == 0 ? 0 : c.in().elements() / (n * n);
  return ForReal(c.in().dtype, [&]<typename T>(T) {
    return Kernel{.run = [=](const Args& args) {
      for (int64_t i = 0; i < count; ++i)
        Factorization::ForSize(n).Cofactors(args.in<T>() + i * n * n, args.out<T>() + i * n * n);
    }};
  });
}

}  // namespace

std::span<const KernelRow> DeterminantKernels() {
  static constexpr KernelRow kRows[] = {
      {"Det", PrepareDet, kReals},
      {"Cofactor", PrepareCofactor, kReals},
      {"LeadingDirections", PrepareLeadingDirections, kReals},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
