// Replays gradients through galore_adamw, against the algorithm of the paper (Zhao et al., GaLore, arXiv:2403.03507,
// algorithms 1 and 2, with Adam's moments) in plain loops over doubles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "optim/step/rules/rule.h"
#include "tests/optim/replay.h"

namespace onnxtrain {
namespace {

// A row-major matrix.
struct Matrix {
  int64_t rows, columns;
  Vector data = Vector(rows * columns);

  double& At(int64_t i, int64_t j) { return data[i * columns + j]; }
  double At(int64_t i, int64_t j) const { return data[i * columns + j]; }
};

Matrix Transposed(const Matrix& x) {
  Matrix y{x.columns, x.rows};
  for (int64_t i = 0; i < y.rows; ++i) {
    for (int64_t j = 0; j < y.columns; ++j) y.At(i, j) = x.At(j, i);
  }
  return y;
}

Matrix Product(const Matrix& a, const Matrix& b) {
  Matrix y{a.rows, b.columns};
  for (int64_t i = 0; i < y.rows; ++i) {
    for (int64_t j = 0; j < y.columns; ++j) {
      for (int64_t k = 0; k < a.columns; ++k) y.At(i, j) += a.At(i, k) * b.At(k, j);
    }
  }
  return y;
}

// Rotates columns p and q of x and of v so that those of x become orthogonal (one-sided Jacobi).
void Rotate(int64_t p, int64_t q, Matrix* x, Matrix* v) {
  double pp = 0, qq = 0, pq = 0;
  for (int64_t i = 0; i < x->rows; ++i) {
    pp += x->At(i, p) * x->At(i, p);
    qq += x->At(i, q) * x->At(i, q);
    pq += x->At(i, p) * x->At(i, q);
  }
  if (pq == 0) return;
  const double angle = 0.5 * std::atan2(2 * pq, pp - qq), c = std::cos(angle), s = std::sin(angle);
  for (Matrix* m : {x, v}) {
    for (int64_t i = 0; i < m->rows; ++i) {
      const double a = m->At(i, p), b = m->At(i, q);
      m->At(i, p) = c * a + s * b;
      m->At(i, q) = c * b - s * a;
    }
  }
}

// Returns the leading right singular vectors [columns, rank]; the largest component of each is positive.
Matrix LeadingRightVectors(Matrix x, int64_t rank) {
  Matrix v{x.columns, x.columns};
  for (int64_t i = 0; i < v.rows; ++i) v.At(i, i) = 1;
  for (int sweep = 0; sweep < 60; ++sweep) {
    for (int64_t p = 0; p < x.columns; ++p) {
      for (int64_t q = p + 1; q < x.columns; ++q) Rotate(p, q, &x, &v);
    }
  }
  std::vector<std::pair<double, int64_t>> order;
  for (int64_t j = 0; j < x.columns; ++j) {
    double square = 0;
    for (int64_t i = 0; i < x.rows; ++i) square += x.At(i, j) * x.At(i, j);
    order.emplace_back(-square, j);
  }
  std::ranges::sort(order);
  Matrix y{x.columns, rank};
  for (int64_t j = 0; j < rank; ++j) {
    double largest = 0;
    for (int64_t i = 0; i < y.rows; ++i) {
      const double e = v.At(i, order[j].second);
      if (std::abs(e) > std::abs(largest)) largest = e;
    }
    for (int64_t i = 0; i < y.rows; ++i) y.At(i, j) = v.At(i, order[j].second) * (largest < 0 ? -1 : 1);
  }
  return y;
}

Matrix RandomMatrix(int64_t rows, int64_t columns, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Matrix x{rows, columns};
  for (double& e : x.data) e = normal(random);
  return x;
}

// A gradient whose singular values fall by about `fall` each.
Matrix GradientOfLowRank(int64_t rows, int64_t columns, double fall, uint32_t seed) {
  const int64_t side = std::min(rows, columns);
  Matrix left = RandomMatrix(rows, side, 2 * seed + 1);
  for (int64_t j = 0; j < side; ++j) {
    for (int64_t i = 0; i < rows; ++i) left.At(i, j) *= std::pow(fall, static_cast<double>(j));
  }
  return Product(left, RandomMatrix(side, columns, 2 * seed + 2));
}

// The state of a projected weight.
struct Reference {
  GaloreSpec galore;
  double lr, decay;
  Matrix param;
  Matrix basis{0, 0}, m{0, 0}, v{0, 0};

  void Step(const Matrix& gradient, int t) {  // t from 1
    const bool columns = gradient.rows >= gradient.columns;
    if ((t - 1) % galore.every == 0)
      basis = LeadingRightVectors(columns ? gradient : Transposed(gradient), galore.rank);
    const Matrix low = columns ? Product(gradient, basis) : Product(Transposed(basis), gradient);
    if (t == 1) m = v = Matrix{low.rows, low.columns};
    Matrix direction{low.rows, low.columns};
    for (size_t i = 0; i < low.data.size(); ++i) {
      const double g = low.data[i];
      m.data[i] = 0.9 * m.data[i] + 0.1 * g;
      v.data[i] = 0.999 * v.data[i] + 0.001 * g * g;
      direction.data[i] = m.data[i] / (1 - std::pow(0.9, t)) / (std::sqrt(v.data[i] / (1 - std::pow(0.999, t))) + 1e-8);
    }
    const Matrix update = columns ? Product(direction, Transposed(basis)) : Product(basis, direction);
    for (size_t i = 0; i < param.data.size(); ++i)
      param.data[i] = param.data[i] * (1 - lr * decay) - lr * galore.scale * update.data[i];
  }
};

void ExpectFollowsPaper(const char* backend, DType dtype, const Shape& shape) {
  const GaloreSpec galore{.rank = 3, .every = 5, .scale = 0.5};
  const OptimizerSpec spec{.rule = "galore_adamw", .lr = 0.02, .galore = galore, .max_grad_norm = 0};
  Reference reference{.galore = galore, .lr = 0.02, .decay = 0.1, .param = RandomMatrix(shape[0], shape[1], 99)};
  Replay replay(backend, {dtype, spec, {}}, 0.1, shape, reference.param.data);
  for (int t = 1; t <= 23; ++t) {
    const Matrix gradient = GradientOfLowRank(shape[0], shape[1], 0.4, t);
    replay.Step(gradient.data);
    reference.Step(gradient, t);
    const HostTensor got = replay.Param();
    const double tolerance = dtype == DType::kFloat64 ? 1e-9 : 1e-4;
    for (int64_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got.At(i), reference.param.data[i], tolerance) << backend << ToString(dtype) << " step " << t;
  }
  const int64_t side = std::min(shape[0], shape[1]), other = std::max(shape[0], shape[1]);
  EXPECT_EQ(replay.Get(MomentName("exp_avg", "w")).size(), 3 * other);
  EXPECT_EQ(replay.Get(MomentName("projection", "w")).size(), 3 * side);
}

TEST(Galore, FollowsThePaper) {
  for (const char* backend : {"cpu", "torch"}) {
    for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
      for (const Shape& shape : {Shape{7, 5}, {5, 9}, {6, 6}}) ExpectFollowsPaper(backend, dtype, shape);
    }
  }
}

// Vectors, matrices with a side of at most the rank, and tables have full moments.
TEST(Galore, UpdatesOtherWeightsByAdamW) {
  for (const bool table : {false, true}) {
    OptimizerSpec spec{.rule = "galore_adamw", .lr = 0.02, .galore = {.rank = table ? 2 : 5}, .max_grad_norm = 0};
    if (table) spec.tables = {"w"};
    const Matrix start = RandomMatrix(7, 5, 1);
    Replay replay("cpu", {DType::kFloat64, spec, {}}, 0, {7, 5}, start.data);
    spec.rule = "adamw";
    Replay adamw("cpu", {DType::kFloat64, spec, {}}, 0, {7, 5}, start.data);
    for (uint32_t t = 0; t < 4; ++t) {
      const Matrix gradient = RandomMatrix(7, 5, 10 + t);
      replay.Step(gradient.data);
      adamw.Step(gradient.data);
    }
    const HostTensor got = replay.Param(), want = adamw.Param();
    for (int64_t i = 0; i < got.size(); ++i) EXPECT_DOUBLE_EQ(got.At(i), want.At(i));
  }
}

// The share of ‖G‖² in the projection of a larger gradient with a slow fall, against that of its singular vectors.
TEST(Galore, CapturesALargeGradientAsItsSingularVectorsDo) {
  constexpr int64_t kRank = 12;
  const auto share = [](const Matrix& gradient, const Matrix& basis) {
    const auto square = [](const Matrix& x) {
      return std::inner_product(x.data.begin(), x.data.end(), x.data.begin(), 0.0);
    };
    return square(Product(gradient, basis)) / square(gradient);
  };
  const OptimizerSpec spec{
      .rule = "galore_adamw", .lr = 0.02, .galore = {.rank = kRank, .every = 1}, .max_grad_norm = 0};
  Replay replay("cpu", {DType::kFloat32, spec, {}}, 0, {150, 90}, Vector(150 * 90));
  for (uint32_t t = 1; t <= 3; ++t) {
    const Matrix gradient = GradientOfLowRank(150, 90, 0.93, t);
    replay.Step(gradient.data);
    const HostTensor projection = replay.Get(MomentName("projection", "w"));
    Matrix basis{90, kRank};
    for (int64_t i = 0; i < projection.size(); ++i) basis.data[i] = projection.At(i);
    const Matrix square = Product(Transposed(basis), basis);
    for (int64_t i = 0; i < kRank; ++i) {
      for (int64_t j = 0; j < kRank; ++j) EXPECT_NEAR(square.At(i, j), i == j, 1e-4) << i << " " << j;
    }
    EXPECT_GT(share(gradient, basis), 0.995 * share(gradient, LeadingRightVectors(gradient, kRank))) << t;
  }
}

// Later gradients, before the next projection, must be able to change the weight.
TEST(Galore, ZerosHaveDirections) {
  const OptimizerSpec spec{.rule = "galore_adamw", .lr = 0.02, .galore = {.rank = 2, .every = 9}, .max_grad_norm = 0};
  for (const char* backend : {"cpu", "torch"}) {
    Replay replay(backend, {DType::kFloat32, spec, {}}, 0, {7, 5}, Vector(35));
    replay.Step(Vector(35));
    replay.Step(RandomMatrix(7, 5, 1).data);
    const Vector param = replay.Param().ToDoubles();
    EXPECT_GT(std::ranges::max(param), 0.001) << backend;
  }
}

TEST(Galore, SkippedUpdatesKeepTheProjection) {
  const OptimizerSpec spec{.rule = "galore_adamw", .lr = 0.02, .galore = {.rank = 2, .every = 1}, .max_grad_norm = 0};
  for (const char* backend : {"cpu", "torch"}) {
    Replay replay(backend, {DType::kFloat32, spec, {}}, 0, {7, 5}, Vector(35));
    replay.Step(RandomMatrix(7, 5, 1).data);
    const HostTensor projection = replay.Get(MomentName("projection", "w")), param = replay.Param();
    Vector bad = RandomMatrix(7, 5, 2).data;
    bad[3] = std::nan("");
    replay.Step(bad);
    EXPECT_TRUE(replay.Get(MomentName("projection", "w")) == projection);
    EXPECT_TRUE(replay.Param() == param);
  }
}

}  // namespace
}  // namespace onnxtrain
