#include "frontend/ops/recurrent.h"

#include "frontend/ops/formula.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"

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

// Applies activation i, by default `otherwise`, to the clipped sum of a gate.
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

// Gates i, o, f, g: input, output and forget gates and the candidate. c' = f·c + i·g, h' = o·tanh(c').
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

// Gates z, r, n: update and reset gates and the candidate. h' = (1−z)·n + z·h with n = tanh(x + r·q), q = h·rᵀ + b, or,
// without linear_before_reset, n = tanh(x + (r·h)·rᵀ).
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

namespace {

struct Extents {
  int64_t steps, batch, units;

  Shape all(int64_t gates = 1) const { return {steps, batch, gates * units}; }
  Shape state() const { return {batch, units}; }
};

absl::StatusOr<Extents> ReadExtents(const Shape& x, const Shape& r, int64_t gates) {
  const bool fits = x.size() == 3 && r.size() == 2 && r[0] % gates == 0 && r[0] / gates == r[1] && x[2] == r[0];
  if (fits && x[0] > 0 && x[1] > 0 && r[1] > 0) return Extents{x[0], x[1], r[1]};
  return Invalid("expected x [S,B,", gates, "·H] and recurrent weights [", gates, "·H,H], got ", ToString(x), " and ",
                 ToString(r));
}

absl::Status CheckLengths(const TypeContext& c, size_t i, const Extents& e) {
  return c.has(i) ? CheckInputType(c, i, {DType::kInt64, {e.batch}}) : absl::OkStatus();
}

std::vector<Type> Types(DType dtype, std::vector<Shape> shapes) {
  std::vector<Type> types;
  for (Shape& shape : shapes) types.push_back({dtype, std::move(shape)});
  return types;
}

// Infers x, r, h0, c0, lengths? → h, c, gates.
absl::StatusOr<std::vector<Type>> InferLstm(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 4));
  ASSIGN_OR_RETURN(const Extents e, ReadExtents(c.in(0).shape, c.in(1).shape, 4));
  for (size_t i : {2, 3}) RETURN_IF_ERROR(CheckInputShape(c, i, e.state()));
  RETURN_IF_ERROR(CheckLengths(c, 4, e));
  return Types(c.in(0).dtype, {e.all(), e.all(), e.all(4)});
}

// Infers dh, r, c0, c, gates, lengths?, dc? → dx, dh0, dc0.
absl::StatusOr<std::vector<Type>> InferLstmGrad(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 5));
  ASSIGN_OR_RETURN(const Extents e, ReadExtents(c.in(4).shape, c.in(1).shape, 4));
  RETURN_IF_ERROR(CheckInputShape(c, 2, e.state()));
  for (size_t i : {0, 3}) RETURN_IF_ERROR(CheckInputShape(c, i, e.all()));
  RETURN_IF_ERROR(CheckLengths(c, 5, e));
  if (c.has(6)) RETURN_IF_ERROR(CheckInputType(c, 6, {c.in(0).dtype, e.all()}));
  return Types(c.in(0).dtype, {e.all(4), e.state(), e.state()});
}

// Infers x, r, b, h0, lengths? → h, gates.
absl::StatusOr<std::vector<Type>> InferGru(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 4));
  ASSIGN_OR_RETURN(const Extents e, ReadExtents(c.in(0).shape, c.in(1).shape, 3));
  RETURN_IF_ERROR(CheckInputShape(c, 2, {3 * e.units}));
  RETURN_IF_ERROR(CheckInputShape(c, 3, e.state()));
  RETURN_IF_ERROR(CheckLengths(c, 4, e));
  return Types(c.in(0).dtype, {e.all(), e.all(4)});
}

// Infers dh, r, h0, h, gates, lengths? → dx, dq, dh0.
absl::StatusOr<std::vector<Type>> InferGruGrad(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 5));
  const Shape &dh = c.in(0).shape, &r = c.in(1).shape;
  if (dh.size() != 3 || r.size() != 2) return Invalid("expected dh [S,B,H] and recurrent weights [3·H,H]");
  ASSIGN_OR_RETURN(const Extents e, ReadExtents({dh[0], dh[1], r[0]}, r, 3));
  for (size_t i : {0, 3}) RETURN_IF_ERROR(CheckInputShape(c, i, e.all()));
  RETURN_IF_ERROR(CheckInputShape(c, 2, e.state()));
  RETURN_IF_ERROR(CheckInputShape(c, 4, e.all(4)));
  RETURN_IF_ERROR(CheckLengths(c, 5, e));
  return Types(c.in(0).dtype, {e.all(3), e.all(3), e.state()});
}

absl::Status CheckActivation(const Attrs& attrs) {
  const std::string name = attrs.String("activation");
  return name == "Tanh" || name == "Relu" ? absl::OkStatus()
                                          : Invalid("activation '", name, "' is neither Tanh nor Relu");
}

// Infers x, r, h0, lengths? → h.
absl::StatusOr<std::vector<Type>> InferRnn(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 3));
  RETURN_IF_ERROR(CheckActivation(c.attrs));
  ASSIGN_OR_RETURN(const Extents e, ReadExtents(c.in(0).shape, c.in(1).shape, 1));
  RETURN_IF_ERROR(CheckInputShape(c, 2, e.state()));
  RETURN_IF_ERROR(CheckLengths(c, 3, e));
  return Types(c.in(0).dtype, {e.all()});
}

// Infers dh, r, h, lengths? → dx, dh0.
absl::StatusOr<std::vector<Type>> InferRnnGrad(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 3));
  RETURN_IF_ERROR(CheckActivation(c.attrs));
  ASSIGN_OR_RETURN(const Extents e, ReadExtents(c.in(0).shape, c.in(1).shape, 1));
  RETURN_IF_ERROR(CheckInputShape(c, 2, e.all()));
  RETURN_IF_ERROR(CheckLengths(c, 3, e));
  return Types(c.in(0).dtype, {e.all(), e.state()});
}

bool Reversed(const Attrs& attrs) { return attrs.Int("reverse") != 0; }

std::vector<Val> DecomposeLstm(const DecomposeContext& c) {
  const Unrolled u = UnrollLstm(
      {.x = c.x(0), .r = c.x(1), .h0 = c.x(2), .c0 = c.x(3), .lengths = c.x(4), .reverse = Reversed(c.attrs)});
  return {u.h, u.c, u.gates};
}

std::vector<Val> DecomposeGru(const DecomposeContext& c) {
  const Unrolled u =
      UnrollGru({.x = c.x(0), .r = c.x(1), .b = c.x(2), .h0 = c.x(3), .lengths = c.x(4), .reverse = Reversed(c.attrs)});
  return {u.h, u.gates};
}

Val Relu(Val x) { return Unary("Relu", x); }

std::vector<Val> DecomposeRnn(const DecomposeContext& c) {
  const bool relu = c.attrs.String("activation") == "Relu";
  const Unrolled u = UnrollRnn({.x = c.x(0),
                                .r = c.x(1),
                                .h0 = c.x(2),
                                .lengths = c.x(3),
                                .reverse = Reversed(c.attrs),
                                .activations = {relu ? Relu : Tanh}});
  return {u.h};
}

// Calls f(t, where) for the steps in reverse order; `where` is the mask of the step, invalid without lengths.
template <typename F>
void ForEachStepBackward(int64_t steps, bool reverse, Val lengths, F f) {
  for (int64_t i = steps - 1; i >= 0; --i) {
    const int64_t t = reverse ? steps - 1 - i : i;
    f(t, StepMask(lengths, t));
  }
}

Val MaskedBy(Val active, Val x) { return active && x ? Masked(active, x) : x; }
Val Choose(Val active, Val now, Val before) { return active && now && before ? Where(active, now, before) : now; }

Val Stacked(std::vector<Val> steps) {
  for (Val& step : steps) step = UnsqueezeStep(step);
  return Concat(std::move(steps), 0);
}

// Returns gate k of the gates of a step.
Val Gate(Val gates, int64_t k) { return Slice(gates, 1, k * (gates.dim(1) / 4), gates.dim(1) / 4); }
Val SigmoidSlope(Val y) { return y * (1.0 - y); }
Val TanhSlope(Val y) { return 1.0 - y * y; }

std::vector<Val> DecomposeLstmGrad(const DecomposeContext& c) {
  const bool reverse = Reversed(c.attrs);
  const Val dh_all = c.x(0), r = c.x(1), cells = c.x(3), gates = c.x(4), dc_all = c.x(6);
  const Val previous = PreviousStates(cells, c.x(2), reverse);
  Val dh = ZerosLike(c.x(2)), dc = dh;
  std::vector<Val> dx(dh_all.dim(0));
  ForEachStepBackward(dh_all.dim(0), reverse, c.x(5), [&](int64_t t, Val active) {
    const Val g_t = SelectStep(gates, t), i = Gate(g_t, 0), o = Gate(g_t, 1), f = Gate(g_t, 2), g = Gate(g_t, 3);
    const Val squashed = Tanh(SelectStep(cells, t));
    const Val dy = dh + SelectStep(dh_all, t), dheld = dc_all ? dc + SelectStep(dc_all, t) : dc;
    const Val dcell = dheld + dy * o * TanhSlope(squashed);
    dx[t] = MaskedBy(active, Concat({dcell * g * SigmoidSlope(i), dy * squashed * SigmoidSlope(o),
                                     dcell * SelectStep(previous, t) * SigmoidSlope(f), dcell * i * TanhSlope(g)},
                                    1));
    dh = Choose(active, MatMul(dx[t], r), dy);
    dc = Choose(active, dcell * f, dheld);
  });
  return {Stacked(std::move(dx)), dh, dc};
}

std::vector<Val> DecomposeGruGrad(const DecomposeContext& c) {
  const bool reverse = Reversed(c.attrs);
  const Val dh_all = c.x(0), r = c.x(1), gates = c.x(4);
  const Val previous = PreviousStates(c.x(3), c.x(2), reverse);
  Val dh = ZerosLike(c.x(2));
  std::vector<Val> dx(dh_all.dim(0)), dr(dx.size());
  ForEachStepBackward(dh_all.dim(0), reverse, c.x(5), [&](int64_t t, Val active) {
    const Val g_t = SelectStep(gates, t), z = Gate(g_t, 0), reset = Gate(g_t, 1), n = Gate(g_t, 2), q = Gate(g_t, 3);
    const Val dy = dh + SelectStep(dh_all, t);
    const Val dn = dy * (1.0 - z) * TanhSlope(n);
    const Val dz = dy * (SelectStep(previous, t) - n) * SigmoidSlope(z), dreset = dn * q * SigmoidSlope(reset);
    dx[t] = MaskedBy(active, Concat({dz, dreset, dn}, 1));
    dr[t] = MaskedBy(active, Concat({dz, dreset, dn * reset}, 1));
    dh = Choose(active, dy * z + MatMul(dr[t], r), dy);
  });
  return {Stacked(std::move(dx)), Stacked(std::move(dr)), dh};
}

std::vector<Val> DecomposeRnnGrad(const DecomposeContext& c) {
  const bool relu = c.attrs.String("activation") == "Relu";
  const Val dh_all = c.x(0), r = c.x(1), h = c.x(2);
  Val dh = ZerosLike(SelectStep(h, 0));
  std::vector<Val> dx(dh_all.dim(0));
  ForEachStepBackward(dh_all.dim(0), Reversed(c.attrs), c.x(3), [&](int64_t t, Val active) {
    const Val dy = dh + SelectStep(dh_all, t), y = SelectStep(h, t);
    dx[t] = MaskedBy(active, relu ? Masked(Greater(y, 0.0), dy) : dy * TanhSlope(y));
    dh = Choose(active, MatMul(dx[t], r), dy);
  });
  return {Stacked(std::move(dx)), dh};
}

// Returns the gradient of the recurrent weights: dgatesᵀ·h summed over steps and samples.
Val WeightGrad(Val dgates, Val h) {
  auto flat = [](Val x) { return Reshape(x, {x.dim(0) * x.dim(1), x.dim(2)}); };
  return MatMul(flat(dgates), flat(h), true, false);
}

Val OrZeros(Val dy, Val y) { return dy ? dy : ZerosLike(y); }

std::vector<Val> LstmGradient(const GradContext& c) {
  const int64_t reverse = c.node.attrs.Int("reverse");
  const std::vector<Val> d = c.b.Ops(
      "LstmGrad", {OrZeros(c.dy(0), c.y(0)), c.x(1), c.x(3), c.y(1), c.y(2), c.x(4), c.dy(1)}, {{"reverse", reverse}});
  if (!d[0]) return std::vector<Val>(c.inputs.size());
  std::vector<Val> grads = {d[0], c.need(1) ? WeightGrad(d[0], PreviousStates(c.y(0), c.x(2), reverse != 0)) : Val(),
                            d[1], d[2]};
  grads.resize(c.inputs.size());
  return grads;
}

std::vector<Val> GruGradient(const GradContext& c) {
  const int64_t reverse = c.node.attrs.Int("reverse");
  const std::vector<Val> d =
      c.b.Ops("GruGrad", {OrZeros(c.dy(0), c.y(0)), c.x(1), c.x(3), c.y(0), c.y(1), c.x(4)}, {{"reverse", reverse}});
  if (!d[0]) return std::vector<Val>(c.inputs.size());
  std::vector<Val> grads = {d[0], c.need(1) ? WeightGrad(d[1], PreviousStates(c.y(0), c.x(3), reverse != 0)) : Val(),
                            c.need(2) ? ReduceSum(d[1], {0, 1}, false) : Val(), d[2]};
  grads.resize(c.inputs.size());
  return grads;
}

std::vector<Val> RnnGradient(const GradContext& c) {
  const Attrs attrs = c.node.attrs;
  const std::vector<Val> d = c.b.Ops("RnnGrad", {c.dy(), c.x(1), c.y(), c.x(3)}, attrs);
  if (!d[0]) return std::vector<Val>(c.inputs.size());
  const bool reverse = Reversed(attrs);
  std::vector<Val> grads = {d[0], c.need(1) ? WeightGrad(d[0], PreviousStates(c.y(), c.x(2), reverse)) : Val(), d[1]};
  grads.resize(c.inputs.size());
  return grads;
}

// Counts the products of S·B rows, by input 0, with the recurrent weights, input 1.
double Flops(std::span<const Type* const> in, std::span<const Type>, const Attrs&) {
  return 2.0 * static_cast<double>(in[0]->shape[0] * in[0]->shape[1]) * static_cast<double>(in[1]->elements());
}

OpRow Row(std::string_view name, Arity inputs, int outputs, TypeRule infer, Gradient gradient, Decompose decompose) {
  return {.name = name,
          .inputs = inputs,
          .outputs = outputs,
          .attrs = {{"reverse", int64_t{0}}},
          .infer = infer,
          .grad_status = gradient != nullptr ? GradStatus::kFormula : GradStatus::kNotDifferentiable,
          .gradient = gradient,
          .decompose = decompose,
          .precision = Precision::kFloat32,
          .recompute = Recompute::kExpensive,
          .flops = Flops,
          .is_gradient = gradient == nullptr,
          .init = {.roles = {WeightRole::kData, WeightRole::kRecurrentMatrix}}};
}

}  // namespace

// Rows of recurrent layers in one direction and of their backpropagation through time (Werbos, 1990; Hochreiter and
// Schmidhuber, 1997; Cho et al., 2014). The projection of the inputs and the gradient of the recurrent weights are
// separate products over all steps.
std::span<const OpRow> RecurrentOps() {
  static const std::vector<OpRow> rows = [] {
    std::vector<OpRow> all = {
        Row("Lstm", {4, 5}, 3, InferLstm, LstmGradient, DecomposeLstm),
        Row("LstmGrad", {5, 7}, 3, InferLstmGrad, nullptr, DecomposeLstmGrad),
        Row("Gru", {4, 5}, 2, InferGru, GruGradient, DecomposeGru),
        Row("GruGrad", {5, 6}, 3, InferGruGrad, nullptr, DecomposeGruGrad),
        Row("Rnn", {3, 4}, 1, InferRnn, RnnGradient, DecomposeRnn),
        Row("RnnGrad", {3, 4}, 2, InferRnnGrad, nullptr, DecomposeRnnGrad),
    };
    const AttrSpec activation{"activation", std::string("Tanh")};
    for (size_t i : {4, 5}) all[i].attrs.push_back(activation);
    return all;
  }();
  return rows;
}

}  // namespace onnxtrain
