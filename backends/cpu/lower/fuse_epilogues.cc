#include <set>
#include <span>

#include "backends/cpu/lower/passes.h"
#include "backends/cpu/ops/ops.h"
#include "frontend/passes/match.h"

namespace onnxtrain::cpu {
namespace {

using Vals = std::vector<Val>;
using Result = std::optional<Vals>;

struct Context {
  Rewriter& r;
  const Pattern& pattern;
  const std::set<std::pair<ValueId, ValueId>>& updates;  // graph outputs and the inputs that they update
  const Node& node;                                      // the root of the fusion

  const Graph& graph() const { return pattern.graph(); }
  const Type& type(ValueId v) const { return graph().type(v); }
};

// --- Matchers ---

// Returns the value before casts between f32 and bf16 that have one user.
ValueId BeforeSoleUseCasts(const Context& c, ValueId v) {
  const Node* cast = c.pattern.HasOneUse(v) && BeforeCasts(c.pattern, v) != v ? c.pattern.Producer(v, "Cast") : nullptr;
  return cast == nullptr ? v : BeforeSoleUseCasts(c, cast->inputs[0]);
}

bool IsZero(const Context& c, ValueId v) { return c.pattern.Splat(BeforeCasts(c.pattern, v)) == 0; }

// An Add whose result updates its other operand in place: a graph input without other users.
struct Accumulation {
  const Node* sum = nullptr;
  ValueId accumulator = kNoValue;
};

Accumulation FindAccumulation(const Context& c, ValueId term) {
  const Node* sum = c.pattern.SoleUser(term, "Add");
  if (sum == nullptr || !IsPlainSum(c.graph(), *sum)) return {};
  const ValueId old = OtherOperand(*sum, term);
  const bool writes_over = c.updates.contains({sum->outputs[0], old}) && c.pattern.HasOneUse(old);
  return writes_over ? Accumulation{sum, old} : Accumulation{};
}

Attrs WithRelu(const Node& node) {
  Attrs attrs = node.attrs;
  attrs.Set("activation", std::string("Relu"));
  return attrs;
}

// --- Convolutions and batch normalizations ---

// Returns true if the node's kernel is for channels last: these compute epilogues.
bool HasEpilogues(const Context& c, const Node& node) {
  const KernelRow* row = FindKernel(c.graph(), node);
  return row != nullptr && row->layout == Layout::kChannelsLast;
}

// Fuses Relu(conv). If the result of the Relu is only rounded, FoldCasts makes the convolution write bf16 and casts it
// to float32.
Result ReluAfterConv(const Context& c) {
  const ValueId x = c.node.inputs[0], y = SkipUpcast(c.pattern, x);
  const Node* conv = c.pattern.Producer(y, "Conv");
  if (conv == nullptr || !HasEpilogues(c, *conv) || !c.pattern.HasOneUse(x) || !c.pattern.HasOneUse(y))
    return std::nullopt;
  if (y != x && !IsOnlyRounded(c.pattern, c.node.outputs[0])) return std::nullopt;
  const Val fused = c.r.b().Op("cpu.Conv", c.r.MapOperands(*conv), WithRelu(*conv));
  if (y == x || !fused) return Vals{fused};
  for (int32_t n : c.pattern.users(c.node.outputs[0])) c.r.Set(c.graph().nodes()[n].outputs[0], fused);
  return Vals{Val()};
}

// Returns the residual that an Add, the sole user of the normalized value, adds to it, or kNoValue. The residual is
// computed before the normalization: if two normalizations are added, the first is the residual of the second.
ValueId FindResidual(const Context& c, ValueId y) {
  const Node* sum = c.pattern.SoleUser(y, "Add");
  const ValueId other = sum == nullptr ? kNoValue : OtherOperand(*sum, y);
  if (other == kNoValue || c.type(other) != c.type(y)) return kNoValue;
  const ValueId residual = SkipUpcast(c.pattern, other);
  return c.graph().value(residual).node < c.graph().value(y).node ? residual : kNoValue;
}

// Fuses BatchNorm (+ residual) (+ Relu). Rewrites it to cpu.BatchNorm even without either, since that has a form for
// recomputation.
Result BatchNormEpilogue(const Context& c) {
  const Node& norm = c.node;
  if (!HasEpilogues(c, norm)) return std::nullopt;
  const ValueId y = norm.outputs[0];
  const ValueId residual = FindResidual(c, y);
  const Node* sum = residual == kNoValue ? nullptr : c.pattern.SoleUser(y);
  const Node* relu = c.pattern.SoleUser(sum == nullptr ? y : sum->outputs[0], "Relu");
  Vals in = c.r.MapOperands(norm);
  if (sum != nullptr) in.push_back(Cast(c.r.Map(residual), in[0].dtype()));
  Vals out = c.r.b().Ops("cpu.BatchNorm", in, relu != nullptr ? WithRelu(norm) : norm.attrs);
  for (const Node* fused : {sum, relu}) {
    if (fused != nullptr && c.r.b().status().ok()) c.r.Set(fused->outputs[0], out[0]);
  }
  return out;
}

// Fuses BatchNormGrad of Where(Relu(BatchNorm(x)) > 0, dy, 0): the kernel recomputes the mask from x. Casts to bf16 and
// back keep the sign, and rounding commutes with the mask.
Result MaskOfBatchNormGrad(const Context& c) {
  const Node& grad = c.node;
  const Node* masked = c.pattern.Producer(BeforeSoleUseCasts(c, grad.inputs[0]), "Where");
  if (masked == nullptr || !c.pattern.HasOneUse(masked->outputs[0]) || !IsZero(c, masked->inputs[2]))
    return std::nullopt;
  const Node* positive = c.pattern.Producer(masked->inputs[0], "Greater");
  if (positive == nullptr || !IsZero(c, positive->inputs[1])) return std::nullopt;
  const Node* relu = c.pattern.Producer(BeforeCasts(c.pattern, positive->inputs[0]), "Relu");
  const Node* norm = relu == nullptr ? nullptr : c.pattern.Producer(relu->inputs[0], "BatchNorm");
  const bool same = norm != nullptr && HasEpilogues(c, grad) && norm->outputs[0] == relu->inputs[0] &&
                    norm->inputs[0] == grad.inputs[1] && norm->inputs[1] == grad.inputs[2] &&
                    norm->outputs[1] == grad.inputs[3] && norm->outputs[2] == grad.inputs[4];
  if (!same || c.type(masked->inputs[1]) != c.type(grad.inputs[1])) return std::nullopt;
  Vals in = c.r.MapOperands(grad);
  in[0] = c.r.Map(masked->inputs[1]);
  in.push_back(c.r.Map(norm->inputs[2]));
  return c.r.b().Ops("cpu.BatchNormGrad", in, WithRelu(grad));
}

// --- Reductions and scatter-adds ---

// Fuses Σx·x, so that x² is not stored.
Result SumOfSquares(const Context& c) {
  const Node* square = c.pattern.Producer(c.node.inputs[0], "Mul");
  const bool fits = square != nullptr && square->inputs[0] == square->inputs[1] &&
                    c.type(c.node.inputs[0]).dtype == DType::kFloat32 && c.pattern.HasOneUse(square->outputs[0]);
  if (!fits) return std::nullopt;
  return Vals{c.r.b().Op("cpu.ReduceSumSquares", {c.r.Map(square->inputs[0])}, c.node.attrs)};
}

Val GatherGradAdd(const Context& c, const Node& grad, ValueId old) {
  return c.r.b().Op("cpu.GatherGradAdd", {c.r.Map(grad.inputs[0]), c.r.Map(grad.inputs[1]), c.r.Map(old)}, grad.attrs);
}

// Fuses GatherGrad with the sum into an accumulator. Emitted at the gradient, not at the sum at the end of the program,
// so that live ranges of operands do not grow.
Result AccumulatedGatherGrad(const Context& c) {
  const Accumulation into = FindAccumulation(c, c.node.outputs[0]);
  if (into.sum == nullptr) return std::nullopt;
  const Val sum = GatherGradAdd(c, c.node, into.accumulator);
  if (sum) c.r.Set(into.sum->outputs[0], sum);
  return Vals{Val()};
}

// Fuses GatherGrad + a computed value without other users. Rows without an index are not accessed.
Result SumWithGatherGrad(const Context& c) {
  if (!IsPlainSum(c.graph(), c.node)) return std::nullopt;
  for (const ValueId term : c.node.inputs) {
    const ValueId old = OtherOperand(c.node, term);
    const Node* grad = c.pattern.Producer(term, "GatherGrad");
    const bool fits =
        grad != nullptr && c.pattern.HasOneUse(term) && c.pattern.HasOneUse(old) && !c.graph().IsInput(old);
    if (fits) return Vals{GatherGradAdd(c, *grad, old)};
  }
  return std::nullopt;
}

// Lets the squared norm of a gradient read it as it was rounded.
Result NormOfRounded(const Context& c) {
  const ValueId narrow = SkipUpcast(c.pattern, c.node.inputs[0]);
  if (narrow == c.node.inputs[0]) return std::nullopt;
  return Vals{c.r.b().Op(c.node.op, {c.r.Map(narrow)}, c.node.attrs)};
}

// --- Products ---

// Maps the bias; kernels of bf16 operands add a bias of either type, so that its cast is skipped.
Val MapBias(const Context& c, const ProductChain& product) {
  if (product.bias == kNoValue) return Val();
  const ValueId bias = product.IsBf16(c.graph()) ? SkipUpcast(c.pattern, product.bias) : product.bias;
  return Reinterpret(c.r.Map(bias), {c.type(bias).dtype, {c.type(product.node->outputs[0]).shape.back()}});
}

// Fuses act(a·b + bias) or accumulator += a·b, in the type of the last node. Emitted at the last node, since the bias
// may be computed after the product.
Result ProductEpilogue(const Context& c) {
  const ValueId y = c.node.outputs[0];
  if (!IsMultiplied(c.type(y).dtype)) return std::nullopt;
  const ValueId exact = c.pattern.BeforeCast(y, DType::kFloat32, DType::kBFloat16);
  const bool rounds = exact != kNoValue && c.pattern.HasOneUse(exact);
  const ProductChain product = FindProduct(c.pattern, rounds ? exact : y, ProductChain::kExact);
  if (product.node == nullptr || (rounds && !product.IsBf16(c.graph()))) return std::nullopt;
  const bool adds = !product.relu && c.type(y).shape == c.type(product.node->outputs[0]).shape;
  const Accumulation into = adds ? FindAccumulation(c, y) : Accumulation();
  if (product.node == &c.node && into.sum == nullptr) return std::nullopt;
  Vals in = c.r.MapOperands(*product.node);
  in.push_back(MapBias(c, product));
  in.push_back(c.r.Map(into.accumulator));
  Attrs attrs = product.relu ? WithRelu(*product.node) : product.node->attrs;
  attrs.Erase("to");
  if (c.type(y).dtype != in[0].dtype()) attrs.Set("to", std::string(ToString(c.type(y).dtype)));
  const Val out = Reinterpret(c.r.b().Op("cpu.MatMul", in, attrs), c.type(y));
  if (into.sum == nullptr || !out) return Vals{out};
  c.r.Set(into.sum->outputs[0], out);
  return Vals{Val()};
}

// --- The table ---

// `apply` checks the condition at a root and returns the replacement of its outputs; it may set the outputs of users
// that it fused (Rewriter::Set).
struct Fusion {
  std::string_view root;
  Result (*apply)(const Context&);
};

// Part of Legalize, since the fused operators have forms for recomputation.
constexpr Fusion kBatchNorms[] = {
    {"BatchNorm", BatchNormEpilogue},  // act(norm + residual)
    {"BatchNormGrad", MaskOfBatchNormGrad},
};

constexpr Fusion kEpilogues[] = {
    {"MatMul", ProductEpilogue},      // accumulator += a·b
    {"cpu.MatMul", ProductEpilogue},  // the same, of bf16
    {"Add", ProductEpilogue},         // a·b + bias
    {"Relu", ProductEpilogue},        // of either
    {"Cast", ProductEpilogue},        // of either to bf16 or f32
    {"Relu", ReluAfterConv},
    {"ReduceSum", SumOfSquares},
    {"SquaredNorm", NormOfRounded},         // of the gradient as the product wrote it
    {"GatherGrad", AccumulatedGatherGrad},  // accumulator += scatter
    {"Add", SumWithGatherGrad},
};

// The first row that matches wins.
absl::StatusOr<Graph> Apply(const Graph& graph, std::span<const Fusion> table, ValueMap* values = nullptr) {
  const Pattern pattern(graph);
  std::set<std::pair<ValueId, ValueId>> updates;
  for (const GraphOutput& output : graph.outputs()) updates.emplace(output.value, output.into);
  const auto rule = [&](Rewriter& r, const Node& node) -> Result {
    for (const Fusion& fusion : table) {
      if (fusion.root != node.op) continue;
      if (Result result = fusion.apply({r, pattern, updates, node})) return result;
    }
    return std::nullopt;
  };
  return Rewrite(graph, rule, nullptr, values);
}

}  // namespace

absl::StatusOr<Graph> LowerBatchNorms(const Graph& graph) { return Apply(graph, kBatchNorms); }

absl::StatusOr<Graph> FuseEpilogues(const Graph& graph, ValueMap* values) { return Apply(graph, kEpilogues, values); }

}  // namespace onnxtrain::cpu
