// Operators that ONNX had as experiments until 1.4, and what converters write beside ONNX: ATen nodes of PyTorch and
// TensorFlow's Erfc.
#include "frontend/ops/import/legacy.h"

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;

// --- Functions of one number

// αx + β
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

// TensorFlow's complement of Erf, which tf2onnx leaves as it is: Keras' GELU.
ImportOr ImportErfc(ImportContext& c) { return One(1.0 - Unary("Erf", c.in(0))); }

// --- Images [N,C,H,W]

absl::Status CheckImage(Val x) {
  return x.rank() == 4 ? absl::OkStatus() : Invalid("expected an image [N,C,H,W], got ", ToString(x.type()));
}

// scale·x + bias of the channel.
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

// `border` (left, top, right, bottom) is cut off; with `scale` (height, width), that extent is taken behind the left
// and top border.
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

// --- Filled tensors

// The attribute `shape`, the values of input 0 with `input_as_shape`, or the shape of input 0; then `extra_shape`.
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

// --- Nodes that stand for others

// Slice as since opset 10, without steps.
ImportOr ImportDynamicSlice(ImportContext& c) { return ImportAs(c, "", "Slice", c.node().inputs, {}); }

// The step of a recurrence after its gates [1,N,3D] (reset, update, new) were computed: h·σ(u) + tanh(n)·(1 − σ(u)).
// Where `t` is beyond a sample's length, its state stays, or becomes 0 with `drop_states`.
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

// PyTorch's escape for what it could not export: `operator` names a function of ATen. Functions of tensors alone that
// have an ONNX operator of the same meaning are imported.
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

}  // namespace

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

}  // namespace onnxtrain
