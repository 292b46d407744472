// Quantizers of QONNX, which Brevitas, HAWQ and QKeras export (https://github.com/fastmachinelearning/qonnx,
// docs/qonnx-custom-ops): floats rounded to a grid of any number of bits, and real values again.
#include <cmath>

#include "frontend/base/printable.h"
#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/import/nn.h"
#include "frontend/ops/import/quantize.h"
#include "frontend/ops/quantize.h"

namespace onnxtrain {
namespace {

constexpr double kMaxBits = 32;

struct Rounding {
  std::string_view mode, op;
};
constexpr Rounding kRoundings[] = {{"ROUND", "Round"}, {"HALF_EVEN", "Round"}, {"FLOOR", "Floor"}, {"CEIL", "Ceil"}};

// The canonical operator of the attribute rounding_mode.
absl::StatusOr<std::string_view> RoundingOp(const ImportContext& c) {
  const std::string mode = c.attrs().String("rounding_mode", "ROUND");
  for (const Rounding& r : kRoundings) {
    if (mode == r.mode) return r.op;
  }
  return Unsupported(StrCat("the rounding mode '", Printable(mode), "'"));
}

struct Bounds {
  double low, high;
};

absl::StatusOr<Bounds> ReadBounds(ImportContext& c) {
  ASSIGN_OR_RETURN(const double bits, KnownDouble(c, 3, "the bit width"));
  const bool is_signed = c.attrs().Int("signed", 1) != 0, narrow = c.attrs().Int("narrow", 0) != 0;
  if (!(bits >= (is_signed && narrow ? 2 : 1) && bits <= kMaxBits)) return Invalid("the bit width is ", bits);
  const double range = std::exp2(is_signed ? bits - 1 : bits);
  if (is_signed) return Bounds{narrow ? 1 - range : -range, range - 1};
  return Bounds{0, narrow ? range - 2 : range - 1};
}

// x, scale, zero point, bit width. Scales and zero points broadcast against x and are not trained.
ImportOr ImportQuant(ImportContext& c) {
  const Val x = c.in(0);
  if (!IsFloat(x.dtype())) return Invalid("cannot quantize ", ToString(x.type()));
  ASSIGN_OR_RETURN(const std::string_view round, RoundingOp(c));
  ASSIGN_OR_RETURN(const Bounds bounds, ReadBounds(c));
  const Val scale = Cast(FixedInput(c, 1), x.dtype()), zero = Cast(FixedInput(c, 2), x.dtype());
  const Attrs range = {{"min", bounds.low}, {"max", bounds.high}};
  const Val clipped = c.b().Op("Clip", {x / scale + zero}, range);
  return One((StraightThrough(Unary(round, clipped), clipped) - zero) * scale);
}

// x and scale: the sign of x, +1 for 0, times the scale; its gradient is that of x (Courbariaux et al., 2016,
// arXiv:1602.02830), within [−scale, scale].
ImportOr ImportBipolarQuant(ImportContext& c) {
  const Val x = c.in(0);
  if (!IsFloat(x.dtype())) return Invalid("cannot quantize ", ToString(x.type()));
  const Val scale = Cast(FixedInput(c, 1), x.dtype());
  const Val clipped = c.b().Op("Clip", {x / scale}, {{"min", -1.0}, {"max", 1.0}});
  if (!clipped) return c.b().status();
  const auto all = [&](double number) { return Expand(Number(x, number), clipped.shape()); };
  return One(StraightThrough(Where(Less(clipped, 0.0), all(-1), all(1)), clipped) * scale);
}

}  // namespace

std::span<const OnnxOp> QonnxImports() {
  static constexpr OnnxOp ops[] = {
      {"qonnx.custom_op.general", "Quant", 4, 4, ImportQuant, {.takes_numbers = true}},
      {"qonnx.custom_op.general", "BipolarQuant", 2, 2, ImportBipolarQuant, {.takes_numbers = true}},
      {"onnx.brevitas", "Quant", 4, 4, ImportQuant, {.takes_numbers = true}},
      {"onnx.brevitas", "BipolarQuant", 2, 2, ImportBipolarQuant, {.takes_numbers = true}},
      {"finn.custom_op.general", "Quant", 4, 4, ImportQuant, {.takes_numbers = true}},
      {"finn.custom_op.general", "BipolarQuant", 2, 2, ImportBipolarQuant, {.takes_numbers = true}},
  };
  return ops;
}

}  // namespace onnxtrain
