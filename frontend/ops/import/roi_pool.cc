// MaxRoiPool: the maximum over any rectangle is that of four that overlap, with sides that are powers of two. Those are
// looked up in tables of running maxima (a sparse table), so that regions known only at run time need no loop.
#include <cmath>

#include "frontend/ops/formula.h"
#include "frontend/ops/import/nn.h"
#include "frontend/ops/import/sample_composites.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

int64_t Levels(int64_t extent) {
  int64_t levels = 1;
  while ((int64_t{1} << levels) <= extent) ++levels;
  return levels;
}

// Half away from zero, as regions are rounded.
Val Rounded(Val x) { return Unary("Sign", x) * Unary("Floor", Unary("Abs", x) + 0.5); }

Val Within(Val x, int64_t low, int64_t high) {
  return x ? x.b().Op("Clip", {x}, {{"min", static_cast<double>(low)}, {"max", static_cast<double>(high)}}) : x;
}

// Along one axis, for every region and bin [R,bins]: the two windows of 2^level elements that cover it, and whether it
// has elements at all.
struct RoiBins {
  Val first, second, level, empty;
};

RoiBins BinsAlong(Val begin, Val end, double scale, int64_t bins, int64_t extent) {
  HostTensor numbers({begin.dtype(), {1, bins}});
  for (int64_t i = 0; i < bins; ++i) numbers.Set(i, static_cast<double>(i));
  const Val at = begin.b().Constant(numbers);
  const Val start = Rounded(begin * scale), length = Rounded(end * scale) - start + 1.0;
  const Val bin = Binary("Max", length, Number(length, 1)) / static_cast<double>(bins);
  const Val low = Within(Unary("Floor", at * bin) + start, 0, extent);
  const Val high = Within(Unary("Ceil", (at + 1.0) * bin) + start, 0, extent);
  const Val count = high - low;
  Val level = ZerosLike(count), side = level + 1.0;
  for (int64_t k = 1; k < Levels(extent); ++k) {
    const double power = std::ldexp(1, static_cast<int>(k));
    const Val reaches = Cast(Binary("GreaterOrEqual", count, Number(count, power)), count.dtype());
    level = level + reaches;
    side = side + reaches * (power / 2);
  }
  const auto index = [&](Val x) { return Cast(Within(x, 0, extent - 1), DType::kInt64); };
  return {index(low), index(high - side), Cast(level, DType::kInt64), Less(count, 0.5)};
}

// The maxima of 2^k elements from each on, for each level k. Behind the end, where nobody looks, they mean nothing.
std::vector<Val> RunningMaxima(Val x, int64_t axis) {
  const int64_t extent = x.dim(static_cast<int>(axis));
  std::vector<Val> levels = {x};
  for (int64_t k = 1; k < Levels(extent); ++k) {
    const int64_t by = int64_t{1} << (k - 1);
    const Val last = levels.back();
    levels.push_back(Binary("Max", last, Concat({Slice(last, axis, by, extent - by), Slice(last, axis, 0, by)}, axis)));
  }
  return levels;
}

// [N · levels of H · levels of W · H · W, C]
Val MaximaTable(Val x) {
  const int64_t n = x.dim(0), c = x.dim(1), h = x.dim(2), w = x.dim(3);
  std::vector<Val> all;
  for (const Val& rows : RunningMaxima(x, 2)) {
    for (const Val& level : RunningMaxima(rows, 3)) all.push_back(Reshape(level, {n, 1, c, h * w}));
  }
  const auto tables = static_cast<int64_t>(all.size());
  return Reshape(Transpose(Concat(std::move(all), 1), {0, 1, 3, 2}), {n * tables * h * w, c});
}

absl::Status CheckRegions(ImportContext& c, const std::vector<int64_t>& bins) {
  const Val x = c.in(0), rois = c.in(1);
  if (x.rank() != 4 || !IsFloat(x.dtype()) || rois.rank() != 2 || rois.dim(1) != 5 || rois.dtype() != x.dtype()) {
    return Invalid("cannot pool regions ", ToString(rois.type()), " of ", ToString(x.type()));
  }
  if (NumElements(x.shape()) == 0) return Invalid("there is nothing to pool in ", ToString(x.type()));
  if (bins.size() != 2 || bins[0] < 1 || bins[1] < 1)
    return Invalid("pooled_shape ", ToString(bins), " should be two extents");
  for (int64_t n : bins) RETURN_IF_ERROR(CheckHostConstant({x.dtype(), {n}}));
  return CheckShape({rois.dim(0), bins[0], bins[1], x.dim(1)});
}

}  // namespace

ImportOr ImportMaxRoiPool(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 2));
  const std::vector<int64_t> bins = c.attrs().Ints("pooled_shape");
  RETURN_IF_ERROR(CheckRegions(c, bins));
  const Val x = c.in(0), rois = c.in(1);
  const int64_t regions = rois.dim(0), h = x.dim(2), w = x.dim(3);
  const double scale = c.attrs().Float("spatial_scale", 1);
  const auto side = [&](int64_t i) { return Slice(rois, 1, i, 1); };  // [R,1]
  const RoiBins y = BinsAlong(side(2), side(4), scale, bins[0], h),
                across = BinsAlong(side(1), side(3), scale, bins[1], w);
  const auto vertical = [&](Val v) { return Reshape(v, {regions, bins[0], 1}); };
  const auto horizontal = [&](Val v) { return Reshape(v, {regions, 1, bins[1]}); };
  const Val image = Reshape(Cast(Within(side(0), 0, x.dim(0) - 1), DType::kInt64), {regions, 1, 1});
  const Val table = ((image * static_cast<double>(Levels(h)) + vertical(y.level)) * static_cast<double>(Levels(w)) +
                     horizontal(across.level)) *
                    static_cast<double>(h * w);
  const Val maxima = MaximaTable(x);
  Val most;
  for (const Val& row : {y.first, y.second}) {
    for (const Val& column : {across.first, across.second}) {
      const Val index = table + vertical(row) * static_cast<double>(w) + horizontal(column);
      if (!index) return c.b().status();
      const Val corner = c.b().Op("Gather", {maxima, index}, {{"axis", int64_t{0}}});
      most = most ? Binary("Max", most, corner) : corner;
    }
  }
  const Val empty = Reshape(Binary("Or", vertical(y.empty), horizontal(across.empty)), {regions, bins[0], bins[1], 1});
  if (!most || !empty) return c.b().status();
  return One(Transpose(Where(empty, Number(most, 0), most), {0, 3, 1, 2}));
}

}  // namespace onnxtrain
