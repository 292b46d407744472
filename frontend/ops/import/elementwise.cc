// Imports elementwise operators of ai.onnx, experimental ones up to ONNX 1.4, and nodes that converters write although
// ONNX does not define them: ATen of PyTorch and Erfc of TensorFlow.
#include "frontend/ops/import/elementwise.h"

#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/ops/quantize.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;

// Imports αx + β.
ImportOr ImportAffine(ImportContext& c) {
  return One(c.in(0) * c.attrs().Float("alpha", 1.0) + c.attrs().Float("beta", 0.0));
}

ImportOr ImportScale(ImportContext& c) { return One(c.in(0) * c.attrs().Float("scale", 1.0)); }

ImportOr ImportScaledTanh(ImportContext& c) {
  return One(Tanh(c.in(0) * c.attrs().Float("beta", 1.0)) * c.attrs().Float("alpha", 1.0));
}

ImportOr ImportParametricSoftplus(ImportContext& c) {
  return One(Unary("Softplus", c.in(0) * c.attrs().Float("beta", 1.0)) * c.attrs().Float("alpha", 1.0));
}

// Imports the complement of Erf, which tf2onnx does not convert. Keras uses it in GELU.
ImportOr ImportErfc(ImportContext& c) { return One(1.0 - Unary("Erf", c.in(0))); }

absl::Status CheckImage(Val x) {
  return x.rank() == 4 ? absl::OkStatus() : Invalid("expected an image [N,C,H,W], got ", ToString(x.type()));
}

// Imports scale·x + bias, with a bias per channel of images [N,C,H,W].
ImportOr ImportImageScaler(ImportContext& c) {
  const Val x = c.in(0);
  RETURN_IF_ERROR(CheckImage(x));
  const Val y = x * c.attrs().Float("scale", 1.0);
  const auto* bias = c.attrs().Find<std::vector<double>>("bias");
  if (bias == nullptr || bias->empty()) return One(y);
  if (std::ssize(*bias) != x.dim(1)) return Invalid("bias has ", bias->size(), " numbers for ", x.dim(1), " channels");
  const auto channels = std::ssize(*bias);
  return One(y + Cast(c.b().Constant(HostTensor::FromDoubles({DType::kFloat32, {channels, 1, 1}}, *bias)), x.dtype()));
}

// Removes `border` (left, top, right, bottom) from images [N,C,H,W] or, with `scale` (height, width), takes a region of
// that size after the left and top border.
ImportOr ImportCrop(ImportContext& c) {
  const Val x = c.in(0);
  RETURN_IF_ERROR(CheckImage(x));
  const Ints border = c.attrs().Ints("border", {0, 0, 0, 0}), scale = c.attrs().Ints("scale");
  if (border.size() != 4 || (!scale.empty() && scale.size() != 2))
    return Invalid("border has ", border.size(), " numbers and scale ", scale.size(), ", expected 4 and 2 or none");
  const int64_t left = border[0], top = border[1];
  const int64_t height = scale.empty() ? x.dim(2) - top - border[3] : scale[0];
  const int64_t width = scale.empty() ? x.dim(3) - left - border[2] : scale[1];
  const auto fits = [](int64_t start, int64_t size, int64_t extent) {
    return start >= 0 && start <= extent && size >= 0 && size <= extent - start;
  };
  if (!fits(top, height, x.dim(2)) || !fits(left, width, x.dim(3)))
    return Invalid("crops ", height, " x ", width, " at ", top, ", ", left, " out of ", ToString(x.type()));
  return One(Slice(Slice(x, 2, top, height), 3, left, width));
}

// Returns the attribute `shape`, the values of input 0 (with `input_as_shape`) or the shape of input 0, followed by
// `extra_shape`.
absl::StatusOr<Shape> FilledShape(ImportContext& c) {
  Shape shape = c.attrs().Ints("shape");
  if (c.attrs().Int("input_as_shape") != 0) {
    if (!c.has(0)) return Invalid("input_as_shape needs an input");
    ASSIGN_OR_RETURN(shape, c.KnownInts(0, "shape"));
  } else if (c.has(0)) {
    shape = c.in(0).shape();
  }
  const Ints extra = c.attrs().Ints("extra_shape");
  shape.insert(shape.end(), extra.begin(), extra.end());
  RETURN_IF_ERROR(CheckShape(shape));
  return shape;
}

ImportOr ImportConstantFill(ImportContext& c) {
  ASSIGN_OR_RETURN(const Shape shape, FilledShape(c));
  ASSIGN_OR_RETURN(const DType dtype, ElementType(c.attrs().Int("dtype", 1)));
  return One(Expand(c.b().Scalar(dtype, c.attrs().Float("value", 0.0)), shape));
}

ImportOr ImportGivenTensorFill(ImportContext& c) {
  const auto* values = c.attrs().Find<std::vector<double>>("values");
  if (values == nullptr) return Invalid("values are missing");
  ASSIGN_OR_RETURN(Shape shape, FilledShape(c));
  if (shape.empty() && values->size() != 1) shape = {std::ssize(*values)};
  if (NumElements(shape) != std::ssize(*values))
    return Invalid(values->size(), " values for the shape ", ToString(shape));
  return One(c.b().Constant(HostTensor::FromDoubles({DType::kFloat32, shape}, *values)));
}

// Imports the experimental DynamicSlice, which equals Slice of opset 10 without steps.
ImportOr ImportDynamicSlice(ImportContext& c) { return ImportAs(c, "", "Slice", c.node().inputs, {}); }

// Computes the new state h·σ(u) + tanh(n)·(1 − σ(u)) of a GRU from its gates [1,N,3D] (reset, update, new). If step `t`
// is beyond the length of a sample, its state is unchanged or, with `drop_states`, 0.
ImportOr ImportGruUnit(ImportContext& c) {
  const Val h = c.in(0), gates = c.in(1);
  if (h.rank() != 3 || gates.rank() != 3 || gates.dim(2) != 3 * h.dim(2))
    return Invalid("expected a state [1,N,D] and gates [1,N,3D], got ", ToString(h.type()), ", ",
                   ToString(gates.type()));
  const int64_t width = h.dim(2);
  const Val update = Sigmoid(Slice(gates, 2, width, width)), fresh = Tanh(Slice(gates, 2, 2 * width, width));
  const Val next = h * update + fresh * (1.0 - update);
  if (!c.has(2)) return One(next);
  if (!c.has(3) || c.in(2).shape() != Shape{h.dim(1)} || c.in(3).type().elements() != 1)
    return Invalid("expected sequence lengths [", h.dim(1), "] and a step t");
  const Val t = Reshape(Cast(c.in(3), DType::kInt64), {1});
  const Val valid = Reshape(Less(t, Cast(c.in(2), DType::kInt64)), {1, h.dim(1), 1});
  return One(Where(valid, next, c.attrs().Int("drop_states") != 0 ? Number(h, 0) : h));
}

// A PyTorch function that is imported as an ONNX operator. PyTorch exports functions without ONNX equivalent as ATen
// nodes with the attribute `operator`; supported ones have only tensor arguments.
struct AtenName {
  std::string_view aten, onnx;
  int inputs;
};

constexpr AtenName kAtenNames[] = {
    {"abs", "Abs", 1},       {"acos", "Acos", 1},         {"asin", "Asin", 1},  {"atan", "Atan", 1},
    {"ceil", "Ceil", 1},     {"cos", "Cos", 1},           {"erf", "Erf", 1},    {"exp", "Exp", 1},
    {"floor", "Floor", 1},   {"log", "Log", 1},           {"neg", "Neg", 1},    {"reciprocal", "Reciprocal", 1},
    {"relu", "Relu", 1},     {"round", "Round", 1},       {"sign", "Sign", 1},  {"sigmoid", "Sigmoid", 1},
    {"sin", "Sin", 1},       {"softsign", "Softsign", 1}, {"sqrt", "Sqrt", 1},  {"tan", "Tan", 1},
    {"tanh", "Tanh", 1},     {"mish", "Mish", 1},         {"mul", "Mul", 2},    {"div", "Div", 2},
    {"matmul", "MatMul", 2}, {"mm", "MatMul", 2},         {"bmm", "MatMul", 2}, {"pow", "Pow", 2},
    {"where", "Where", 3},
};

ImportOr ImportAten(ImportContext& c) {
  const std::string name = c.attrs().String("operator", "");
  for (const AtenName& known : kAtenNames) {
    if (known.aten != name || static_cast<size_t>(known.inputs) != c.num_inputs()) continue;
    return ImportAs(c, "", known.onnx, c.node().inputs, {});
  }
  return absl::UnimplementedError(StrCat("calls ATen's '", name, "' with ", c.num_inputs(),
                                         " inputs, which is not supported (export without ONNX_ATEN_FALLBACK)"));
}

std::span<const OnnxOp> LegacyImports() {
  static constexpr OnnxOp kOps[] = {
      {"", "Affine", 1, 1, ImportAffine},
      {"", "Scale", 1, 1, ImportScale},
      {"", "ScaledTanh", 1, 1, ImportScaledTanh},
      {"", "ParametricSoftplus", 1, 1, ImportParametricSoftplus},
      {"", "Erfc", 1, 1, ImportErfc},
      {"", "ImageScaler", 1, 1, ImportImageScaler},
      {"", "Crop", 1, 1, ImportCrop},
      {"", "ConstantFill", 0, 1, ImportConstantFill},
      {"", "GivenTensorFill", 0, 1, ImportGivenTensorFill},
      {"", "DynamicSlice", 3, 4, ImportDynamicSlice},
      {"", "GRUUnit", 2, 4, ImportGruUnit},
      {"", "ATen", 1, Arity::kMany, ImportAten},
      {"org.pytorch.aten", "ATen", 1, Arity::kMany, ImportAten},
  };
  return kOps;
}

constexpr size_t kMaxVisited = 256;  // limit for values; quantizers, one-hot softmaxes and codebooks are smaller

// Returns true if the operator has no gradient, like Round and ArgMax.
bool StopsGradient(const Node& node) {
  const OpRow* row = FindOp(node.op);
  return row != nullptr && row->grad_status == GradStatus::kZero;
}

// Returns true if `value` depends on x through an operator that stops gradients.
bool DependsThroughStep(const Graph& graph, ValueId value, ValueId x) {
  std::set<std::pair<ValueId, bool>> seen = {{value, false}};  // true: an operator on the path stops gradients
  std::vector<std::pair<ValueId, bool>> open(seen.begin(), seen.end());
  while (!open.empty() && seen.size() < kMaxVisited) {
    const auto [v, stopped] = open.back();
    open.pop_back();
    if (v == x) {
      if (stopped) return true;
      continue;
    }
    const Node* node = graph.producer(v);
    if (node == nullptr) continue;
    for (const ValueId input : node->inputs) {
      const std::pair<ValueId, bool> next = {input, stopped || StopsGradient(*node)};
      if (input != kNoValue && seen.insert(next).second) open.push_back(next);
    }
  }
  return false;
}

// Finds operands that are op(q, x) or op(x, q), where q depends on x through an operator that stops gradients.
class Finder {
 public:
  explicit Finder(Val x) : graph_(x.b().graph()), x_(x) {}

  // Return true if `v` is op(q, x) or op(x, q), respectively.
  bool IsOfStepAndX(Val v, std::string_view op) const { return IsStep(Operand(v, op, 1)); }
  bool IsOfXAndStep(Val v, std::string_view op) const { return IsStep(Operand(v, op, 0)); }

 private:
  // Returns the other operand if `v` is an `op` whose operand `place` is x, otherwise kNoValue.
  ValueId Operand(Val v, std::string_view op, size_t place) const {
    const Node* node = graph_.producer(v.id());
    return node != nullptr && node->op == op && node->inputs[place] == x_.id() ? node->inputs[1 - place] : kNoValue;
  }

  bool IsStep(ValueId q) const {
    return q != kNoValue && graph_.type(q) == x_.type() && DependsThroughStep(graph_, q, x_.id());
  }

  const Graph& graph_;
  Val x_;
};

// Returns the x of a straight-through estimator, or an invalid Val.
Val FindCarrier(std::string_view op, Val a, Val b) {
  const Finder of_a(a), of_b(b);
  if (op == "Add") return of_a.IsOfStepAndX(b, "Sub") ? a : of_b.IsOfStepAndX(a, "Sub") ? b : Val();
  if (op != "Sub") return Val();
  if (of_a.IsOfXAndStep(b, "Sub")) return a;
  return of_b.IsOfStepAndX(a, "Add") || of_b.IsOfXAndStep(a, "Add") ? b : Val();
}

}  // namespace

Val ImportStraightThrough(std::string_view op, Val a, Val b) {
  if (!a || !b || !IsFloat(a.dtype()) || a.type() != b.type()) return Val();
  const Val x = FindCarrier(op, a, b);
  return x ? StraightThrough(Binary(op, a, b), x) : Val();
}

namespace {

ImportOr ImportBitShift(ImportContext& c) {
  const std::string direction = c.attrs().String("direction");
  if (direction != "LEFT" && direction != "RIGHT")
    return Invalid("direction '", direction, "' is neither LEFT nor RIGHT");
  return One(c.b().Op(direction == "LEFT" ? "ShiftLeft" : "ShiftRight", {c.in(0), c.in(1)}));
}

}  // namespace

std::span<const OnnxOp> BitwiseImports() {
  static const OnnxOp ops[] = {
      {"", "BitShift", 2, 2, ImportBitShift},
  };
  return ops;
}

namespace {

ImportOr ImportBinary(ImportContext& c) {
  ASSIGN_OR_RETURN(const Val b, SecondOperand(c));
  if (const Val estimate = ImportStraightThrough(c.node().op_type, c.in(0), b)) return One(estimate);
  return One(Binary(c.node().op_type, c.in(0), b));
}

// Imports Pow. The result has the type of the base. Integers to a fractional power are computed in float64.
ImportOr ImportPow(ImportContext& c) {
  const Val a = c.in(0);
  ASSIGN_OR_RETURN(const Val b, SecondOperand(c));
  if (!IsFloat(a.dtype()) && IsFloat(b.dtype())) {
    return One(Cast(Binary("Pow", Cast(a, DType::kFloat64), Cast(b, DType::kFloat64)), a.dtype()));
  }
  return One(Binary("Pow", a, Cast(b, a.dtype())));
}

ImportOr ImportMod(ImportContext& c) {
  return One(c.b().Op("Mod", {c.in(0), c.in(1)}, {{"fmod", c.attrs().Int("fmod")}}));
}

Val FoldOperands(ImportContext& c, std::string_view op) {
  Val y = c.in(0);
  for (size_t i = 1; i < c.num_inputs(); ++i) y = Binary(op, y, c.in(i));
  return y;
}
ImportOr ImportSum(ImportContext& c) { return One(FoldOperands(c, "Add")); }
ImportOr ImportMean(ImportContext& c) {
  const Val sum = FoldOperands(c, "Add");
  return One(c.num_inputs() == 1 ? sum : sum / static_cast<double>(c.num_inputs()));
}
ImportOr ImportExtremum(ImportContext& c) { return One(FoldOperands(c, c.node().op_type)); }

// Imports Clip. Bounds are attributes before opset 11, then optional scalar inputs.
ImportOr ImportClip(ImportContext& c) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Val x = c.in(0);
  double min = c.attrs().Float("min", -kInfinity), max = c.attrs().Float("max", kInfinity);
  // Older exporters write a missing bound as the largest float.
  if (min <= std::numeric_limits<float>::lowest()) min = -kInfinity;
  if (max >= std::numeric_limits<float>::max()) max = kInfinity;
  const bool known = (!c.has(1) || c.Known(1) != nullptr) && (!c.has(2) || c.Known(2) != nullptr);
  if (!known || !IsFloat(x.dtype())) {
    if (c.has(1)) x = Binary("Max", x, c.in(1));
    return One(c.has(2) ? Binary("Min", x, c.in(2)) : x);
  }
  if (c.has(1)) {
    ASSIGN_OR_RETURN(min, KnownDouble(c, 1, "min"));
  }
  if (c.has(2)) {
    ASSIGN_OR_RETURN(max, KnownDouble(c, 2, "max"));
  }
  return One(c.b().Op("Clip", {x}, {{"min", min}, {"max", max}}));
}

struct TypeName {
  std::string_view onnx;
  DType dtype;
};
// The names of types in Cast of opset 1 to 5.
constexpr TypeName kTypeNames[] = {
    {"FLOAT", DType::kFloat32}, {"DOUBLE", DType::kFloat64}, {"FLOAT16", DType::kFloat16}, {"INT8", DType::kInt8},
    {"INT16", DType::kInt16},   {"INT32", DType::kInt32},    {"INT64", DType::kInt64},     {"UINT8", DType::kUInt8},
    {"UINT16", DType::kUInt16}, {"UINT32", DType::kUInt32},  {"UINT64", DType::kUInt64},   {"BOOL", DType::kBool},
};

// Casts x. Integers on a quantization grid become floats that have the gradient of the quantized value, since models
// scale sums of integer products after such a cast.
Val CastIntegers(Val x, DType to) { return IsFloat(to) && !IsFloat(x.dtype()) ? GetFloatValues(x, to) : Cast(x, to); }

// Imports a cast to `to`. `saturate` applies only to 8-bit floats, `round_mode` only to one of them.
ImportOr CastTo(ImportContext& c, DType to) {
  const bool saturate = c.attrs().Int("saturate", 1) != 0, powers = to == DType::kFloat8E8M0;
  const std::string mode = powers ? c.attrs().String("round_mode", "up") : "even";
  const bool usual = saturate && mode == (powers ? "up" : "even");
  if (usual || !IsSmallFloat(to) || c.in(0).dtype() == to) return One(CastIntegers(c.in(0), to));
  const Val x = IsFloat(c.in(0).dtype()) ? c.in(0) : Cast(c.in(0), DType::kFloat32);
  return One(c.b().Op("EncodeFloat", {x},
                      {{"to", std::string(ToString(to))}, {"saturate", int64_t{saturate}}, {"round_mode", mode}}));
}

ImportOr ImportCast(ImportContext& c) {
  if (const auto* name = c.attrs().Find<std::string>("to")) {
    for (const TypeName& t : kTypeNames) {
      if (t.onnx == *name) return One(Cast(c.in(0), t.dtype));
    }
    return Invalid("unknown element type '", *name, "'");
  }
  ASSIGN_OR_RETURN(const DType to, ElementType(c.attrs().Int("to")));
  return CastTo(c, to);
}
ImportOr ImportCastLike(ImportContext& c) { return CastTo(c, c.in(1).dtype()); }
ImportOr ImportIdentity(ImportContext& c) { return One(c.in(0)); }

// Imports PRelu. Up to opset 6, the slope is one number or one per channel (axis 1); later, it broadcasts.
ImportOr ImportPRelu(ImportContext& c) {
  const Val x = c.in(0);
  Val slope = c.in(1);
  if (slope.rank() == 1 && slope.dim(0) != 1 && x.rank() >= 2 && c.since(7, false, true)) {
    Shape shape(x.rank() - 1, 1);
    shape[0] = slope.dim(0);
    slope = Reshape(slope, std::move(shape));
  }
  if (BroadcastShapes(slope.shape(), x.shape()) != x.shape()) {
    return Invalid("a slope of type ", ToString(slope.type()), " does not broadcast to ", ToString(x.type()));
  }
  return One(Binary("PRelu", x, slope));
}

ImportOr ImportGelu(ImportContext& c) {
  return One(c.b().Op("Gelu", {c.in(0)}, {{"approximate", c.attrs().String("approximate", "none")}}));
}

// Imports x·σ(αx).
ImportOr ImportSwish(ImportContext& c) {
  const double alpha = c.attrs().Float("alpha", 1.0);
  const Val x = c.in(0);
  return One(x * Sigmoid(alpha == 1 ? x : x * alpha));
}

// Lists the operators that need an import function; other elementwise operators have OpRow::onnx.
constexpr int kMany = Arity::kMany;
constexpr OnnxOp kOps[] = {
    {"", "Add", 2, 2, ImportBinary, {.scores = true, .scalar_weight = true, .weight_inputs = 0b11}},
    {"", "Sub", 2, 2, ImportBinary, {.scalar_weight = true, .takes_numbers = true}},
    {"", "Mul", 2, 2, ImportBinary, {.scores = true, .scalar_weight = true, .weight_inputs = 0b11}},
    {"", "Div", 2, 2, ImportBinary, {.scores = true, .scalar_weight = true, .takes_numbers = true}},
    {"", "Equal", 2, 2, ImportBinary, {.takes_numbers = true}},
    {"", "Less", 2, 2, ImportBinary, {.takes_numbers = true, .reversed_inputs = 0b01}},
    {"", "LessOrEqual", 2, 2, ImportBinary, {.takes_numbers = true, .reversed_inputs = 0b01}},
    {"", "Greater", 2, 2, ImportBinary, {.takes_numbers = true, .reversed_inputs = 0b10}},
    {"", "GreaterOrEqual", 2, 2, ImportBinary, {.takes_numbers = true, .reversed_inputs = 0b10}},
    {"", "And", 2, 2, ImportBinary},
    {"", "Or", 2, 2, ImportBinary},
    {"", "Xor", 2, 2, ImportBinary},
    {"", "Not", 1, 1, ImportSame, {.reversed_inputs = 1, .keeps_choice = true}},
    {"", "Pow", 2, 2, ImportPow, {.takes_numbers = true}},
    {"", "Mod", 2, 2, ImportMod, {.takes_numbers = true}},
    {"", "Where", 3, 3, ImportSame, {.scores = true, .takes_numbers = true}},
    {"", "PRelu", 2, 2, ImportPRelu, {.weight_inputs = 0b10}},
    {"", "Sum", 1, kMany, ImportSum},
    {"", "Mean", 1, kMany, ImportMean},
    {"", "Max", 1, kMany, ImportExtremum, {.takes_numbers = true}},
    {"", "Min", 1, kMany, ImportExtremum, {.takes_numbers = true}},
    {"", "Clip", 1, 3, ImportClip, {.keeps_channels = true, .takes_numbers = true}},
    {"", "Cast", 1, 1, ImportCast, {.keeps_classes = true, .takes_numbers = true, .type_attr = "to"}},
    {"", "CastLike", 2, 2, ImportCastLike},
    {"", "Identity", 1, 1, ImportIdentity, {.view = true, .scalar_weight = true}},
    {"", "Gelu", 1, 1, ImportGelu, {.keeps_channels = true}},
    {"", "Swish", 1, 1, ImportSwish},
    {"com.microsoft", "Gelu", 1, 1, ImportGelu},
};

}  // namespace

std::span<const OnnxOp> ElementwiseImports() {
  static const std::vector<OnnxOp> ops = [] {
    std::vector<OnnxOp> all(std::begin(kOps), std::end(kOps));
    all.insert(all.end(), LegacyImports().begin(), LegacyImports().end());
    return all;
  }();
  return ops;
}

}  // namespace onnxtrain
