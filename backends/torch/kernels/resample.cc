// Resampling kernels, which use ATen's upsampling if its definition agrees, else add taps along each axis.
#include "frontend/ops/resample.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <ATen/ops/upsample_bicubic2d_backward.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_bilinear2d_backward.h>
#include <ATen/ops/upsample_linear1d.h>
#include <ATen/ops/upsample_linear1d_backward.h>
#include <ATen/ops/upsample_nearest1d.h>
#include <ATen/ops/upsample_nearest1d_backward.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <ATen/ops/upsample_nearest2d_backward.h>
#include <ATen/ops/upsample_nearest3d.h>
#include <ATen/ops/upsample_nearest3d_backward.h>
#include <ATen/ops/upsample_trilinear3d.h>
#include <ATen/ops/upsample_trilinear3d_backward.h>

#include <algorithm>
#include <cmath>

#include "backends/torch/compat.h"
#include "backends/torch/kernel.h"
#include "backends/torch/tensor.h"

namespace onnxtrain::aten {
namespace {

enum class Mode { kNearest, kLinear, kCubic };

// An upsampling of [N,C,spatial…] over all spatial axes.
struct Upsampling {
  Mode mode;
  bool align_corners = false;
  std::vector<int64_t> input, output;  // spatial extents
  std::vector<Optional<double>> scales;

  size_t rank() const { return output.size(); }
};

void Forward(const Upsampling& u, const at::Tensor& x, at::Tensor& y) {
  const auto& s = u.scales;
  if (u.mode == Mode::kCubic) {
    at::upsample_bicubic2d_outf(x, u.output, u.align_corners, s[0], s[1], y);
  } else if (u.mode == Mode::kNearest) {
    if (u.rank() == 1)
      at::upsample_nearest1d_outf(x, u.output, s[0], y);
    else if (u.rank() == 2)
      at::upsample_nearest2d_outf(x, u.output, s[0], s[1], y);
    else
      at::upsample_nearest3d_outf(x, u.output, s[0], s[1], s[2], y);
  } else if (u.rank() == 1) {
    at::upsample_linear1d_outf(x, u.output, u.align_corners, s[0], y);
  } else if (u.rank() == 2) {
    at::upsample_bilinear2d_outf(x, u.output, u.align_corners, s[0], s[1], y);
  } else {
    at::upsample_trilinear3d_outf(x, u.output, u.align_corners, s[0], s[1], s[2], y);
  }
}

void Backward(const Upsampling& u, const at::Tensor& dy, at::Tensor& dx) {
  const auto& s = u.scales;
  const auto in = dx.sizes();
  if (u.mode == Mode::kCubic) {
    at::upsample_bicubic2d_backward_outf(dy, u.output, in, u.align_corners, s[0], s[1], dx);
  } else if (u.mode == Mode::kNearest) {
    if (u.rank() == 1)
      at::upsample_nearest1d_backward_outf(dy, u.output, in, s[0], dx);
    else if (u.rank() == 2)
      at::upsample_nearest2d_backward_outf(dy, u.output, in, s[0], s[1], dx);
    else
      at::upsample_nearest3d_backward_outf(dy, u.output, in, s[0], s[1], s[2], dx);
  } else if (u.rank() == 1) {
    at::upsample_linear1d_backward_outf(dy, u.output, in, u.align_corners, s[0], dx);
  } else if (u.rank() == 2) {
    at::upsample_bilinear2d_backward_outf(dy, u.output, in, u.align_corners, s[0], s[1], dx);
  } else {
    at::upsample_trilinear3d_backward_outf(dy, u.output, in, u.align_corners, s[0], s[1], s[2], dx);
  }
}

struct AxisPosition {
  double shift, num, den, offset;
};

AxisPosition GetPosition(const Attrs& attrs, size_t i) {
  const std::vector<double> p = attrs.Floats("position");
  return {p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]};
}

bool IsHalfPixel(const AxisPosition& p) { return p.shift == 0.5 && p.offset == -0.5 && p.num > 0 && p.den > 0; }

bool AlignsCorners(const AxisPosition& p, int64_t in, int64_t out) {
  if (p.shift != 0 || p.offset != 0) return false;
  return out == 1 || (p.num == static_cast<double>(in - 1) && p.den == static_cast<double>(out - 1));
}

// Returns true if ATen's nearest mode, which multiplies by a float32 ratio and truncates, reads the same elements.
bool IsNearestOfATen(const Taps& taps) {
  const float ratio = static_cast<float>(taps.in) / static_cast<float>(taps.out());
  for (int64_t o = 0; o < taps.out(); ++o) {
    const auto index = std::min(static_cast<int64_t>(std::floor(static_cast<float>(o) * ratio)), taps.in - 1);
    if (taps.begin[o + 1] - taps.begin[o] != 1 || taps.index[taps.begin[o]] != index || taps.weight[taps.begin[o]] != 1)
      return false;
  }
  return true;
}

bool OnlySpatial(const std::vector<int64_t>& axes) {
  return !axes.empty() && std::all_of(axes.begin(), axes.end(), [](int64_t a) { return a >= 2; });
}

// Sets align_corners and scales. Returns false if the axes differ, because in ATen all axes align their corners or
// none.
bool SetAlignment(const Attrs& attrs, const std::vector<Taps>& taps, Upsampling* u) {
  bool half = true, corners = true;
  for (size_t i = 0; i < taps.size(); ++i) {
    const AxisPosition p = GetPosition(attrs, i);
    half &= IsHalfPixel(p);
    corners &= AlignsCorners(p, taps[i].in, taps[i].out());
    u->scales[taps[i].axis - 2] = p.den / p.num;
  }
  u->align_corners = !half;
  if (!half) u->scales.assign(u->rank(), Optional<double>());
  return half || corners;
}

bool IsPlain(const Attrs& attrs) {
  const std::vector<double> stretch = attrs.Floats("stretch");
  return attrs.Int("exclude_outside") == 0 && attrs.Int("zero_outside") == 0 &&
         std::all_of(stretch.begin(), stretch.end(), [](double s) { return s == 1; });
}

Optional<Upsampling> MatchUpsampling(const Attrs& attrs, const Shape& x, const Shape& y,
                                     const std::vector<Taps>& taps) {
  const std::string mode = attrs.String("mode");
  if (x.size() < 3 || x.size() > 5 || !OnlySpatial(attrs.Ints("axes")) || !IsPlain(attrs)) return {};
  Upsampling u{mode == "nearest" ? Mode::kNearest : mode == "linear" ? Mode::kLinear : Mode::kCubic};
  u.input.assign(x.begin() + 2, x.end());
  u.output.assign(y.begin() + 2, y.end());
  u.scales.assign(u.rank(), Optional<double>());
  if (u.mode == Mode::kNearest) {
    return std::all_of(taps.begin(), taps.end(), IsNearestOfATen) ? Optional<Upsampling>(u) : Optional<Upsampling>();
  }
  if (u.mode == Mode::kCubic && (u.rank() != 2 || attrs.Float("cubic_a") != -0.75)) return {};
  return SetAlignment(attrs, taps, &u) ? Optional<Upsampling>(u) : Optional<Upsampling>();
}

// Tap t of every output position: index and weight of the element that it reads. The weight is 0 if the position has
// fewer taps.
struct Tap {
  at::Tensor index, weight;
};

struct AxisTaps {
  int64_t axis;
  std::vector<Tap> taps;

  at::Tensor operator()(const at::Tensor& x) const {
    at::Tensor y;
    for (const Tap& t : taps) {
      const at::Tensor term = at::index_select(x, axis, t.index).mul_(t.weight);
      y = y.defined() ? y.add_(term) : term;
    }
    return y;
  }
};

Tap UploadTap(const Taps& taps, int64_t t, const Type& type, at::Device device) {
  HostTensor index({DType::kInt64, {taps.out()}});
  Shape shape(type.rank(), 1);
  shape[taps.axis] = taps.out();
  HostTensor weight({type.dtype, shape});
  for (int64_t o = 0; o < taps.out(); ++o) {
    const int64_t count = taps.begin[o + 1] - taps.begin[o];
    if (count == 0) continue;
    index.SetInt(o, taps.index[taps.begin[o] + std::min(t, count - 1)]);
    weight.Set(o, t < count ? taps.weight[taps.begin[o] + t] : 0);
  }
  return {Upload(index, device), Upload(weight, device)};
}

std::vector<AxisTaps> UploadTaps(const std::vector<Taps>& all, const Type& type, at::Device device) {
  std::vector<AxisTaps> axes;
  for (const Taps& taps : all) {
    AxisTaps axis{taps.axis, {}};
    for (int64_t t = 0, n = std::max<int64_t>(taps.most(), 1); t < n; ++t)
      axis.taps.push_back(UploadTap(taps, t, type, device));
    axes.push_back(std::move(axis));
  }
  return axes;
}

Run ByTaps(const Args& a, const std::vector<Taps>& taps) {
  const std::vector<AxisTaps> axes = UploadTaps(taps, a.graph.type(a.node.inputs[0]), a.device);
  return [=, x = a.in[0], y = a.out[0]] {
    at::Tensor value = x;
    for (const AxisTaps& axis : axes) value = axis(value);
    y.copy_(value);
  };
}

Run Fill0(const Args& a) {
  return [y = a.out[0]] { y.zero_(); };
}

Run Resample(const Args& a) {
  const Shape &x = a.graph.type(a.node.inputs[0]).shape, &y = a.graph.type(a.node.outputs[0]).shape;
  if (NumElements(y) == 0) return Fill0(a);
  const std::vector<Taps> taps = ResampleTaps(a.attrs(), x);
  const Optional<Upsampling> up = MatchUpsampling(a.attrs(), x, y, taps);
  if (!up) return ByTaps(a, taps);
  return [u = *up, x = a.in[0], y = a.out[0]]() mutable { Forward(u, x, y); };
}

Run ResampleGrad(const Args& a) {
  const Shape &y = a.graph.type(a.node.inputs[0]).shape, &x = a.graph.type(a.node.outputs[0]).shape;
  if (NumElements(y) == 0 || NumElements(x) == 0) return Fill0(a);
  std::vector<Taps> taps = ResampleTaps(a.attrs(), x);
  const Optional<Upsampling> up = MatchUpsampling(a.attrs(), x, y, taps);
  if (up) return [u = *up, dy = a.in[0], dx = a.out[0]]() mutable { Backward(u, dy, dx); };
  for (Taps& t : taps) t = t.Transposed();
  return ByTaps(a, taps);
}

}  // namespace

std::span<const NamedKernel> ResampleKernels() {
  static constexpr NamedKernel kKernels[] = {
      {"Resample", {Resample}},
      {"ResampleGrad", {ResampleGrad}},
  };
  return kKernels;
}

}  // namespace onnxtrain::aten
