// Finds leading singular directions by subspace iteration (Halko, Martinsson & Tropp, Finding Structure with
// Randomness, 2011, algorithm 4.4) from the previous directions, and the singular vectors within the subspace by an
// eigendecomposition (Eigen).
#include "backends/cpu/kernels/leading_directions.h"

#include <dnnl.h>

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/ops/leading_directions.h"

namespace onnxtrain::cpu {
namespace {

constexpr int kIterations = 6;
constexpr int64_t kMore = 16;  // directions beyond the rank, for faster convergence

// Computes C [m, n] = A·B for row-major matrices, of which either may be transposed.
void MultiplyMatrices(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float* a, const float* b,
                      float* c) {
  dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, 1, a, trans_a ? m : k, b, trans_b ? k : n, 0, c, n);
}

void MultiplyMatrices(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const double* a, const double* b,
                      double* c) {
  Parallel(m, n * k, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::fill_n(c + i * n, n, 0);
      for (int64_t p = 0; p < k; ++p) {
        const double factor = trans_a ? a[p * m + i] : a[i * k + p];
        for (int64_t j = 0; j < n; ++j) c[i * n + j] += factor * (trans_b ? b[j * k + p] : b[p * n + j]);
      }
    }
  });
}

template <typename T>
T DotProduct(const T* a, const T* b, int64_t n) {
  constexpr int64_t kLanes = 16;
  std::array<T, kLanes> sums{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  T sum = 0;
  for (; i < n; ++i) sum += a[i] * b[i];
  for (T lane : sums) sum += lane;
  return sum;
}

// Divides by the largest magnitude, since products of small gradients underflow, and returns it.
template <typename T>
T ScaleToOne(T* x, int64_t n) {
  T most = 0;
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::abs(x[i]));
  for (int64_t i = 0; i < n && most > 0; ++i) x[i] /= most;
  return most;
}

// Makes rows [count, n] orthonormal, by the modified Gram–Schmidt process; linearly dependent ones may become 0.
template <typename T>
void OrthonormalizeRows(int64_t count, int64_t n, T* rows) {
  for (int64_t i = 0; i < count; ++i) {
    T* row = rows + i * n;
    ScaleToOne(row, n);
    const T norm = std::sqrt(DotProduct(row, row, n));
    if (norm == 0) continue;
    for (int64_t e = 0; e < n; ++e) row[e] /= norm;
    Parallel(count - i - 1, 4 * n, [&](int64_t begin, int64_t end) {
      for (int64_t j = i + 1 + begin; j < i + 1 + end; ++j) {
        T* other = rows + j * n;
        const T part = DotProduct(row, other, n);
        for (int64_t e = 0; e < n; ++e) other[e] -= part * row[e];
      }
    });
  }
}

// Returns a fixed number in [−1, 1).
double FixedNoise(uint64_t index) {
  uint64_t z = (index + 1) * 0x9E3779B97F4A7C15ull;  // splitmix64
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return static_cast<double>(static_cast<int64_t>(z ^ (z >> 31))) * 0x1p-63;
}

// Rows of the subspace are directions: vectors of the shorter side of x.
template <typename T>
class DirectionFinder {
 public:
  DirectionFinder(const Shape& x, int64_t rank)
      : columns_(ProjectsColumns(x)),
        side_(columns_ ? x[1] : x[0]),
        other_(columns_ ? x[0] : x[1]),
        rank_(rank),
        count_(std::min(rank + kMore, side_)) {}

  size_t workspace() const { return sizeof(T) * static_cast<size_t>(count_ * (side_ + other_ + count_)); }

  // Writes [side, rank]. Returns false if x is not finite.
  bool Find(const T* x, const T* previous, T* workspace, T* y) const {
    T *rows = workspace, *images = rows + count_ * side_, *square = images + count_ * other_;
    Start(previous, rows);
    for (int i = 0; i < kIterations; ++i) {
      OrthonormalizeRows(count_, side_, rows);
      MultiplyMatrices(false, columns_, count_, other_, side_, rows, x, images);
      if (ScaleToOne(images, count_ * other_) == 0) break;  // x is 0: any directions do
      MultiplyMatrices(false, !columns_, count_, side_, other_, images, x, rows);
    }
    for (int pass = 0; pass < 2; ++pass) OrthonormalizeRows(count_, side_, rows);
    MultiplyMatrices(false, columns_, count_, other_, side_, rows, x, images);
    ScaleToOne(images, count_ * other_);
    MultiplyMatrices(false, true, count_, count_, other_, images, images, square);
    if (!Diagonalize(square)) return false;
    MultiplyMatrices(true, false, side_, rank_, count_, rows, square, y);
    MakeLargestPositive(y);
    return true;
  }

 private:
  void Start(const T* previous, T* rows) const {
    const double noise = 0.1 / std::sqrt(static_cast<double>(side_));
    for (int64_t d = 0; d < count_; ++d) {
      for (int64_t i = 0; i < side_; ++i) {
        const T old = d < rank_ ? previous[i * rank_ + d] : T(0);
        rows[d * side_ + i] = old + static_cast<T>(noise * FixedNoise(d * side_ + i));
      }
    }
  }

  // Replaces a symmetric matrix by its leading eigenvectors [count, rank].
  bool Diagonalize(T* square) const {
    using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    const Eigen::MatrixXd matrix = Eigen::Map<const Matrix>(square, count_, count_).template cast<double>();
    if (!matrix.allFinite()) return false;
    const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(matrix);  // in ascending order
    Eigen::Map<Matrix>(square, count_, rank_) =
        solver.eigenvectors().rightCols(rank_).rowwise().reverse().template cast<T>();
    return true;
  }

  void MakeLargestPositive(T* y) const {
    for (int64_t d = 0; d < rank_; ++d) {
      T largest = 0;
      for (int64_t i = 0; i < side_; ++i) {
        if (std::abs(y[i * rank_ + d]) > std::abs(largest)) largest = y[i * rank_ + d];
      }
      if (largest >= 0) continue;
      for (int64_t i = 0; i < side_; ++i) y[i * rank_ + d] *= -1;
    }
  }

  bool columns_;
  int64_t side_, other_, rank_, count_;
};

}  // namespace

absl::StatusOr<Kernel> PrepareLeadingDirections(const KernelContext& c) {
  const int64_t every = c.attrs().Int("every"), elements = c.out().elements(), rank = c.out().shape[1];
  return ForReal(c.in().dtype, [&]<typename T>(T) {
    const DirectionFinder<T> finder(c.in().shape, rank);
    const auto run = [=](const Args& args) {
      const T* previous = args.in<T>(1);
      const bool due = elements > 0 && static_cast<int64_t>(*args.in<T>(2)) % every == 0;
      if (!due || !finder.Find(args.in<T>(), previous, static_cast<T*>(args.workspace), args.out<T>()))
        std::copy_n(previous, elements, args.out<T>());
    };
    return Kernel{.run = run, .workspace = finder.workspace()};
  });
}

}  // namespace onnxtrain::cpu
