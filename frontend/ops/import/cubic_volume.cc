// Cubic GridSample over three spatial axes, from simpler operators: 64 elements of every place, weighed. (Over two axes
// the backends have kernels.) The arithmetic of one axis is that of sample.h.
#include <array>

#include "frontend/ops/formula.h"
#include "frontend/ops/import/nn.h"
#include "frontend/ops/import/sample_composites.h"

namespace onnxtrain {
namespace {

constexpr double kA = -0.75;  // of the kernel of Keys (1981)

// At distances up to 1, and from 1 to 2.
Val Near(Val d) { return (d * (kA + 2) - (kA + 3)) * d * d + 1.0; }
Val Far(Val d) { return ((d * kA - 5 * kA) * d + 8 * kA) * d - 4 * kA; }

Val Clipped(Val x, double low, double high) { return x ? x.b().Op("Clip", {x}, {{"min", low}, {"max", high}}) : x; }
Val Remainder(Val x, double by) { return x ? x.b().Op("Mod", {x, Number(x, by)}, {{"fmod", int64_t{1}}}) : x; }

// Elements beyond the ends, brought inside as the padding says.
Val Inside(Val at, const SampleSpec& spec, int64_t n) {
  if (spec.padding == SamplePadding::kZeros) return at;
  const double low = spec.align_corners ? 0 : -0.5;
  const auto span = static_cast<double>(spec.align_corners ? n - 1 : n);
  if (spec.padding == SamplePadding::kReflection && span > 0) {
    const Val distance = Unary("Abs", at - low), flips = Unary("Floor", distance / span),
              rest = Remainder(distance, span);
    at = Where(Equal(Remainder(flips, 2), 0), rest + low, (span + low) - rest);
  }
  return Clipped(at, 0, static_cast<double>(n - 1));
}

// The four elements along one axis and their weights: [N,P,4] each.
struct FourTaps {
  Val index, weight;
};

// g: [N,P], −1 … 1 over an axis of n elements.
FourTaps ComputeTaps(Val g, const SampleSpec& spec, int64_t n) {
  const auto extent = static_cast<double>(n);
  Val at = spec.align_corners ? (g + 1.0) * ((extent - 1) / 2) : ((g + 1.0) * extent - 1.0) / 2.0;
  at = Where(Less(Unary("Abs", at), 1e9), at, Number(at, -100));  // far outside, or not a number: outside
  const Val base = Unary("Floor", at), r = at - base;
  const std::array<Val, 4> weights = {Far(r + 1.0), Near(r), Near(1.0 - r), Far(2.0 - r)};
  std::vector<Val> index, weight;
  for (int k = 0; k < 4; ++k) {
    const Val read = Inside(base + static_cast<double>(k - 1), spec, n);
    const Val inside = Binary("And", Binary("GreaterOrEqual", read, Number(read, 0)), Less(read, extent));
    const Shape one = {g.dim(0), g.dim(1), 1};
    index.push_back(Reshape(Cast(Masked(inside, read), DType::kInt64), one));
    weight.push_back(Reshape(Masked(inside, weights[k]), one));
  }
  return {Concat(std::move(index), 2), Concat(std::move(weight), 2)};
}

}  // namespace

absl::StatusOr<Val> SampleCubicVolume(Val x, Val grid, const SampleSpec& spec) {
  if (grid.rank() != 5 || grid.dim(0) != x.dim(0) || grid.dim(4) != 3 || NumElements(x.shape()) == 0) {
    return Invalid("a grid ", ToString(grid.type()), " does not fit to ", ToString(x.type()));
  }
  const int64_t n = x.dim(0), channels = x.dim(1), places = grid.dim(1) * grid.dim(2) * grid.dim(3);
  const int64_t plane = x.dim(2) * x.dim(3) * x.dim(4);
  RETURN_IF_ERROR(CheckShape({n, places, 64, channels}));
  ASSIGN_OR_RETURN(const Val images, Iota(x.b(), n));
  Val index = Reshape(images, {n, 1, 1, 1, 1}), weight;
  for (int a = 0; a < 3; ++a) {
    const FourTaps taps = ComputeTaps(Reshape(Slice(grid, 4, 2 - a, 1), {n, places}), spec, x.dim(2 + a));
    Shape along = {n, places, 1, 1, 1};
    along[2 + a] = 4;
    index = index * static_cast<double>(x.dim(2 + a)) + Reshape(taps.index, along);
    const Val w = Reshape(taps.weight, along);
    weight = weight ? weight * w : w;
  }
  if (!index || !weight) return x.b().status();
  const Val rows = Reshape(Transpose(Reshape(x, {n, channels, plane}), {0, 2, 1}), {n * plane, channels});
  const Val read = x.b().Op("Gather", {rows, Reshape(index, {n, places, 64})}, {{"axis", int64_t{0}}});
  const Val sum = ReduceSum(read * Reshape(weight, {n, places, 64, 1}), {2}, false);
  return Reshape(Transpose(sum, {0, 2, 1}), {n, channels, grid.dim(1), grid.dim(2), grid.dim(3)});
}

}  // namespace onnxtrain
