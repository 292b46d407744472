// Imports LSTM, GRU and RNN as one canonical recurrence per direction, or, for rare variants (other activations, clip,
// peepholes, coupled gates, reset before the recurrent matrix product), as unrolled steps. Imports ReverseSequence.
#include <algorithm>
#include <cctype>

#include "absl/strings/str_split.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/ops/recurrent.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMaxUnrolled = 4096;  // limit for unrolled steps

Val WithAlpha(std::string_view op, Val x, double alpha) { return x ? x.b().Op(op, {x}, {{"alpha", alpha}}) : x; }

using Parametric = Val (*)(Val x, double alpha, double beta);

struct ActivationKind {
  std::string_view name;  // lower case
  Parametric apply;
  double alpha = 0, beta = 0;  // default parameters
  int parameters = 0;          // number of parameters
};

constexpr ActivationKind kActivations[] = {
    {"sigmoid", [](Val x, double, double) { return Sigmoid(x); }},
    {"tanh", [](Val x, double, double) { return Tanh(x); }},
    {"relu", [](Val x, double, double) { return Unary("Relu", x); }},
    {"softsign", [](Val x, double, double) { return Unary("Softsign", x); }},
    {"softplus", [](Val x, double, double) { return Unary("Softplus", x); }},
    {"affine", [](Val x, double a, double b) { return x * a + b; }, 1, 0, 2},
    {"leakyrelu", [](Val x, double a, double) { return WithAlpha("LeakyRelu", x, a); }, 0.01, 0, 1},
    {"thresholdedrelu", [](Val x, double a, double) { return WithAlpha("ThresholdedRelu", x, a); }, 1, 0, 1},
    {"elu", [](Val x, double a, double) { return WithAlpha("Elu", x, a); }, 1, 0, 1},
    {"scaledtanh", [](Val x, double a, double b) { return Tanh(x * b) * a; }, 1, 1, 2},
    {"hardsigmoid",
     [](Val x, double a, double b) {
       return x ? x.b().Op("HardSigmoid", {x}, {{"alpha", a}, {"beta", b}}) : x;
     },
     0.2, 0.5, 2},
};

struct NamedActivation {
  std::string_view name;
  Activation apply;
};

// Returns the activations of all directions, or none if the node lists none. The lists of parameters are distributed in
// order to the activations that have parameters.
absl::StatusOr<std::vector<NamedActivation>> ReadActivations(ImportContext& c, size_t expected) {
  std::vector<NamedActivation> result;
  const std::string list = c.attrs().String("activations");
  if (list.empty()) return result;
  const std::vector<double> alphas = c.attrs().Floats("activation_alpha"), betas = c.attrs().Floats("activation_beta");
  size_t next_alpha = 0, next_beta = 0;
  for (std::string name : std::vector<std::string>(absl::StrSplit(list, '\n'))) {
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char ch) { return std::tolower(ch); });
    auto kind =
        std::find_if(std::begin(kActivations), std::end(kActivations), [&](const auto& k) { return k.name == name; });
    if (kind == std::end(kActivations)) return Unsupported(StrCat("the activation '", name, "'"));
    const bool has_alpha = kind->parameters > 0 && next_alpha < alphas.size();
    const bool has_beta = kind->parameters > 1 && next_beta < betas.size();
    const double alpha = has_alpha ? alphas[next_alpha++] : kind->alpha,
                 beta = has_beta ? betas[next_beta++] : kind->beta;
    result.push_back({kind->name, [apply = kind->apply, alpha, beta](Val x) { return x ? apply(x, alpha, beta) : x; }});
  }
  if (result.size() != expected) return Invalid("lists ", result.size(), " activations, expected ", expected);
  return result;
}

struct Layer {
  int64_t gates, directions, first_reverse;  // first_reverse: index of the reverse direction, if there is one
  int64_t steps, batch, features, units;
  bool batch_first;
  Val x;                                     // [S,B,I]
  Val lengths;                               // i64[B] or absent
  std::vector<NamedActivation> activations;  // `per_direction` for each direction, or empty
  size_t per_direction;
};

// Returns x[d] of x [D,…].
Val OfDirection(Val x, int64_t d) { return SelectStep(x, d); }

absl::Status ExpectShape(Val v, std::string_view what, const Shape& shape) {
  if (v.shape() == shape) return absl::OkStatus();
  return Invalid(what, " should be ", ToString(shape), ", got ", ToString(v.type()));
}

absl::StatusOr<Val> ReadLengths(ImportContext& c, const Layer& layer) {
  const Val lengths = c.in(4);
  if (!lengths) return lengths;
  const HostTensor* known = c.Known(4);
  if (known != nullptr && IsInteger(known->dtype())) {
    const std::vector<int64_t> values = known->ToInts();
    for (int64_t n : values) {
      if (n < 0 || n > layer.steps) return Invalid("sequence_lens holds ", n, " for ", layer.steps, " steps");
    }
    if (std::all_of(values.begin(), values.end(), [&](int64_t n) { return n == layer.steps; })) return Val();
  }
  if (!IsInteger(lengths.dtype())) return Invalid("sequence_lens should be integers, got ", ToString(lengths.type()));
  RETURN_IF_ERROR(ExpectShape(lengths, "sequence_lens", {layer.batch}));
  return Cast(lengths, DType::kInt64);
}

absl::Status ReadDirection(ImportContext& c, Layer* layer) {
  const std::string direction = c.attrs().String("direction", "forward");
  layer->directions = direction == "bidirectional" ? 2 : 1;
  layer->first_reverse = direction == "bidirectional" ? 1 : direction == "reverse" ? 0 : 2;
  if (layer->directions == 1 && direction != "forward" && direction != "reverse")
    return Invalid("has the direction '", direction, "'");
  return absl::OkStatus();
}

absl::StatusOr<Layer> ReadLayer(ImportContext& c, int64_t gates, size_t activations) {
  Layer layer{.gates = gates, .per_direction = activations};
  RETURN_IF_ERROR(ReadDirection(c, &layer));
  layer.batch_first = c.attrs().Int("layout", 0) != 0;
  const Val x = c.in(0), w = c.in(1), r = c.in(2);
  if (x.rank() != 3 || w.rank() != 3 || r.rank() != 3) {
    return Invalid("expected X, W and R of 3 axes, got ", ToString(x.type()), ", ", ToString(w.type()), ", ",
                   ToString(r.type()));
  }
  if (!IsFloat(x.dtype()) || w.dtype() != x.dtype() || r.dtype() != x.dtype()) {
    return Invalid("X, W and R should have one float type, got ", ToString(x.type()), ", ", ToString(w.type()), ", ",
                   ToString(r.type()));
  }
  layer.x = layer.batch_first ? Transpose(x, {1, 0, 2}) : x;
  layer.steps = layer.x.dim(0), layer.batch = layer.x.dim(1), layer.features = layer.x.dim(2), layer.units = r.dim(2);
  if (layer.steps < 1 || layer.batch < 1 || layer.units < 1)
    return Invalid("has nothing to do for X ", ToString(x.type()), " and R ", ToString(r.type()));
  if (c.attrs().Int("hidden_size", layer.units) != layer.units)
    return Invalid("hidden_size is ", c.attrs().Int("hidden_size"), ", R is ", ToString(r.type()));
  RETURN_IF_ERROR(ExpectShape(w, "W", {layer.directions, gates * layer.units, layer.features}));
  RETURN_IF_ERROR(ExpectShape(r, "R", {layer.directions, gates * layer.units, layer.units}));
  if (c.has(3)) RETURN_IF_ERROR(ExpectShape(c.in(3), "B", {layer.directions, 2 * gates * layer.units}));
  ASSIGN_OR_RETURN(layer.lengths, ReadLengths(c, layer));
  ASSIGN_OR_RETURN(layer.activations, ReadActivations(c, activations * layer.directions));
  return layer;
}

// Returns true for an initial state in the file that is all zeros, of any batch size.
bool IsZeroState(ImportContext& c, size_t i) {
  const bool written = c.in(i).constant() != nullptr || c.b().graph().IsInput(c.in(i).id());
  const HostTensor* known = written && !c.conformance ? c.Known(i) : nullptr;
  if (known == nullptr) return false;
  for (int64_t k = 0; k < known->size(); ++k) {
    if (known->At(k) != 0) return false;
  }
  return true;
}

// Returns initial_h or initial_c of one direction, [B,H].
absl::StatusOr<Val> InitialState(ImportContext& c, const Layer& layer, size_t i, int64_t d) {
  const Shape state = {layer.batch, layer.units};
  const bool fits = c.has(i) && (c.in(i).rank() != 3 || c.in(i).dim(2) == layer.units);
  if (!c.has(i) || (fits && IsZeroState(c, i))) return Expand(c.b().Scalar(layer.x.dtype(), 0), state);
  Val v = c.in(i);
  if (v.rank() != 3) return Invalid("an initial state should have 3 axes, got ", ToString(v.type()));
  if (layer.batch_first) v = Transpose(v, {1, 0, 2});
  if (v.dim(1) == 1 && layer.batch > 1) v = Expand(v, {v.dim(0), layer.batch, v.dim(2)});
  RETURN_IF_ERROR(ExpectShape(v, "an initial state", {layer.directions, layer.batch, layer.units}));
  return OfDirection(v, d);
}

struct Biases {
  Val w, r;  // [G·H]; invalid if absent
};

Biases ReadBiases(ImportContext& c, const Layer& layer, int64_t d) {
  if (!c.has(3)) return {};
  const Val both = OfDirection(c.in(3), d);
  const int64_t n = layer.gates * layer.units;
  return {Slice(both, 0, 0, n), c.attrs().Has(kSingleBias) ? Val() : Slice(both, 0, n, n)};
}

// Reads one direction: recurrent weights, states, and the projected inputs plus both biases or, with `separate_bias`,
// only the input bias.
absl::StatusOr<Recurrence> ReadRecurrence(ImportContext& c, const Layer& layer, int64_t d, bool separate_bias) {
  Recurrence one;
  const Biases biases = ReadBiases(c, layer, d);
  one.x = MatMul(layer.x, OfDirection(c.in(1), d), false, true);
  if (biases.w) one.x = one.x + (separate_bias || !biases.r ? biases.w : biases.w + biases.r);
  if (separate_bias)
    one.b = biases.r ? biases.r : Expand(c.b().Scalar(layer.x.dtype(), 0), {layer.gates * layer.units});
  one.r = OfDirection(c.in(2), d);
  ASSIGN_OR_RETURN(one.h0, InitialState(c, layer, 5, d));
  one.lengths = layer.lengths;
  one.reverse = d >= layer.first_reverse;
  one.clip = c.attrs().Float("clip", 0);
  if (!(one.clip >= 0)) return Invalid("clip is ", one.clip);
  for (size_t i = 0; i < layer.per_direction && !layer.activations.empty(); ++i) {
    one.activations.push_back(layer.activations[static_cast<size_t>(d) * layer.per_direction + i].apply);
  }
  return one;
}

bool HasActivations(const Layer& layer, int64_t d, std::initializer_list<std::string_view> names) {
  if (layer.activations.empty()) return true;
  size_t i = static_cast<size_t>(d) * layer.per_direction;
  return std::all_of(names.begin(), names.end(),
                     [&](std::string_view name) { return layer.activations[i++].name == name; });
}

absl::Status MayUnroll(const Layer& layer) {
  if (layer.steps <= kMaxUnrolled) return absl::OkStatus();
  return Unsupported(StrCat("writing out ", layer.steps, " steps, which this form needs (at most ", kMaxUnrolled, ")"));
}

// Sets the states h [S,B,H] after the lengths to 0.
absl::StatusOr<Val> WithinLengths(Val h, Val lengths) {
  if (!lengths || !h) return h;
  const int64_t steps = h.dim(0);
  ASSIGN_OR_RETURN(const Val numbers, Iota(h.b(), steps));
  const Val within = Less(Reshape(numbers, {steps, 1}), Reshape(lengths, {1, lengths.dim(0)}));
  return Masked(Reshape(within, {steps, lengths.dim(0), 1}), h);
}

// Stacks one value per direction along a new axis.
Val StackDirections(const std::vector<Val>& parts, int64_t axis) {
  std::vector<Val> wide;
  for (Val part : parts) {
    if (!part) return part;
    Shape shape = part.shape();
    shape.insert(shape.begin() + axis, 1);
    wide.push_back(Reshape(part, std::move(shape)));
  }
  return wide.size() == 1 ? wide[0] : Concat(std::move(wide), axis);
}

// Returns Y, Y_h, Y_c from the results of all directions.
ImportOr Outputs(ImportContext& c, const Layer& layer, const std::vector<Unrolled>& directions) {
  std::vector<Val> y, h, cell;
  for (size_t d = 0; d < directions.size(); ++d) {
    const bool reverse = static_cast<int64_t>(d) >= layer.first_reverse;
    const int64_t last = reverse ? 0 : layer.steps - 1;
    ASSIGN_OR_RETURN(y.emplace_back(), WithinLengths(directions[d].h, layer.lengths));
    h.push_back(SelectStep(directions[d].h, last));
    if (directions[d].c) cell.push_back(SelectStep(directions[d].c, last));
  }
  RETURN_IF_ERROR(c.b().status());
  Val all = StackDirections(y, 1), final_h = StackDirections(h, 0),
      final_c = cell.empty() ? Val() : StackDirections(cell, 0);
  if (layer.batch_first) {
    all = Transpose(all, {2, 0, 1, 3});
    final_h = Transpose(final_h, {1, 0, 2});
    if (final_c) final_c = Transpose(final_c, {1, 0, 2});
  }
  return std::vector<Val>{all, final_h, final_c};
}

ImportOr ImportLstm(ImportContext& c) {
  ASSIGN_OR_RETURN(const Layer layer, ReadLayer(c, 4, 3));
  const bool coupled = c.attrs().Int("input_forget", 0) != 0;
  if (c.has(7)) RETURN_IF_ERROR(ExpectShape(c.in(7), "P", {layer.directions, 3 * layer.units}));
  std::vector<Unrolled> directions;
  for (int64_t d = 0; d < layer.directions; ++d) {
    ASSIGN_OR_RETURN(Recurrence one, ReadRecurrence(c, layer, d, false));
    ASSIGN_OR_RETURN(one.c0, InitialState(c, layer, 6, d));
    if (one.clip == 0 && !coupled && !c.has(7) && HasActivations(layer, d, {"sigmoid", "tanh", "tanh"})) {
      const auto y =
          c.b().Ops("Lstm", {one.x, one.r, one.h0, one.c0, one.lengths}, {{"reverse", int64_t{one.reverse}}});
      directions.push_back({y[0], y[1], Val()});
      continue;
    }
    RETURN_IF_ERROR(MayUnroll(layer));
    one.input_forget = coupled;
    if (c.has(7)) one.peephole = OfDirection(c.in(7), d);
    directions.push_back(UnrollLstm(one));
  }
  return Outputs(c, layer, directions);
}

ImportOr ImportGru(ImportContext& c) {
  ASSIGN_OR_RETURN(const Layer layer, ReadLayer(c, 3, 2));
  const bool linear = c.attrs().Int("linear_before_reset", 0) != 0;
  std::vector<Unrolled> directions;
  for (int64_t d = 0; d < layer.directions; ++d) {
    ASSIGN_OR_RETURN(Recurrence one, ReadRecurrence(c, layer, d, linear));
    if (one.clip == 0 && linear && HasActivations(layer, d, {"sigmoid", "tanh"})) {
      const Val h = c.b().Op("Gru", {one.x, one.r, one.b, one.h0, one.lengths}, {{"reverse", int64_t{one.reverse}}});
      directions.push_back({h, Val(), Val()});
      continue;
    }
    RETURN_IF_ERROR(MayUnroll(layer));
    one.linear_before_reset = linear;
    directions.push_back(UnrollGru(one));
  }
  return Outputs(c, layer, directions);
}

ImportOr ImportRnn(ImportContext& c) {
  ASSIGN_OR_RETURN(const Layer layer, ReadLayer(c, 1, 1));
  std::vector<Unrolled> directions;
  for (int64_t d = 0; d < layer.directions; ++d) {
    ASSIGN_OR_RETURN(Recurrence one, ReadRecurrence(c, layer, d, false));
    const bool tanh = HasActivations(layer, d, {"tanh"});
    if (one.clip == 0 && (tanh || HasActivations(layer, d, {"relu"}))) {
      const Val h = c.b().Op("Rnn", {one.x, one.r, one.h0, one.lengths},
                             {{"reverse", int64_t{one.reverse}}, {"activation", std::string(tanh ? "Tanh" : "Relu")}});
      directions.push_back({h, Val(), Val()});
      continue;
    }
    RETURN_IF_ERROR(MayUnroll(layer));
    directions.push_back(UnrollRnn(one));
  }
  return Outputs(c, layer, directions);
}

// Imports ReverseSequence: y[t,b] = x[len[b]−1−t, b] for t < len[b], otherwise x[t,b].
ImportOr ImportReverseSequence(ImportContext& c) {
  const Val x = c.in(0), lengths = c.in(1);
  const int64_t batch_axis = c.attrs().Int("batch_axis", 1), time_axis = c.attrs().Int("time_axis", 0);
  const bool known_axes = (batch_axis == 0 && time_axis == 1) || (batch_axis == 1 && time_axis == 0);
  if (x.rank() < 2 || !known_axes)
    return Invalid("cannot reverse axis ", time_axis, " of ", ToString(x.type()), " for each of axis ", batch_axis);
  const int64_t steps = x.dim(static_cast<int>(time_axis)), batch = x.dim(static_cast<int>(batch_axis));
  if (!IsInteger(lengths.dtype())) return Invalid("sequence_lens should be integers, got ", ToString(lengths.type()));
  RETURN_IF_ERROR(ExpectShape(lengths, "sequence_lens", {batch}));
  if (const HostTensor* known = c.Known(1)) {
    for (int64_t n : known->ToInts()) {
      if (n < 0 || n > steps) return Invalid("sequence_lens holds ", n, " for ", steps, " steps");
    }
  }
  ASSIGN_OR_RETURN(const Val numbers, Iota(c.b(), steps));
  const bool time_first = time_axis == 0;
  const Val t = Reshape(numbers, time_first ? Shape{steps, 1} : Shape{1, steps});
  const Val n = Reshape(Cast(lengths, DType::kInt64), time_first ? Shape{1, batch} : Shape{batch, 1});
  const Val one = c.b().Scalar(DType::kInt64, 1);
  Val index = Where(Less(t, n), n - one - t, t);
  Shape shape = x.shape();
  Shape wide(shape.size(), 1);
  std::copy(shape.begin(), shape.begin() + 2, wide.begin());
  index = Expand(Reshape(index, std::move(wide)), shape);
  return One(c.b().Op("GatherElements", {x, index}, {{"axis", time_axis}}));
}

}  // namespace

std::span<const OnnxOp> RecurrentImports() {
  static constexpr OnnxOp kOps[] = {{"", "LSTM", 3, 8, ImportLstm, {.time_major = true, .weight_inputs = 0b10001110}},
                                    {"", "GRU", 3, 6, ImportGru, {.time_major = true, .weight_inputs = 0b1110}},
                                    {"", "RNN", 3, 6, ImportRnn, {.time_major = true, .weight_inputs = 0b1110}},
                                    {"", "ReverseSequence", 2, 2, ImportReverseSequence}};
  return kOps;
}

}  // namespace onnxtrain
