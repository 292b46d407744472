// Imports the optimizer operators of ai.onnx.preview.training. The importer itself handles Gradient.
#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"

namespace onnxtrain {
namespace {

// The inputs after R and T (rate and step): all tensors, then all gradients, then the states, grouped by kind.
struct Step {
  ImportContext& c;
  size_t count;

  Val rate(Val like) const { return Cast(c.in(0), like.dtype()); }
  Val updates(Val like) const { return Cast(c.in(1), like.dtype()); }
  Val of(size_t kind, size_t i) const { return c.in(2 + kind * count + i); }
  double number(std::string_view name, double otherwise = 0) const { return c.attrs().Float(name, otherwise); }
  // Returns G + norm_coefficient·X.
  Val gradient(size_t i) const { return of(1, i) + of(0, i) * number("norm_coefficient"); }
};

absl::StatusOr<Step> ReadStep(ImportContext& c, size_t kinds) {
  const size_t given = c.num_inputs() - 2;
  if (given == 0 || given % kinds != 0)
    return Invalid("expected R, T and ", kinds, " lists of tensors of one length, got ", given, " tensors");
  for (size_t i : {0, 1}) {
    if (c.in(i).type().elements() != 1)
      return Invalid("input ", i, " should be one number, got ", ToString(c.in(i).type()));
  }
  const Step step{c, given / kinds};
  for (size_t i = 0; i < given; ++i) {
    const Val v = c.in(2 + i), x = step.of(0, i % step.count);
    if (!c.has(2 + i) || !IsFloat(v.dtype()) || !(v.type() == x.type()))
      return Invalid("input ", 2 + i, " should be a float tensor like input ", 2 + i % step.count);
  }
  return step;
}

// Reshapes a tensor of one element to a scalar, so that it does not add axes to other operands.
Val Scalar(Val v) { return Reshape(v, {}); }

// Returns the new value of tensor i and then its new states.
using Update = std::vector<Val> (*)(const Step& s, size_t i);

template <size_t kKinds, Update kUpdate>
ImportOr ImportStep(ImportContext& c) {
  ASSIGN_OR_RETURN(const Step step, ReadStep(c, kKinds));
  std::vector<Val> outputs((kKinds - 1) * step.count);
  for (size_t i = 0; i < step.count; ++i) {
    const std::vector<Val> updated = kUpdate(step, i);
    for (size_t kind = 0; kind < updated.size(); ++kind) outputs[kind * step.count + i] = updated[kind];
  }
  return outputs;
}

// Differs from PyTorch's Adam: ε is added to √H before the bias of H is corrected.
std::vector<Val> Adam(const Step& s, size_t i) {
  const Val x = s.of(0, i), g = s.gradient(i);
  const double alpha = s.number("alpha", 0.9), beta = s.number("beta", 0.999);
  const Val v = s.of(2, i) * alpha + g * (1 - alpha), h = s.of(3, i) * beta + g * g * (1 - beta);
  const Val rate = Scalar(s.rate(x)), t = Scalar(s.updates(x)), started = Greater(t, 0),
            counted = Where(started, t, Number(t, 1));
  auto missing = [&](double base) { return 1.0 - Binary("Pow", Number(t, base), counted); };
  const Val adjusted = Where(started, rate * Sqrt(missing(beta)) / missing(alpha), rate);
  const Val moved = x - adjusted * v / (Sqrt(h) + s.number("epsilon", 1e-6));
  return {moved * (1 - s.number("norm_coefficient_post")), v, h};
}

template <bool kNesterov>
std::vector<Val> MomentumStep(const Step& s, size_t i) {
  const Val x = s.of(0, i), g = s.gradient(i);
  const double alpha = s.number("alpha");
  const Val t = Scalar(s.updates(x)), beta = Where(Greater(t, 0), Number(t, s.number("beta")), Number(t, 1));
  const Val v = s.of(2, i) * alpha + beta * g;
  return {x - Scalar(s.rate(x)) * (kNesterov ? g + v * alpha : v), v};
}

ImportOr ImportMomentum(ImportContext& c) {
  const std::string mode = c.attrs().String("mode");
  if (mode == "nesterov") return ImportStep<3, MomentumStep<true>>(c);
  if (mode == "standard") return ImportStep<3, MomentumStep<false>>(c);
  return Invalid("mode '", mode, "' is neither standard nor nesterov");
}

std::vector<Val> Adagrad(const Step& s, size_t i) {
  const Val x = s.of(0, i), g = s.gradient(i), h = s.of(2, i) + g * g;
  const Val rate = Scalar(s.rate(x)) / (Scalar(s.updates(x)) * s.number("decay_factor") + 1);
  return {x - rate * g / (Sqrt(h) + s.number("epsilon", 1e-6)), h};
}

}  // namespace

std::span<const OnnxOp> TrainingImports() {
  static constexpr std::string_view kDomain = "ai.onnx.preview.training";
  static const OnnxOp ops[] = {
      {kDomain, "Adam", 3, Arity::kMany, ImportStep<4, Adam>},
      {kDomain, "Adagrad", 3, Arity::kMany, ImportStep<3, Adagrad>},
      {kDomain, "Momentum", 3, Arity::kMany, ImportMomentum},
  };
  return ops;
}

}  // namespace onnxtrain
