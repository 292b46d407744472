#include "frontend/ops/recurrent_cells.h"

#include "frontend/ops/formula.h"

namespace onnxtrain {
namespace {

// Returns part i of the last axis, split into parts of n.
Val Part(Val x, int64_t i, int64_t n) { return Slice(x, x.rank() - 1, i * n, n); }

struct State {
  Val h, c, gates;
};

// Computes the state after a step on x_t.
using Step = std::function<State(Val x, const State&)>;

Val Held(Val active, Val now, Val before) { return active && now && before ? Where(active, now, before) : now; }

Val Join(std::vector<Val> parts) {
  for (Val& part : parts) {
    if (!part) return part;
    part = UnsqueezeStep(part);
  }
  return Concat(std::move(parts), 0);
}

Unrolled Run(const Recurrence& layer, const Step& step) {
  const int64_t steps = layer.x.dim(0);
  std::vector<Val> h(steps), c(steps), gates(steps);
  State state = {layer.h0, layer.c0, {}};
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t t = layer.reverse ? steps - 1 - i : i;
    const Val active = StepMask(layer.lengths, t);
    const State next = step(SelectStep(layer.x, t), state);
    state = {Held(active, next.h, state.h), Held(active, next.c, state.c), next.gates};
    h[t] = state.h;
    c[t] = state.c;
    gates[t] = state.gates;
  }
  return {Join(std::move(h)), Join(std::move(c)), Join(std::move(gates))};
}

Val Clipped(const Recurrence& layer, Val x) {
  if (layer.clip <= 0 || !x) return x;
  return x.b().Op("Clip", {x}, {{"min", -layer.clip}, {"max", layer.clip}});
}

Val Apply(const Recurrence& layer, size_t i, Val x, Val (*otherwise)(Val)) {
  return i < layer.activations.size() ? layer.activations[i](x) : otherwise(x);
}

// Applies activation i, or its default, to the clipped sum of a gate.
Val Activate(const Recurrence& layer, size_t i, Val x, Val (*otherwise)(Val)) {
  return Apply(layer, i, Clipped(layer, x), otherwise);
}

Val Product(Val h, Val r, int64_t first_gate, int64_t gates) {
  const int64_t n = h.dim(1);
  return MatMul(h, gates * n == r.dim(0) ? r : Slice(r, 0, first_gate * n, gates * n), false, true);
}

}  // namespace

Val SqueezeStep(Val x) { return x ? Reshape(x, Shape(x.shape().begin() + 1, x.shape().end())) : x; }

Val UnsqueezeStep(Val x) {
  if (!x) return x;
  Shape shape = x.shape();
  shape.insert(shape.begin(), 1);
  return Reshape(x, std::move(shape));
}

Val SelectStep(Val x, int64_t t) { return SqueezeStep(Slice(x, 0, t, 1)); }

Val StepMask(Val lengths, int64_t t) {
  if (!lengths) return lengths;
  return Reshape(Greater(lengths, static_cast<double>(t)), {lengths.dim(0), 1});
}

Val PreviousStates(Val h, Val h0, bool reverse) {
  const int64_t others = h.dim(0) - 1;
  if (others == 0) return UnsqueezeStep(h0);
  return reverse ? Concat({Slice(h, 0, 1, others), UnsqueezeStep(h0)}, 0)
                 : Concat({UnsqueezeStep(h0), Slice(h, 0, 0, others)}, 0);
}

// i, o, f, g: the input, output and forget gates and the candidate. c' = f·c + i·g, h' = o·tanh(c').
Unrolled UnrollLstm(const Recurrence& layer) {
  const int64_t n = layer.r.dim(1);
  auto step = [&](Val x, const State& s) -> State {
    const Val sum = x + MatMul(s.h, layer.r, false, true);
    auto gate = [&](int64_t k, int64_t hole, Val cell) {
      const Val in = Part(sum, k, n);
      return Activate(layer, 0, layer.peephole ? in + Part(layer.peephole, hole, n) * cell : in, Sigmoid);
    };
    const Val i = gate(0, 0, s.c), f = layer.input_forget ? 1.0 - i : gate(2, 2, s.c);
    const Val g = Activate(layer, 1, Part(sum, 3, n), Tanh);
    const Val c = f * s.c + i * g;
    const Val o = gate(1, 1, c);
    return {o * Apply(layer, 2, c, Tanh), c, Concat({i, o, f, g}, 1)};
  };
  return Run(layer, step);
}

// z, r, n: the update and reset gates and the candidate. h' = (1−z)·n + z·h, n = tanh(x + r·q) with q = h·rᵀ + b, or
// without linear_before_reset n = tanh(x + (r·h)·rᵀ).
Unrolled UnrollGru(const Recurrence& layer) {
  const int64_t units = layer.r.dim(1);
  auto with_bias = [&](Val v, int64_t first, int64_t count) {
    return layer.b ? v + Slice(layer.b, 0, first * units, count * units) : v;
  };
  auto step = [&](Val x, const State& s) -> State {
    const bool linear = layer.linear_before_reset;
    const Val h = with_bias(Product(s.h, layer.r, 0, linear ? 3 : 2), 0, linear ? 3 : 2);
    const Val z = Activate(layer, 0, Part(x, 0, units) + Part(h, 0, units), Sigmoid);
    const Val r = Activate(layer, 0, Part(x, 1, units) + Part(h, 1, units), Sigmoid);
    const Val q = linear ? Part(h, 2, units) : with_bias(Product(r * s.h, layer.r, 2, 1), 2, 1);
    const Val n = Activate(layer, 1, Part(x, 2, units) + (linear ? r * q : q), Tanh);
    return {(1.0 - z) * n + z * s.h, Val(), Concat({z, r, n, q}, 1)};
  };
  return Run(layer, step);
}

Unrolled UnrollRnn(const Recurrence& layer) {
  return Run(layer, [&](Val x, const State& s) -> State {
    return {Activate(layer, 0, x + MatMul(s.h, layer.r, false, true), Tanh), Val(), Val()};
  });
}

}  // namespace onnxtrain
