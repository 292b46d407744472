// GridSample by ATen's grid samplers, and RoiAlign, which ATen lacks, sample by sample for all regions at once.
#include "frontend/ops/sample.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/grid_sampler_2d.h>
#include <ATen/ops/grid_sampler_2d_backward.h>
#include <ATen/ops/grid_sampler_3d.h>
#include <ATen/ops/grid_sampler_3d_backward.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <array>

#include "backends/torch/kernel.h"
#include "backends/torch/kernels/scatter.h"

namespace onnxtrain::aten {
namespace {

// The arguments of ATen's grid samplers.
struct GridModes {
  int64_t interpolation, padding;
  bool align_corners;

  static GridModes Of(const Attrs& attrs) {
    const SampleSpec spec = SampleSpec::FromAttrs(attrs);
    const int64_t interpolation = spec.mode == SampleMode::kLinear ? 0 : spec.mode == SampleMode::kNearest ? 1 : 2;
    return {interpolation, static_cast<int64_t>(spec.padding), spec.align_corners};
  }
};
static_assert(static_cast<int>(SamplePadding::kBorder) == 1 && static_cast<int>(SamplePadding::kReflection) == 2);

// Nearest elements of volumes, [N,1,places] each: the offset of the element in its volume, and true if it exists. They
// are computed here because the versions of ATen round ties differently over three spatial axes.
struct NearestElements {
  at::Tensor index, inside;
};

// Reflects coordinates at `low` and low + span until they are between them.
at::Tensor Mirrored(const at::Tensor& x, double low, double span) {
  if (span == 0) return at::zeros_like(x);
  const at::Tensor distance = (x - low).abs(), flips = (distance / span).floor(), rest = distance.fmod(span);
  return at::where(flips.fmod(2).eq(0), rest + low, span - rest + low);
}

at::Tensor NearestAlong(const SampleSpec& spec, const at::Tensor& grid, int64_t n) {
  const auto extent = static_cast<double>(n);
  at::Tensor x = spec.align_corners ? (grid + 1) / 2 * (extent - 1) : ((grid + 1) * extent - 1) / 2;
  if (spec.padding == SamplePadding::kReflection)
    x = Mirrored(x, spec.align_corners ? 0 : -0.5, spec.align_corners ? extent - 1 : extent);
  if (spec.padding != SamplePadding::kZeros) x = at::where(x > 0, x, at::zeros_like(x)).clamp_max(extent - 1);
  return at::where(x.abs() < 1e9, x, at::zeros_like(x).fill_(-100)).round();
}

NearestElements FindNearest(const SampleSpec& spec, const at::Tensor& grid, at::IntArrayRef spatial) {
  const auto axes = static_cast<int64_t>(spatial.size());
  const at::Tensor flat = grid.view({grid.size(0), 1, -1, axes});
  NearestElements e;
  for (int64_t a = 0; a < axes; ++a) {
    const at::Tensor x = NearestAlong(spec, flat.select(3, axes - 1 - a), spatial[a]);
    const at::Tensor inside = at::logical_and(x >= 0, x < static_cast<double>(spatial[a]));
    const at::Tensor index = x.clamp(0, static_cast<double>(spatial[a] - 1)).to(at::kLong);
    e.index = a == 0 ? index : e.index * spatial[a] + index;
    e.inside = a == 0 ? inside : at::logical_and(e.inside, inside);
  }
  return e;
}

Run NearestVolume(const Args& a) {
  return [spec = SampleSpec::FromAttrs(a.attrs()), x = a.in[0], grid = a.in[1], y = a.out[0]] {
    if (y.numel() == 0) return;
    const NearestElements e = FindNearest(spec, grid, x.sizes().slice(2));
    const at::Tensor read = x.flatten(2).gather(2, e.index.expand({x.size(0), x.size(1), e.index.size(2)}));
    y.copy_(at::where(e.inside, read, at::zeros_like(read)).view(y.sizes()));
  };
}

Run NearestVolumeInputGrad(const Args& a) {
  return [spec = SampleSpec::FromAttrs(a.attrs()), dy = a.in[0], grid = a.in[1], dx = a.out[0]] {
    dx.zero_();
    if (dy.numel() == 0) return;
    const NearestElements e = FindNearest(spec, grid, dx.sizes().slice(2));
    const at::Tensor flat = dy.flatten(2);
    dx.flatten(2).scatter_add_(2, e.index.expand_as(flat), at::where(e.inside, flat, at::zeros_like(flat)));
  };
}

bool IsNearestVolume(const Args& a, const at::Tensor& grid) {
  return grid.dim() == 5 && SampleSpec::FromAttrs(a.attrs()).mode == SampleMode::kNearest;
}

Run GridSample(const Args& a) {
  if (IsNearestVolume(a, a.in[1])) return NearestVolume(a);
  return [m = GridModes::Of(a.attrs()), x = a.in[0], grid = a.in[1], y = a.out[0]] {
    if (y.numel() == 0) return;
    y.copy_(x.dim() == 4 ? at::grid_sampler_2d(x, grid, m.interpolation, m.padding, m.align_corners)
                         : at::grid_sampler_3d(x, grid, m.interpolation, m.padding, m.align_corners));
  };
}

// Returns the gradients of x and grid that the mask selects.
std::tuple<at::Tensor, at::Tensor> GridBackward(const GridModes& m, const at::Tensor& dy, const at::Tensor& x,
                                                const at::Tensor& grid, std::array<bool, 2> mask) {
  return x.dim() == 4 ? at::grid_sampler_2d_backward(dy, x, grid, m.interpolation, m.padding, m.align_corners, mask)
                      : at::grid_sampler_3d_backward(dy, x, grid, m.interpolation, m.padding, m.align_corners, mask);
}

// ATen requires x although only its extents matter; one expanded element replaces it.
Run GridSampleInputGrad(const Args& a) {
  if (IsNearestVolume(a, a.in[1])) return NearestVolumeInputGrad(a);
  const at::Tensor x = at::zeros({1}, a.in[0].options()).expand(a.out[0].sizes());
  return [=, m = GridModes::Of(a.attrs()), dy = a.in[0], grid = a.in[1], dx = a.out[0]] {
    if (dy.numel() == 0) {
      dx.zero_();
      return;
    }
    dx.copy_(std::get<0>(GridBackward(m, dy, x, grid, {true, false})));
  };
}

Run GridSampleGridGrad(const Args& a) {
  return [m = GridModes::Of(a.attrs()), dy = a.in[0], x = a.in[1], grid = a.in[2], dgrid = a.out[0]] {
    if (dy.numel() == 0) {
      dgrid.zero_();
      return;
    }
    dgrid.copy_(std::get<1>(GridBackward(m, dy, x, grid, {false, true})));
  };
}

// All regions along one axis: start of the region, size of a bin, samples per bin. [R] each.
struct RoiAxes {
  at::Tensor start, bin, samples;
  int64_t bins, extent;

  int64_t most(const RoiSpec& spec) const {
    // The number of samples depends on the data, so this kernel, as the only one, waits for the device.
    return spec.sampling_ratio > 0 ? spec.sampling_ratio : samples.numel() == 0 ? 0 : samples.max().item<int64_t>();
  }
};

RoiAxes MakeRoiAxes(const RoiSpec& spec, const at::Tensor& begin, const at::Tensor& end, int64_t bins, int64_t extent) {
  const double shift = spec.half_pixel ? 0.5 : 0;
  const at::Tensor start = begin * spec.scale - shift;
  at::Tensor length = end * spec.scale - shift - start;
  if (!spec.half_pixel) length = length.clamp_min(1);
  const at::Tensor bin = length / static_cast<double>(bins);
  const at::Tensor samples = spec.sampling_ratio > 0
                                 ? at::zeros_like(bin).fill_(spec.sampling_ratio)
                                 : at::where(bin > 0, at::ceil(bin).clamp(0, kMaxRoiSamples), at::zeros_like(bin));
  return {start, bin, samples, bins, extent};
}

// Sample i of every bin of every region along one axis: the elements before and after it and their weights, [R, bins]
// each.
struct RoiSides {
  std::array<at::Tensor, 2> index, weight;
  at::Tensor exists;  // true if the bins of the region have a sample i
};

RoiSides GetSides(const RoiAxes& axis, int64_t i) {
  const at::Tensor bins = at::arange(axis.bins, axis.bin.options());
  const at::Tensor bin = axis.bin.unsqueeze(1), samples = axis.samples.unsqueeze(1);
  const at::Tensor x = axis.start.unsqueeze(1) + bins * bin + (static_cast<double>(i) + 0.5) * bin / samples;
  const auto last = static_cast<double>(axis.extent - 1);
  const at::Tensor inside = at::logical_and(x >= -1, x <= static_cast<double>(axis.extent));
  const at::Tensor at = at::where(inside, x, at::zeros_like(x)).clamp(0, last), low = at.floor();
  const at::Tensor weight = inside.to(x.scalar_type()), rest = at - low;
  return {{low.to(at::kLong), (low + 1).clamp_max(last).to(at::kLong)},
          {weight * (1 - rest), weight * rest},
          (samples > i).expand_as(x)};
}

// Calls f(element of [N·H·W], weight, exists) for the corners of all samples, each [R·PH·PW].
template <typename F>
void ForCorners(const RoiSpec& spec, const RoiAxes& y, const RoiAxes& x, const at::Tensor& batch, F f) {
  const at::Tensor image = (batch * (y.extent * x.extent)).view({-1, 1, 1});
  const int64_t rows = y.most(spec), columns = x.most(spec);
  for (int64_t i = 0; i < rows; ++i) {
    const RoiSides v = GetSides(y, i);
    for (int64_t j = 0; j < columns; ++j) {
      const RoiSides h = GetSides(x, j);
      const at::Tensor exists = at::logical_and(v.exists.unsqueeze(2), h.exists.unsqueeze(1)).flatten();
      for (int corner = 0; corner < 4; ++corner) {
        const at::Tensor index = image + v.index[corner / 2].unsqueeze(2) * x.extent + h.index[corner % 2].unsqueeze(1);
        f(index.flatten(), (v.weight[corner / 2].unsqueeze(2) * h.weight[corner % 2].unsqueeze(1)).flatten(), exists);
      }
    }
  }
}

struct Rois {
  RoiSpec spec;
  RoiAxes y, x;
  at::Tensor batch;  // clamped image index of every region

  static Rois Of(const RoiSpec& spec, const at::Tensor& rois, const at::Tensor& batch, at::IntArrayRef image) {
    const auto side = [&](int64_t i) { return rois.select(1, i); };
    return {spec, MakeRoiAxes(spec, side(1), side(3), spec.height, image[2]),
            MakeRoiAxes(spec, side(0), side(2), spec.width, image[3]), at::clamp(batch, 0, image[0] - 1)};
  }
  // Returns 1 / samples of every bin, [R·PH·PW, 1].
  at::Tensor Share() const {
    const at::Tensor count = (y.samples * x.samples).clamp_min(1);
    return (1 / count).repeat_interleave(spec.height * spec.width).unsqueeze(1);
  }
  template <typename F>
  void ForCorners(F f) const {
    aten::ForCorners(spec, y, x, batch, f);
  }
};

// The largest weighted corner of every bin and channel: [R·PH·PW, C] each.
struct LargestCorner {
  at::Tensor value, index, weight;
};

LargestCorner FindLargest(const Rois& rois, const at::Tensor& elements) {
  LargestCorner best;
  at::Tensor any;
  rois.ForCorners([&](const at::Tensor& index, const at::Tensor& weight, const at::Tensor& exists) {
    const at::Tensor w = weight.unsqueeze(1), value = at::index_select(elements, 0, index) * w;
    if (!best.value.defined()) {
      best = {at::zeros_like(value), at::zeros_like(value, value.options().dtype(at::kLong)), at::zeros_like(value)};
      any = at::zeros_like(value, value.options().dtype(at::kBool));
    }
    const at::Tensor more = at::logical_and(exists.unsqueeze(1), at::logical_or(any.logical_not(), value > best.value));
    best = {at::where(more, value, best.value), at::where(more, index.unsqueeze(1).expand_as(value), best.index),
            at::where(more, w.expand_as(value), best.weight)};
    any = at::logical_or(any, exists.unsqueeze(1));
  });
  return best;
}

// Permutes [N,C,H,W] to [N·H·W, C].
at::Tensor Elements(const at::Tensor& x) { return x.permute({0, 2, 3, 1}).reshape({-1, x.size(1)}); }

// Sets the weights of samples that do not exist to 0.
at::Tensor Counted(const at::Tensor& weight, const at::Tensor& exists) {
  return at::where(exists, weight, at::zeros_like(weight)).unsqueeze(1);
}

Run RoiAlign(const Args& a) {
  const RoiSpec spec = RoiSpec::FromAttrs(a.attrs());
  return [=, x = a.in[0], regions = a.in[1], batch = a.in[2], y = a.out[0]] {
    if (y.numel() == 0) return;
    const Rois rois = Rois::Of(spec, regions, batch, x.sizes());
    const at::Tensor elements = Elements(x);
    at::Tensor value = at::zeros({y.size(0) * spec.height * spec.width, x.size(1)}, x.options());
    if (spec.max) {
      if (const LargestCorner best = FindLargest(rois, elements); best.value.defined()) value = best.value;
    } else {
      rois.ForCorners([&](const at::Tensor& index, const at::Tensor& weight, const at::Tensor& exists) {
        value.add_(at::index_select(elements, 0, index).mul_(Counted(weight, exists)));
      });
      value.mul_(rois.Share());
    }
    y.copy_(value.view({y.size(0), spec.height, spec.width, y.size(1)}).permute({0, 3, 1, 2}));
  };
}

Run RoiAlignGrad(const Args& a) {
  const RoiSpec spec = RoiSpec::FromAttrs(a.attrs());
  return [=, dy = a.in[0], regions = a.in[1], batch = a.in[2], x = a.In(3), dx = a.out[0]] {
    const Rois rois = Rois::Of(spec, regions, batch, dx.sizes());
    const at::Tensor gradient = Elements(dy);
    at::Tensor sum = at::zeros({dx.size(0) * dx.size(2) * dx.size(3), dx.size(1)}, dx.options());
    if (dy.numel() != 0 && spec.max) {
      if (const LargestCorner best = FindLargest(rois, Elements(x)); best.value.defined())
        sum.scatter_add_(0, best.index, gradient * best.weight);
    } else if (dy.numel() != 0) {
      const at::Tensor shared = gradient * rois.Share();
      rois.ForCorners([&](const at::Tensor& index, const at::Tensor& weight, const at::Tensor& exists) {
        sum.index_add_(0, index, shared * Counted(weight, exists));
      });
    }
    dx.copy_(sum.view({dx.size(0), dx.size(2), dx.size(3), dx.size(1)}).permute({0, 3, 1, 2}));
  };
}

}  // namespace

std::span<const NamedKernel> SampleKernels() {
  static constexpr NamedKernel kKernels[] = {
      {"GridSample", {GridSample}},
      {"GridSampleInputGrad", {GridSampleInputGrad}},
      {"GridSampleGridGrad", {GridSampleGridGrad}},
      {"RoiAlign", {RoiAlign, Types::kNumber}},
      {"RoiAlignGrad", {RoiAlignGrad, Types::kNumber}},
  };
  return kKernels;
}

}  // namespace onnxtrain::aten
