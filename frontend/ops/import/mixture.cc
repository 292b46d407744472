// Imports MoE and QMoE, the mixtures of experts of com.microsoft (ContribOperators.md of ONNX Runtime; the routing of
// QMoE as its CPU kernel computes it).
//
// Each token has k rows, one for each expert that it chose. The weights of the router multiply the activations; the sum
// over the rows of a token follows fc2.
#include "frontend/ops/import/mixture.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/grouped_product.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/import/quantize.h"

namespace onnxtrain {
namespace {

constexpr std::string_view kMs = "com.microsoft";

constexpr ExpertLayer kFloatLayers[] = {
    {.weight = 2, .bias = 3, .update = 8},
    {.weight = 4, .bias = 5, .update = 11},
    {.weight = 6, .bias = 7, .update = 14},
};
constexpr ExpertLayer kQuantizedLayers[] = {
    {.weight = 2, .bias = 4, .scale = 3, .zero = 11, .bits = "fc1_expert_weight_bits", .update = 21},
    {.weight = 5, .bias = 7, .scale = 6, .zero = 12, .bits = "fc2_expert_weight_bits", .update = 24},
    {.weight = 8, .bias = 10, .scale = 9, .zero = 13, .bits = "fc3_expert_weight_bits", .update = 27},
};
constexpr size_t kUpdateInputs = 9;
constexpr size_t kRouterWeights = 14;  // of QMoE

}  // namespace

std::span<const ExpertLayer> FindExpertLayers(std::string_view domain, std::string_view op_type) {
  if (domain != kMs) return {};
  if (op_type == "MoE") return kFloatLayers;
  return op_type == "QMoE" ? std::span<const ExpertLayer>(kQuantizedLayers) : std::span<const ExpertLayer>();
}

absl::StatusOr<int64_t> ReadExpertBits(const ExpertLayer& layer, const Attrs& attrs) {
  const int64_t bits = attrs.Int(layer.bits, attrs.Int("expert_weight_bits", 4));
  if (bits == 2 || bits == 4 || bits == 8) return bits;
  return Unsupported(StrCat("experts of ", bits, " bits"));
}

std::optional<ExpertStack> ReadExpertStack(const ExpertLayer& layer, const Attrs& attrs, const Shape& weight) {
  if (weight.size() != 3 || NumElements(weight) == 0) return std::nullopt;
  const bool packed = layer.scale != ExpertLayer::kNone;
  const absl::StatusOr<int64_t> bits = packed ? ReadExpertBits(layer, attrs) : int64_t{8};
  return bits.ok() ? std::optional<ExpertStack>({weight[0], weight[1], weight[2] * 8 / *bits}) : std::nullopt;
}

absl::StatusOr<QuantizedMatrix> ReadExpertMatrix(const ExpertLayer& layer, const Attrs& attrs, const ExpertStack& stack,
                                                 const Shape& scale) {
  ASSIGN_OR_RETURN(const int64_t bits, ReadExpertBits(layer, attrs));
  const int64_t whole = std::max<int64_t>(stack.inputs, 1), block = attrs.Int("block_size");
  QuantizedMatrix m{.rows = stack.rows(),
                    .columns = stack.inputs,
                    .bits = bits,
                    .block_columns = block > 0 ? std::min(block, whole) : whole,
                    .zero_bits = bits,
                    .zero = static_cast<double>(int64_t{1} << (bits - 1))};
  if (NumElements(scale) != m.rows * m.scale_columns())
    return Invalid("scales ", ToString(scale), " beside ", stack.experts, " experts of ", stack.outputs, " by ",
                   stack.inputs, " numbers in blocks of ", m.block_columns);
  return m;
}

namespace {

// A layer of all experts as one matrix [experts·outputs, inputs].
struct Layer {
  ExpertStack stack;
  QuantizedOperands matrix;  // as it is stored
  Val bias;                  // [experts, outputs]; may be invalid
  Val a, b, scale;  // A [experts·rank, inputs] and B [outputs, rank·experts] of a low-rank update, or invalid
};

// Returns the zero points of the matrix: packed along the blocks of a row as the numbers are or, with one for each row,
// along the rows of an expert, which are unpacked.
absl::StatusOr<Val> ReadZeros(ImportContext& c, size_t input, const ExpertStack& stack, QuantizedMatrix* m) {
  const Type type = c.in(input).type();
  if (c.attrs().Int("block_size") > 0 || m->bits == 8) {
    if (type.elements() == m->rows * m->zero_row_bytes()) return Reshape(c.in(input), {m->rows, m->zero_row_bytes()});
  } else if (const int64_t bytes = (stack.outputs * m->bits + 7) / 8; type.elements() == stack.experts * bytes) {
    const HostTensor* packed = c.Known(input);
    if (packed == nullptr || packed->dtype() != DType::kUInt8) return Unsupported("zero points that are computed");
    m->zero_bits = 8;
    return c.b().Constant(
        UnpackNumbers(packed->Reshaped({stack.experts, bytes}), m->bits, stack.outputs).Reshaped({m->rows, 1}));
  }
  return Invalid("zero points ", ToString(type), " beside ", m->rows, " by ", m->scale_columns(), " scales");
}

absl::StatusOr<QuantizedOperands> ReadBlocks(ImportContext& c, const ExpertLayer& inputs, const ExpertStack& stack) {
  const Val q = c.in(inputs.weight), scale = c.in(inputs.scale);
  if (!scale) return Invalid("input ", inputs.scale, " with scales is missing");
  QuantizedOperands w;
  ASSIGN_OR_RETURN(w.matrix, ReadExpertMatrix(inputs, c.attrs(), stack, scale.shape()));
  w.q = Reshape(q, {stack.rows(), q.type().elements() / stack.rows()});
  w.scale = Reshape(scale, {stack.rows(), w.matrix.scale_columns()});
  if (c.has(inputs.zero)) {
    ASSIGN_OR_RETURN(w.zero, ReadZeros(c, inputs.zero, stack, &w.matrix));
  }
  return w;
}

// Returns the matrix of half precision that the floats of a frozen stack are computed from; nothing if there is none.
std::optional<QuantizedOperands> FindStored(Val floats, const ExpertStack& stack) {
  const Node* node = floats ? floats.b().graph().producer(floats.id()) : nullptr;
  if (node == nullptr || node->op != "Reshape") return std::nullopt;
  bool transposed = false;
  auto stored = FindDequantized(floats.b().Wrap(node->inputs[0]), &transposed);
  const bool fits = stored && !transposed && stored->matrix.rows == stack.rows() &&
                    stored->matrix.columns == stack.inputs && stored->matrix.has_floats();
  return fits ? stored : std::nullopt;
}

// Reads a layer with as many inputs or outputs as tokens have elements. The shape of the stack may have its last two
// axes in the other order, which ONNX Runtime accepts from older files.
absl::StatusOr<Layer> ReadLayer(ImportContext& c, const ExpertLayer& inputs, int64_t experts, int64_t width,
                                bool to_tokens) {
  const Type type = c.in(inputs.weight).type();
  const bool quantized = inputs.scale != ExpertLayer::kNone;
  ASSIGN_OR_RETURN(const int64_t bits, quantized ? ReadExpertBits(inputs, c.attrs()) : int64_t{8});
  const int64_t numbers = type.elements() * 8 / bits;
  if (type.rank() != 3 || type.shape[0] != experts || experts < 1 || width < 1 || numbers % (experts * width) != 0 ||
      numbers == 0 || (quantized ? type.dtype != DType::kUInt8 : !IsFloat(type.dtype)))
    return Invalid("weights ", ToString(type), " are no stack of ", experts, " matrices for tokens of ", width,
                   " elements");
  const int64_t other = numbers / (experts * width);
  Layer layer{.stack = {experts, to_tokens ? width : other, to_tokens ? other : width}};
  if (quantized) {
    ASSIGN_OR_RETURN(layer.matrix, ReadBlocks(c, inputs, layer.stack));
  } else if (const auto stored = FindStored(c.in(inputs.weight), layer.stack)) {
    layer.matrix = *stored;
  } else {
    layer.matrix = FloatOperands(Reshape(c.in(inputs.weight), {layer.stack.rows(), layer.stack.inputs}));
  }
  if (c.has(inputs.bias)) layer.bias = Reshape(c.in(inputs.bias), {experts, layer.stack.outputs});
  if (c.has(inputs.update)) {
    layer.a = c.in(inputs.update);
    layer.b = c.in(inputs.update + 1);
    layer.scale = c.in(inputs.update + 2);
  }
  return layer;
}

// Returns B of all experts below each other, [experts·outputs, rank].
Val UpdateOfExperts(const Layer& layer) {
  const int64_t experts = layer.stack.experts, outputs = layer.stack.outputs, rank = layer.a.dim(0) / experts;
  return Reshape(Transpose(Reshape(layer.b, {outputs, rank, experts}), {2, 0, 1}), {experts * outputs, rank});
}

// Returns x·Wᵀ with the expert of each row and its update, [rows, outputs], for rows or tokens x.
Val Multiply(const Layer& layer, Val x, Val ids) {
  const int64_t experts = layer.stack.experts;
  const Val y = GroupedMatMul(x, ids, layer.matrix, experts, true);
  if (!layer.a) return y;
  const Val down = GroupedMatMul(x, ids, FloatOperands(layer.a), experts, true) * layer.scale;
  return y + GroupedMatMul(down, ids, FloatOperands(UpdateOfExperts(layer)), experts, true);
}

// Returns the bias of each row's expert.
Val BiasOfRows(const Layer& layer, Val ids) { return Gather(layer.bias, ids, 0); }

Val ComputeRows(const Layer& layer, Val x, Val ids) {
  const Val y = Multiply(layer, x, ids);
  return layer.bias ? y + BiasOfRows(layer, ids) : y;
}

// The gate and the value of each unit, [rows, units].
struct Gated {
  Val gate, value;
};

// Splits the outputs of fc1: gate and value alternate (`fusion` 1), or all values follow the gates (2).
Gated SplitGates(Val x, int64_t fusion) {
  const int64_t rows = x.dim(0), units = x.dim(1) / 2;
  const bool alternate = fusion == 1;
  const std::vector<Val> halves =
      x.b().Ops("Split", {Reshape(x, alternate ? Shape{rows, units, 2} : Shape{rows, 2, units})},
                {{"axis", int64_t{alternate ? 2 : 1}}, {"sizes", Shape{1, 1}}, {"num_outputs", int64_t{2}}});
  return {Reshape(halves[0], {rows, units}), Reshape(halves[1], {rows, units})};
}

Val Identity(Val x) { return x; }
Val Relu(Val x) { return Unary("Relu", x); }
Val SquaredRelu(Val x) { return Relu(x) * Relu(x); }
Val Gelu(Val x) { return x ? x.b().Op("Gelu", {x}, {{"approximate", std::string("tanh")}}) : x; }
Val Silu(Val x) { return x * Sigmoid(x); }

// Returns G·sigmoid(alpha·G)·(L + beta) with gates G below the limit and values L within it, or with the activated
// gates below it.
Val SwiGlu(const Attrs& attrs, const Gated& x) {
  const double limit = attrs.Float("swiglu_limit", std::numeric_limits<double>::infinity());
  const bool limited = limit < std::numeric_limits<double>::infinity();
  const bool after = attrs.Int("swiglu_limit_after_activation") != 0;
  const Val g = limited && !after ? Min(x.gate, limit) : x.gate;
  const Val activated = g * Sigmoid(g * attrs.Float("activation_alpha", 1));
  const Val gate = limited && after ? Min(activated, limit) : activated;
  const Val value = limited ? x.value.b().Op("Clip", {x.value}, {{"min", -limit}, {"max", limit}}) : x.value;
  return gate * (value + attrs.Float("activation_beta", 0));
}

struct Activation {
  std::string_view name;
  Val (*apply)(Val);   // null: SwiGLU
  bool gated = false;  // fc1 computes the values as well if there is no fc3
};
constexpr Activation kActivations[] = {
    {"relu", Relu},         {"gelu", Gelu},         {"silu", Silu},
    {"identity", Identity}, {"relu2", SquaredRelu}, {"swiglu", nullptr, true},
    {"geglu", Gelu, true},
};

absl::StatusOr<Activation> FindActivation(const Attrs& attrs) {
  const std::string name = attrs.String("activation_type", "relu");
  for (const Activation& activation : kActivations) {
    if (activation.name == name) return activation;
  }
  return Unsupported(StrCat("the activation_type '", Printable(name), "'"));
}

// The layers of all experts.
struct Experts {
  Activation activation;
  int64_t fusion = 0;
  Layer fc1, fc2;
  std::optional<Layer> fc3;

  bool is_fused() const { return activation.gated && !fc3; }
  int64_t units() const { return fc1.stack.outputs / (is_fused() ? 2 : 1); }
};

absl::StatusOr<Experts> ReadExperts(ImportContext& c, int64_t count, int64_t width) {
  const std::span<const ExpertLayer> inputs = FindExpertLayers(c.node().domain, c.node().op_type);
  Experts e{.fusion = c.attrs().Int("swiglu_fusion")};
  ASSIGN_OR_RETURN(e.activation, FindActivation(c.attrs()));
  ASSIGN_OR_RETURN(e.fc1, ReadLayer(c, inputs[0], count, width, false));
  ASSIGN_OR_RETURN(e.fc2, ReadLayer(c, inputs[1], count, width, true));
  if (c.has(inputs[2].weight)) {
    ASSIGN_OR_RETURN(e.fc3, ReadLayer(c, inputs[2], count, width, false));
  }
  if (e.is_fused() && e.fusion != 1 && e.fusion != 2)
    return Invalid("swiglu_fusion is ", e.fusion, ", but there is no input ", inputs[2].weight, " with fc3");
  if (e.fc1.stack.outputs != e.units() * (e.is_fused() ? 2 : 1) || e.units() != e.fc2.stack.inputs ||
      (e.fc3 && e.units() != e.fc3->stack.outputs))
    return Invalid("fc1 has ", e.fc1.stack.outputs, " outputs, fc2 ", e.fc2.stack.inputs, " inputs",
                   e.fc3 ? StrCat(", fc3 ", e.fc3->stack.outputs, " outputs") : "");
  return e;
}

// Returns the activations [rows, units] between fc1 and fc2.
Val Activate(const Attrs& attrs, const Experts& e, Val x, Val ids) {
  const Val first = ComputeRows(e.fc1, x, ids);
  if (!first) return first;
  Gated parts{.gate = first};
  if (e.is_fused()) parts = SplitGates(first, e.fusion);
  if (e.fc3) parts.value = ComputeRows(*e.fc3, x, ids);
  if (e.activation.apply == nullptr) return SwiGlu(attrs, parts);
  const Val gate = e.activation.apply(parts.gate);
  return parts.value ? gate * parts.value : gate;
}

// Divides by the sum of each row; rows of zeros stay.
Val Normalized(Val weights) {
  const Val sum = ReduceSum(weights, {1});
  return weights / Where(Equal(sum, 0.0), Number(sum, 1), sum);
}

// The experts that the tokens chose.
struct Routes {
  Val ids, weights;  // [tokens·k]
};

// Chooses the k experts with the largest scores. Their weights are
//   MoE: the softmax over all experts, divided by the sum of the chosen ones if normalize_routing_weights is 1;
//   QMoE: the softmax over the chosen ones, or their elements of router_weights, perhaps divided by their sum.
absl::StatusOr<Routes> Route(ImportContext& c, bool quantized) {
  const Val scores = c.in(1);
  const int64_t k = c.attrs().Int("k", 1);
  if (k < 1 || k > scores.dim(1)) return Invalid("k is ", k, " of ", scores.dim(1), " experts");
  const Val all = quantized ? scores : Softmax(scores, 1);
  const std::vector<Val> best = c.b().Ops("TopK", {all}, {{"axis", int64_t{1}}, {"k", k}, {"largest", int64_t{1}}});
  const bool given = quantized && c.has(kRouterWeights), normalize = c.attrs().Int("normalize_routing_weights") != 0;
  if (given && c.in(kRouterWeights).shape() != scores.shape())
    return Invalid("router_weights ", ToString(c.in(kRouterWeights).type()), " beside ", ToString(scores.type()));
  Val weights = given ? GatherElements(c.in(kRouterWeights), best[1], 1) : quantized ? Softmax(best[0], 1) : best[0];
  if (normalize && (given || !quantized)) weights = Normalized(weights);
  if (!weights) return c.b().status();
  const int64_t rows = scores.dim(0) * k;
  return Routes{Reshape(best[1], {rows}), Reshape(weights, {rows})};
}

absl::Status CheckSupported(const Attrs& attrs) {
  if (attrs.Int("use_sparse_mixer") != 0) return Unsupported("use_sparse_mixer");
  if (const std::string type = attrs.String("quant_type", "int"); type != "int")
    return Unsupported(StrCat("the quant_type '", Printable(type), "'"));
  if (attrs.Int("weights_prepacked", -1) == 1) return Unsupported("weights_prepacked 1");
  return absl::OkStatus();
}

ImportOr ImportMixture(ImportContext& c) {
  RETURN_IF_ERROR(CheckSupported(c.attrs()));
  const bool quantized = c.node().op_type == "QMoE";
  for (const ExpertLayer& layer : FindExpertLayers(c.node().domain, c.node().op_type).first(2)) {
    if (!c.has(layer.weight)) return Invalid("input ", layer.weight, " with weights is missing");
  }
  const Shape shape = c.in(0).shape();
  const Type scores = c.in(1).type();
  if (shape.size() < 2 || !IsFloat(c.in(0).dtype())) return Invalid("cannot route ", ToString(c.in(0).type()));
  const int64_t width = shape.back(), tokens = NumElements(Shape(shape.begin(), shape.end() - 1));
  if (scores.rank() != 2 || scores.shape[0] != tokens || !IsFloat(scores.dtype))
    return Invalid("router_probs ", ToString(scores), " for ", tokens, " tokens");
  ASSIGN_OR_RETURN(const Experts experts, ReadExperts(c, scores.shape[1], width));
  ASSIGN_OR_RETURN(const Routes routes, Route(c, quantized));
  const int64_t rows = routes.ids.dim(0);
  const Val weights = Reshape(routes.weights, {rows, 1});
  const Val h = Activate(c.attrs(), experts, Reshape(c.in(0), {tokens, width}), routes.ids);
  Val y = Multiply(experts.fc2, h * weights, routes.ids);
  if (experts.fc2.bias) y = y + BiasOfRows(experts.fc2, routes.ids) * weights;
  if (!y) return c.b().status();
  return One(Reshape(ReduceSum(Reshape(y, {tokens, rows / std::max<int64_t>(tokens, 1), width}), {1}, false), shape));
}

}  // namespace

std::span<const OnnxOp> MixtureImports() {
  static constexpr int kFloat = 8 + kUpdateInputs, kQuantized = 21 + kUpdateInputs;
  static constexpr OnnxOp ops[] = {
      {kMs, "MoE", 3, kFloat, ImportMixture, {.weight_inputs = 0b11111100}},
      {kMs, "QMoE", 3, kQuantized, ImportMixture, {.weight_inputs = 0b10010010000}},
  };
  return ops;
}

}  // namespace onnxtrain
