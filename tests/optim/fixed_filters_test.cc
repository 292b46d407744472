// Filters of formulas, and weights that look like them.
#include "optim/step/fixed_tables.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

namespace onnxtrain {
namespace {

constexpr double kPi = std::numbers::pi;

HostTensor Matrix(Shape shape, const std::function<double(int64_t row, int64_t column)>& value) {
  HostTensor tensor({DType::kFloat32, std::move(shape)});
  const int64_t rows = tensor.shape()[0], columns = tensor.size() / rows;
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.Set(i, value(i / columns, i % columns));
  return tensor;
}

HostTensor Transposed(const HostTensor& tensor) {
  const int64_t rows = tensor.shape()[0], columns = tensor.size() / rows;
  return Matrix({columns, rows}, [&](int64_t r, int64_t c) { return tensor.At(c * columns + r); });
}

// Numbers without a pattern, as initializers draw them.
double Drawn(int64_t row, int64_t column) {
  const double i = static_cast<double>(row * 1009 + column + 1);
  return std::sin(i * i) * 0.2;
}

HostTensor Drawn(Shape shape) {
  return Matrix(std::move(shape), [](int64_t r, int64_t c) { return Drawn(r, c); });
}

double Hann(int64_t n, int64_t size) {
  return 0.5 - 0.5 * std::cos(2 * kPi * static_cast<double>(n) / static_cast<double>(size));
}

double Angle(int64_t k, int64_t n, int64_t size) {
  return 2 * kPi * static_cast<double>(k * n) / static_cast<double>(size);
}

// The short-time Fourier transform as a convolution: [2·(size/2 + 1), 1, size].
HostTensor FourierBasis(int64_t size, bool in_turn) {
  const int64_t bins = size / 2 + 1;
  return Matrix({2 * bins, 1, size}, [=](int64_t r, int64_t n) {
    const int64_t k = in_turn ? r / 2 : r % bins;
    const bool sine = in_turn ? r % 2 == 1 : r >= bins;
    return (sine ? -std::sin(Angle(k, n, size)) : std::cos(Angle(k, n, size))) * Hann(n, size);
  });
}

HostTensor MelBank(int64_t bands, int64_t bins) {
  return Matrix({bands, bins}, [=](int64_t b, int64_t f) {
    const auto edge = [&](int64_t i) { return std::pow(static_cast<double>(bins), static_cast<double>(i) / 12) + 2; };
    const double x = static_cast<double>(f), low = edge(b), middle = edge(b + 1), high = edge(b + 2);
    return std::max(0.0, std::min((x - low) / (middle - low), (high - x) / (high - middle)));
  });
}

TEST(FixedFilters, FourierTransformsAreNoWeights) {
  for (const int64_t size : {16, 400}) {
    for (const bool in_turn : {false, true}) {
      HostTensor basis = FourierBasis(size, in_turn);
      EXPECT_TRUE(IsFrequencyBasis(basis)) << size << " " << in_turn;
      EXPECT_TRUE(IsFrequencyBasis(Transposed(basis))) << size << " " << in_turn;
      basis.Set(size * 5 + size / 2, 0.7);
      EXPECT_FALSE(IsFrequencyBasis(basis)) << size << " " << in_turn;
    }
  }
  // Sines of multiples of π are rounding errors that grow.
  HostTensor rounded = FourierBasis(16, false);
  for (int64_t k = 0; k < 9; ++k) rounded.Set((9 + k) * 16 + 8, 1e-8 * static_cast<double>(k * k));
  EXPECT_TRUE(IsFrequencyBasis(rounded));
  const HostTensor cosines = Matrix({9, 16}, [](int64_t k, int64_t n) { return std::cos(Angle(k, n, 16)); });
  EXPECT_TRUE(IsFrequencyBasis(cosines));
}

// The first row of the orthonormal DCT has a factor of its own.
TEST(FixedFilters, CosineTransformsAreNoWeights) {
  const HostTensor dct = Matrix({13, 40}, [](int64_t k, int64_t n) {
    const double scale = k == 0 ? std::sqrt(1.0 / 40) : std::sqrt(2.0 / 40);
    return scale * std::cos(kPi / 40 * (static_cast<double>(n) + 0.5) * static_cast<double>(k));
  });
  EXPECT_TRUE(IsFrequencyBasis(dct));
  EXPECT_TRUE(IsFrequencyBasis(Transposed(dct)));
}

TEST(FixedFilters, DrawnAndFilledWeightsHaveNoFrequencies) {
  EXPECT_FALSE(IsFrequencyBasis(Drawn({18, 16})));
  EXPECT_FALSE(IsFrequencyBasis(HostTensor({DType::kFloat32, {18, 16}})));
  EXPECT_FALSE(IsFrequencyBasis(HostTensor::Filled({DType::kFloat32, {18, 16}}, 1)));
  // Equal rows, as the decays of a state space (Gu and Dao, 2024, "Mamba").
  EXPECT_FALSE(IsFrequencyBasis(Matrix({32, 16}, [](int64_t, int64_t c) { return -static_cast<double>(c + 1); })));
  EXPECT_FALSE(IsFrequencyBasis(Matrix({32, 16}, [](int64_t, int64_t c) { return Drawn(0, c); })));
}

TEST(FixedFilters, MelBanksAreNoWeights) {
  const HostTensor bank = MelBank(9, 40);
  EXPECT_TRUE(IsBandFilterBank(bank));
  EXPECT_TRUE(IsBandFilterBank(Transposed(bank)));
  const auto diagonal = [](int64_t r, int64_t c) { return r == c ? 0.5 : 0; };
  EXPECT_FALSE(IsBandFilterBank(Matrix({16, 16}, diagonal)));
  EXPECT_FALSE(IsBandFilterBank(Drawn({9, 40})));
  EXPECT_FALSE(IsBandFilterBank(HostTensor({DType::kFloat32, {9, 40}})));
  const HostTensor pruned = Matrix({9, 40}, [](int64_t r, int64_t c) { return std::max(0.0, Drawn(r, c)); });
  EXPECT_FALSE(IsBandFilterBank(pruned));
}

TEST(FixedFilters, KernelsOfIntegersAreNoWeights) {
  const HostTensor sobel = Matrix({2, 1, 3, 3}, [](int64_t k, int64_t i) {
    const int64_t along = k == 0 ? i % 3 : i / 3, across = k == 0 ? i / 3 : i % 3;
    return static_cast<double>((1 - along) * (across == 1 ? 2 : 1)) / 8;
  });
  EXPECT_TRUE(HasIntegerKernels(sobel));
  EXPECT_FALSE(HasIntegerKernels(Drawn({2, 1, 3, 3})));
  EXPECT_FALSE(HasIntegerKernels(HostTensor::Filled({DType::kFloat32, {2, 1, 3, 3}}, 1)));
  EXPECT_FALSE(HasIntegerKernels(Matrix({1, 1, 3, 3}, [](int64_t, int64_t i) { return i == 4 ? 1 : 0; })));
  const auto signs = [](int64_t r, int64_t c) { return (r * 5 + c) % 3 - 1; };
  EXPECT_TRUE(HasIntegerKernels(Matrix({4, 1, 3, 3}, signs)));
  EXPECT_FALSE(HasIntegerKernels(Matrix({4, 9, 1, 1}, signs))) << "of a ternary network";
}

TEST(FixedFilters, KernelsThatBlurAreNoWeights) {
  HostTensor blur =
      Matrix({4, 1, 3, 3}, [](int64_t, int64_t i) { return std::exp(-static_cast<double>(i % 3 + i / 3)); });
  EXPECT_TRUE(RepeatsOneKernel(blur));
  blur.Set(11, 0.5);
  EXPECT_FALSE(RepeatsOneKernel(blur));
  EXPECT_FALSE(RepeatsOneKernel(HostTensor::Filled({DType::kFloat32, {4, 1, 3, 3}}, 1.0 / 9)));
  EXPECT_FALSE(RepeatsOneKernel(Matrix({4, 1, 3, 3}, [](int64_t, int64_t i) { return i == 4 ? 1 : 0; })));
  EXPECT_FALSE(RepeatsOneKernel(Drawn({1, 1, 3, 3})));
}

// Upsampling is started as interpolation, and trained (Long et al., 2015).
TEST(FixedFilters, AreThoseOfConvolutionsOnly) {
  const HostTensor kernel = Matrix({4, 1, 4, 4}, [](int64_t, int64_t i) {
    const double weights[] = {0.25, 0.75, 0.75, 0.25};
    return weights[i % 4] * weights[i / 4];
  });
  EXPECT_EQ(FindFixedTable({.name = "up", .value = kernel, .consumer = "ConvTranspose /up"}), FixedTable::kNone);
  EXPECT_EQ(FindFixedTable({.name = "down", .value = kernel, .consumer = "Conv /down"}), FixedTable::kFilters);
}

TEST(FixedTables, SlopesTimesDistancesAreNoWeights) {
  const auto slopes = [](int64_t head, int64_t p) {
    return std::exp2(-static_cast<double>(head)) * static_cast<double>(p - 7);
  };
  HostTensor table = Matrix({4, 1, 8}, slopes);
  EXPECT_TRUE(IsSlopeTable(table));
  table.Set(12, 0.3);
  EXPECT_FALSE(IsSlopeTable(table));
  EXPECT_FALSE(IsSlopeTable(Drawn({4, 8})));
  EXPECT_FALSE(IsSlopeTable(HostTensor({DType::kFloat32, {4, 8}})));
  EXPECT_FALSE(IsSlopeTable(Matrix({32, 16}, [](int64_t, int64_t c) { return -static_cast<double>(c + 1); })));
}

}  // namespace
}  // namespace onnxtrain
