// Activations with attributes.
#include <cmath>
#include <limits>
#include <numbers>

#include "frontend/base/status.h"
#include "frontend/ops/elementwise.h"
#include "frontend/ops/export/onnx_export.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

OpRow Activation(std::string_view name, std::vector<AttrSpec> attrs, Evaluate evaluate, Gradient gradient,
                 double (*gain)(const Attrs&)) {
  return {.name = name,
          .attrs = std::move(attrs),
          .infer = SameAsFloatInput,
          .grad_status = GradStatus::kFormula,
          .gradient = gradient,
          .evaluate = evaluate,
          .init = {.gain = gain},
          .onnx = ImportSame};
}

double LeakyReluGain(const Attrs& a) { return std::sqrt(2 / (1 + std::pow(a.Float("alpha", 0.01), 2))); }
double SeluGain(const Attrs&) { return 1; }  // Klambauer et al., 2017: variance 1/fan_in
// Clip is an activation, such as Relu6, if the lower bound is 0.
double ClipGain(const Attrs& a) { return a.Float("min") == 0 ? ReluGain(a) : -1; }

auto MakeLeakyRelu(const Attrs& a) {
  return [alpha = a.Float("alpha")](double x) { return x < 0 ? alpha * x : x; };
}
std::vector<Val> LeakyReluGrad(const GradContext& c) {
  return {Where(Greater(c.x(0), 0), c.dy(), c.dy() * c.node.attrs.Float("alpha"))};
}

auto MakeElu(const Attrs& a) {
  return [alpha = a.Float("alpha")](double x) { return x < 0 ? alpha * std::expm1(x) : x; };
}
std::vector<Val> EluGrad(const GradContext& c) {
  const double alpha = c.node.attrs.Float("alpha");
  return {Where(Greater(c.x(0), 0), c.dy(), c.dy() * (Exp(c.x(0)) * alpha))};
}

auto MakeCelu(const Attrs& a) {
  return [alpha = a.Float("alpha")](double x) { return x < 0 ? alpha * std::expm1(x / alpha) : x; };
}
std::vector<Val> CeluGrad(const GradContext& c) {
  const double alpha = c.node.attrs.Float("alpha");
  return {Where(Greater(c.x(0), 0), c.dy(), c.dy() * Exp(c.x(0) / alpha))};
}

auto MakeSelu(const Attrs& a) {
  return [alpha = a.Float("alpha"), gamma = a.Float("gamma")](double x) {
    return gamma * (x < 0 ? alpha * std::expm1(x) : x);
  };
}
std::vector<Val> SeluGrad(const GradContext& c) {
  const double alpha = c.node.attrs.Float("alpha"), gamma = c.node.attrs.Float("gamma");
  return {Where(Greater(c.x(0), 0), c.dy() * gamma, c.dy() * (Exp(c.x(0)) * (alpha * gamma)))};
}

auto MakeThresholdedRelu(const Attrs& a) {
  return [alpha = a.Float("alpha")](double x) { return x <= alpha ? 0 : x; };  // passes NaN
}
std::vector<Val> ThresholdedReluGrad(const GradContext& c) {
  return {Masked(Greater(c.x(0), c.node.attrs.Float("alpha")), c.dy())};
}

auto MakeHardSigmoid(const Attrs& a) {
  return [alpha = a.Float("alpha"), beta = a.Float("beta")](double x) {
    return std::isnan(x) ? x : std::fmin(std::fmax(alpha * x + beta, 0), 1);
  };
}
// The derivative is alpha where 0 < y < 1, else 0.
std::vector<Val> HardSigmoidGrad(const GradContext& c) {
  const Val inside = Binary("And", Greater(c.y(), 0), Less(c.y(), 1));
  return {Masked(inside, c.dy() * c.node.attrs.Float("alpha"))};
}

auto MakeShrink(const Attrs& a) {
  return [lambd = a.Float("lambd"), bias = a.Float("bias")](double x) {
    return x < -lambd ? x + bias : x > lambd ? x - bias : 0;
  };
}
std::vector<Val> ShrinkGrad(const GradContext& c) {
  return {Masked(Greater(Unary("Abs", c.x(0)), c.node.attrs.Float("lambd")), c.dy())};
}

auto MakeClip(const Attrs& a) {
  return [min = a.Float("min", -kInfinity), max = a.Float("max", kInfinity)](double x) {
    return std::isnan(x) ? x : std::fmin(std::fmax(x, min), max);
  };
}
std::vector<Val> ClipGrad(const GradContext& c) {
  const double min = c.node.attrs.Float("min"), max = c.node.attrs.Float("max");
  const Val x = c.x(0);
  Val dx = c.dy();
  if (min != -kInfinity) dx = Masked(Binary("GreaterOrEqual", x, Number(x, min)), dx);
  if (max != kInfinity) dx = Masked(Binary("LessOrEqual", x, Number(x, max)), dx);
  return {dx};
}

// Gelu (Hendrycks and Gimpel, 2016) is x·Φ(x), where Φ(x) may be approximated by (1 + tanh(√(2/π)(x + 0.044715 x³)))/2.
constexpr double kTanhScale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // √(2/π)
constexpr double kTanhCubic = 0.044715;
constexpr double kInvSqrt2 = std::numbers::sqrt2 / 2;
constexpr double kInvSqrt2Pi = kInvSqrt2 * std::numbers::inv_sqrtpi;

bool IsTanh(const Attrs& a) { return a.String("approximate") == "tanh"; }

TypesOr GeluTypes(const TypeContext& c) {
  const std::string approximate = c.attrs.String("approximate");
  if (approximate != "none" && approximate != "tanh") return Invalid("unknown approximation '", approximate, "'");
  return SameFloatInputs(c);
}

double TanhPart(double x) { return std::tanh(kTanhScale * (x + kTanhCubic * x * x * x)); }
Val TanhPart(Val x) { return Tanh((x + x * x * x * kTanhCubic) * kTanhScale); }
// Returns Φ(x) or its approximation.
double NormalCdf(double x, bool tanh) { return tanh ? (1 + TanhPart(x)) / 2 : std::erfc(-x * kInvSqrt2) / 2; }
Val NormalCdf(Val x, bool tanh) { return (tanh ? TanhPart(x) + 1 : Unary("Erf", x * kInvSqrt2) + 1) * 0.5; }

// Returns Φ′(x); with the approximation, ½(1 − t²)·√(2/π)(1 + 3·0.044715 x²).
double GeluSlope(double x, bool tanh) {
  if (!tanh) return kInvSqrt2Pi * std::exp(-x * x / 2);
  const double t = TanhPart(x);
  return (1 - t * t) / 2 * kTanhScale * (1 + 3 * kTanhCubic * x * x);
}
Val GeluSlope(Val x, bool tanh) {
  if (!tanh) return Exp(x * x * -0.5) * kInvSqrt2Pi;
  const Val t = TanhPart(x);
  return (1 - t * t) * (x * x * (3 * kTanhCubic) + 1) * (kTanhScale / 2);
}

auto MakeGelu(const Attrs& a) {
  return [tanh = IsTanh(a)](double x) { return x * NormalCdf(x, tanh); };
}
std::vector<Val> GeluGradient(const GradContext& c) {
  Attrs attrs = c.node.attrs;
  return {c.b.Op("GeluGrad", {c.dy(), c.x(0)}, std::move(attrs))};
}
std::vector<Val> DecomposeGelu(const DecomposeContext& d) { return {d.x(0) * NormalCdf(d.x(0), IsTanh(d.attrs))}; }

// Computes dx = dy·(Φ(x) + x·Φ′(x)).
std::vector<HostTensor> EvalGeluGrad(const EvalContext& c) {
  const bool tanh = IsTanh(c.attrs);
  return MapPairs(
      c, [tanh](double dy, double x) { return dy * (NormalCdf(x, tanh) + x * GeluSlope(x, tanh)); },
      [](int64_t dy, int64_t x) { return int64_t{0}; });
}
std::vector<Val> DecomposeGeluGrad(const DecomposeContext& d) {
  const Val dy = d.x(0), x = d.x(1);
  const bool tanh = IsTanh(d.attrs);
  return {dy * (NormalCdf(x, tanh) + x * GeluSlope(x, tanh))};
}

}  // namespace

std::vector<OpRow> ActivationRows() {
  OpRow clip =
      Activation("Clip", {{"min", -kInfinity}, {"max", kInfinity}}, EvalWithAttrs<MakeClip>, ClipGrad, ClipGain);
  clip.onnx = nullptr;
  clip.emit = EmitClip;
  clip.guards_divisor = true;
  OpRow hard_sigmoid = Activation("HardSigmoid", {{"alpha", 0.2}, {"beta", 0.5}}, EvalWithAttrs<MakeHardSigmoid>,
                                  HardSigmoidGrad, XavierGain);
  hard_sigmoid.written_as = {{"Clip", {{"alpha", 1.0 / 6}, {"beta", 0.5}}}, {"Clip", {{"alpha", 0.2}, {"beta", 0.5}}}};
  return {
      Activation("LeakyRelu", {{"alpha", 0.01}}, EvalWithAttrs<MakeLeakyRelu>, LeakyReluGrad, LeakyReluGain),
      Activation("Elu", {{"alpha", 1.0}}, EvalWithAttrs<MakeElu>, EluGrad, ReluGain),
      Activation("Celu", {{"alpha", 1.0}}, EvalWithAttrs<MakeCelu>, CeluGrad, ReluGain),
      Activation("ThresholdedRelu", {{"alpha", 1.0}}, EvalWithAttrs<MakeThresholdedRelu>, ThresholdedReluGrad,
                 ReluGain),
      // Klambauer et al., 2017.
      Activation("Selu", {{"alpha", 1.6732632423543772}, {"gamma", 1.0507009873554805}}, EvalWithAttrs<MakeSelu>,
                 SeluGrad, SeluGain),
      std::move(hard_sigmoid),
      Activation("Shrink", {{"lambd", 0.5}, {"bias", 0.0}}, EvalWithAttrs<MakeShrink>, ShrinkGrad, nullptr),
      std::move(clip),
      {.name = "Gelu",
       .attrs = {{"approximate", std::string("none")}},
       .infer = GeluTypes,
       .grad_status = GradStatus::kFormula,
       .gradient = GeluGradient,
       .decompose = DecomposeGelu,
       .evaluate = EvalWithAttrs<MakeGelu>,
       .init = {.gain = ReluGain},
       .written_as = {{"Erf", {{"approximate", "none"}}},
                      {"Tanh", {{"approximate", "tanh"}}},
                      {"Sigmoid", {{"approximate", "tanh"}}}}},  // (1 + tanh u)/2 = sigmoid 2u
      {.name = "GeluGrad",
       .inputs = {2, 2},
       .attrs = {{"approximate", std::string("none")}},
       .infer = GeluTypes,
       .grad_status = GradStatus::kDecomposition,
       .decompose = DecomposeGeluGrad,
       .evaluate = EvalGeluGrad,
       .is_gradient = true},
  };
}

}  // namespace onnxtrain
