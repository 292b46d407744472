// Determinants and cofactors of square matrices, in double precision, by elimination with full pivoting.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "backends/cpu/kernel.h"
#include "backends/cpu/kernels/typed.h"

namespace onnxtrain::cpu {
namespace {

// m [n, width], width ≥ n: the first n columns are the matrix. Rows and columns are reordered.
struct Elimination {
  double* m;
  int64_t n, width;
  int64_t *rows, *columns;  // what was where: [n] each
  double sign = 1;

  double& At(int64_t row, int64_t column) { return m[row * width + column]; }

  void SwapRows(int64_t a, int64_t b) {
    if (a == b) return;
    std::swap_ranges(m + a * width, m + (a + 1) * width, m + b * width);
    std::swap(rows[a], rows[b]);
    sign = -sign;
  }
  void SwapColumns(int64_t a, int64_t b) {
    if (a == b) return;
    for (int64_t r = 0; r < n; ++r) std::swap(At(r, a), At(r, b));
    std::swap(columns[a], columns[b]);
    sign = -sign;
  }

  void BringLargestTo(int64_t k) {
    int64_t row = k, column = k;
    for (int64_t r = k; r < n; ++r) {
      for (int64_t c = k; c < n; ++c) {
        if (std::fabs(At(r, c)) > std::fabs(At(row, column))) row = r, column = c;
      }
    }
    SwapRows(k, row);
    SwapColumns(k, column);
  }

  // To an upper triangle; the further columns become L⁻¹ times what they were.
  void Run() {
    std::iota(rows, rows + n, 0);
    std::iota(columns, columns + n, 0);
    for (int64_t k = 0; k < n; ++k) {
      BringLargestTo(k);
      if (At(k, k) == 0) return;
      for (int64_t r = k + 1; r < n; ++r) {
        const double f = At(r, k) / At(k, k);
        for (int64_t c = k; c < width; ++c) At(r, c) -= f * At(k, c);
      }
    }
  }

  double Diagonal(int64_t count) {
    double product = 1;
    for (int64_t k = 0; k < count; ++k) product *= At(k, k);
    return product;
  }
};

// Doubles for the matrix, then two orders.
size_t WorkspaceOf(int64_t n, int64_t width) { return (n * width + 2 * n) * sizeof(double); }

template <typename T>
Elimination Eliminate(const T* x, int64_t n, int64_t width, void* workspace) {
  auto* m = static_cast<double*>(workspace);
  auto* orders = reinterpret_cast<int64_t*>(m + n * width);
  for (int64_t r = 0; r < n; ++r) {
    std::copy_n(x + r * n, n, m + r * width);
    std::fill_n(m + r * width + n, width - n, 0.0);
  }
  return {m, n, width, orders, orders + n};
}

template <typename T>
absl::StatusOr<Kernel> DetKernel(const KernelContext& c) {
  const int64_t n = c.in().shape.back(), count = c.out().elements();
  return Kernel{.run =
                    [=](const Args& args) {
                      for (int64_t i = 0; i < count; ++i) {
                        Elimination e = Eliminate(args.in<T>() + i * n * n, n, n, args.workspace);
                        e.Run();
                        args.out<T>()[i] = static_cast<T>(e.sign * e.Diagonal(n));
                      }
                    },
                .workspace = WorkspaceOf(n, n)};
}

// With the rows and columns reordered, the matrix is L·U and its adjugate adj(U)·L⁻¹. Write U as [V u; 0 s]: its
// adjugate is det V·[s·V⁻¹, −V⁻¹u; 0, 1], which divides by no pivot that is 0 unless all cofactors are.
template <typename T>
void Cofactors(const T* x, int64_t n, void* workspace, T* y) {
  Elimination e = Eliminate(x, n, 2 * n, workspace);
  for (int64_t r = 0; r < n; ++r) e.At(r, n + r) = 1;
  e.Run();
  const double det = e.sign * e.Diagonal(n - 1), s = e.At(n - 1, n - 1);
  std::fill_n(y, n * n, T(0));
  if (det == 0) return;
  for (int64_t column = n; column < 2 * n; ++column) {
    const double last = e.At(n - 1, column);
    for (int64_t r = n - 1; r-- > 0;) {
      double sum = s * e.At(r, column) - e.At(r, n - 1) * last;
      for (int64_t k = r + 1; k < n - 1; ++k) sum -= e.At(r, k) * e.At(k, column);
      e.At(r, column) = sum / e.At(r, r);
    }
    for (int64_t r = 0; r < n; ++r) y[(column - n) * n + e.columns[r]] = static_cast<T>(det * e.At(r, column));
  }
}

template <typename T>
absl::StatusOr<Kernel> CofactorKernel(const KernelContext& c) {
  const int64_t n = c.in().shape.back(), count = n == 0 ? 0 : c.in().elements() / (n * n);
  return Kernel{.run =
                    [=](const Args& args) {
                      for (int64_t i = 0; i < count; ++i)
                        Cofactors(args.in<T>() + i * n * n, n, args.workspace, args.out<T>() + i * n * n);
                    },
                .workspace = WorkspaceOf(n, 2 * n)};
}

absl::StatusOr<Kernel> PrepareDet(const KernelContext& c) {
  return ForReal(c.in().dtype, [&]<typename T>(T) { return DetKernel<T>(c); });
}
absl::StatusOr<Kernel> PrepareCofactor(const KernelContext& c) {
  return ForReal(c.in().dtype, [&]<typename T>(T) { return CofactorKernel<T>(c); });
}

}  // namespace

std::span<const KernelRow> DeterminantKernels() {
  static constexpr KernelRow kRows[] = {
      {"Det", PrepareDet, kReals},
      {"Cofactor", PrepareCofactor, kReals},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
