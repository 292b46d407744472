// Resampling as products with dense matrices, GridSample as libtorch's, RoiAlign bin by bin, determinants.
#include <ATen/ops/grid_sampler.h>
#include <ATen/ops/linalg_det.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensordot.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "reference.h"
#include "vjp.h"

namespace onnxtrain::cases {
namespace {

double Cubic(double d, double a) {
  d = std::fabs(d);
  if (d <= 1) return (a + 2) * d * d * d - (a + 3) * d * d + 1;
  return d < 2 ? a * d * d * d - 5 * a * d * d + 8 * a * d - 4 * a : 0;
}

int64_t Nearest(double x, const std::string& rounding) {
  const double down = std::floor(x), rest = x - down;
  if (rounding == "floor" || rest == 0) return static_cast<int64_t>(down);
  if (rounding == "ceil") return static_cast<int64_t>(down) + 1;
  return static_cast<int64_t>(down) + (rest > 0.5 || (rest == 0.5 && rounding == "round_prefer_ceil"));
}

// Row o of the matrix [out, in] of one axis.
void FillRow(const Attrs& a, size_t axis, int64_t o, int64_t in, double* row) {
  const std::vector<double> p = a.Floats("position");
  const double x = (static_cast<double>(o) + p[4 * axis]) * p[4 * axis + 1] / p[4 * axis + 2] + p[4 * axis + 3];
  if (a.Int("zero_outside") && (x < 0 || x > static_cast<double>(in - 1))) return;
  const auto clamped = [&](int64_t i) { return std::min(std::max<int64_t>(i, 0), in - 1); };
  const std::string mode = a.String("mode");
  if (mode == "nearest") {
    const auto quotient =
        static_cast<float>((static_cast<double>(o) + p[4 * axis]) * p[4 * axis + 1] / p[4 * axis + 2]);
    row[clamped(Nearest(quotient + p[4 * axis + 3], a.String("rounding", "floor")))] = 1;
    return;
  }
  const double stretch = a.Floats("stretch")[axis];
  double sum = 0;
  for (int64_t i = -30; i < in + 30; ++i) {  // wider than any filter of the cases
    if (a.Int("exclude_outside") && i != clamped(i)) continue;
    const double d = (static_cast<double>(i) - x) / stretch;
    const double w = mode == "cubic" ? Cubic(d, a.Float("cubic_a")) : std::max(0.0, 1 - std::fabs(d));
    row[clamped(i)] += w;
    sum += w;
  }
  for (int64_t i = 0; i < in; ++i) row[i] /= sum;
}

at::Tensor Matrix(const Attrs& a, size_t axis, int64_t in) {
  const int64_t out = a.Ints("sizes")[axis];
  const at::Tensor m = at::zeros({out, in}, at::kDouble);
  for (int64_t o = 0; o < out; ++o) FillRow(a, axis, o, in, m.data_ptr<double>() + o * in);
  return m;
}

at::Tensor Resampled(at::Tensor x, const Attrs& a) {
  const std::vector<int64_t> axes = a.Ints("axes");
  for (size_t i = 0; i < axes.size(); ++i) {
    x = at::tensordot(x, Matrix(a, i, x.size(axes[i])), {axes[i]}, {1}).movedim(-1, axes[i]);
  }
  return x;
}

TensorVector ResampleGrad(const Operands& a) {
  std::vector<int64_t> shape = a[0].sizes().vec();
  const std::vector<int64_t> axes = a.attrs().Ints("axes"), from = a.attrs().Ints("input_sizes");
  for (size_t i = 0; i < axes.size(); ++i) shape[axes[i]] = from[i];
  if (axes.empty()) return {a[0] * 1.0};
  return {Vjp([&](const at::Tensor& x) { return Resampled(x, a.attrs()); }, at::zeros(shape, a[0].options()), a[0])};
}

TensorVector GridSample(const Operands& a) {
  const std::string mode = a.attrs().String("mode"), padding = a.attrs().String("padding_mode");
  return {at::grid_sampler(a[0], a[1],
                           mode == "linear"    ? 0
                           : mode == "nearest" ? 1
                                               : 2,
                           padding == "zeros"    ? 0
                           : padding == "border" ? 1
                                                 : 2,
                           a.attrs().Int("align_corners") != 0)};
}

// --- RoiAlign
// ---------------------------------------------------------------------------------------------------------

struct Corner {
  int64_t index;
  double weight;
};

// Samples along one axis of one bin: two corners each, or none where the sample lies outside.
std::vector<std::vector<Corner>> SamplesAlong(const Attrs& a, double begin, double end, int64_t bins, int64_t bin,
                                              int64_t extent) {
  const double scale = a.Float("spatial_scale"), shift = a.Int("half_pixel") ? 0.5 : 0;
  double length = (end - begin) * scale;
  if (!a.Int("half_pixel")) length = std::max(length, 1.0);
  const double size = length / static_cast<double>(bins);
  const int64_t ratio = a.Int("sampling_ratio"), count = ratio > 0 ? ratio : static_cast<int64_t>(std::ceil(size));
  std::vector<std::vector<Corner>> samples;
  for (int64_t i = 0; i < count; ++i) {
    double x = begin * scale - shift +
               size * (static_cast<double>(bin) + (static_cast<double>(i) + 0.5) / static_cast<double>(count));
    samples.emplace_back();
    if (x < -1 || x > static_cast<double>(extent)) continue;
    x = std::min(std::max(x, 0.0), static_cast<double>(extent - 1));
    const auto low = static_cast<int64_t>(x);
    const double r = x - static_cast<double>(low);
    samples.back() = {{low, 1 - r}, {std::min(low + 1, extent - 1), r}};
  }
  return samples;
}

// All corners of a bin: [C] each, weighted. A sample outside counts as 0.
TensorVector SampleCorners(const Attrs& a, const at::Tensor& image, const double* roi, int64_t row, int64_t column) {
  TensorVector corners;
  for (const auto& y : SamplesAlong(a, roi[1], roi[3], a.Int("output_height"), row, image.size(1))) {
    for (const auto& x : SamplesAlong(a, roi[0], roi[2], a.Int("output_width"), column, image.size(2))) {
      for (size_t k = 0; k < 4; ++k) {
        const bool inside = !y.empty() && !x.empty();
        corners.push_back(inside ? image.select(1, y[k / 2].index).select(1, x[k % 2].index) *
                                       (y[k / 2].weight * x[k % 2].weight)
                                 : at::zeros({image.size(0)}, image.options()));
      }
    }
  }
  return corners;
}

TensorVector RoiAlign(const Operands& a) {
  const Attrs& attrs = a.attrs();
  TensorVector regions;
  for (int64_t r = 0; r < a[1].size(0); ++r) {
    const at::Tensor image = a[0].select(0, a[2][r].item<int64_t>());
    TensorVector bins;
    for (int64_t b = 0; b < attrs.Int("output_height") * attrs.Int("output_width"); ++b) {
      const auto corners = SampleCorners(attrs, image, a[1].data_ptr<double>() + 4 * r, b / attrs.Int("output_width"),
                                         b % attrs.Int("output_width"));
      if (corners.empty()) {
        bins.push_back(at::zeros({image.size(0)}, image.options()));
      } else if (attrs.String("mode") == "max") {
        bins.push_back(std::get<0>(at::stack(corners).max(0)));
      } else {
        bins.push_back(at::stack(corners).sum(0) / (static_cast<double>(corners.size()) / 4));
      }
    }
    regions.push_back(at::stack(bins, 1).view({image.size(0), attrs.Int("output_height"), attrs.Int("output_width")}));
  }
  return {at::stack(regions)};
}

// By minors, which singular matrices have too.
at::Tensor Determinant(const at::Tensor& x) {
  const int64_t n = x.size(-1);
  if (n == 1) return x.select(-1, 0).select(-1, 0);
  at::Tensor sum;
  for (int64_t j = 0; j < n; ++j) {
    std::vector<int64_t> rest;
    for (int64_t k = 0; k < n; ++k) {
      if (k != j) rest.push_back(k);
    }
    const at::Tensor columns = at::zeros({n - 1}, at::kLong);
    for (int64_t k = 0; k < n - 1; ++k) columns[k] = rest[k];
    const at::Tensor minor = Determinant(x.narrow(-2, 1, n - 1).index_select(-1, columns));
    const at::Tensor term = x.select(-2, 0).select(-1, j) * minor * (j % 2 ? -1.0 : 1.0);
    sum = sum.defined() ? sum + term : term;
  }
  return sum;
}

}  // namespace

References ResampleReferences() {
  return {
      {"Resample", [](const Operands& a) { return TensorVector{Resampled(a[0] * 1.0, a.attrs())}; }},
      {"ResampleGrad", ResampleGrad},
      {"GridSample", GridSample},
      {"RoiAlign", RoiAlign},
      {"Det", [](const Operands& a) { return TensorVector{Determinant(a[0])}; }},
  };
}

}  // namespace onnxtrain::cases
