#include "frontend/ops/export/onnx_export.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "frontend/base/status.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

std::vector<std::string> OnnxWriter::Names(const ValueIds& values) const {
  std::vector<std::string> names;
  for (const ValueId value : values) names.push_back(Name(value));
  return names;
}

std::string OnnxWriter::Op(std::string_view op_type, const std::vector<std::string>& inputs, const Attrs& attrs) {
  std::string name = NewName();
  OpTo({name}, op_type, inputs, attrs);
  return name;
}

std::string OnnxWriter::Zeros(DType dtype, const Shape& shape) {
  return Op("Expand", {Constant(HostTensor::Scalar(dtype, 0)), Ints(shape)});
}

std::string OnnxWriter::Reshape(const std::string& x, const Shape& shape) {
  return Op("Reshape", {x, Ints(shape)}, {{"allowzero", int64_t{1}}});
}

std::string OnnxWriter::Transpose(const std::string& x, const std::vector<int64_t>& perm) {
  return Op("Transpose", {x}, {{"perm", perm}});
}

Attrs Pick(const Attrs& attrs, std::initializer_list<const char*> names) {
  Attrs picked;
  for (const auto& [name, value] : attrs) {
    if (std::find(names.begin(), names.end(), name) != names.end()) picked.Set(name, value);
  }
  return picked;
}

int64_t Product(std::span<const int64_t> extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
}

EmitFn FindEmit(std::string_view op) {
  const OpRow* row = FindOp(op);
  if (row == nullptr || row->emit != nullptr) return row == nullptr ? nullptr : row->emit;
  return row->onnx != nullptr && row->decompose == nullptr ? EmitSame : nullptr;
}

absl::Status EmitSame(OnnxWriter& s, const Node& node) {
  s.OpTo(s.Names(node.outputs), node.op, s.Names(node.inputs), node.attrs);
  return absl::OkStatus();
}

// Writes Where and Mul, since ONNX's PRelu broadcasts only the slope.
absl::Status EmitPRelu(OnnxWriter& s, const Node& node) {
  const std::string x = s.Name(node.inputs[0]);
  const std::string zero = s.Constant(HostTensor::Scalar(s.graph().type(node.inputs[0]).dtype, 0));
  s.OpTo({s.Output(node)}, "Where", {s.Op("Less", {x, zero}), s.Op("Mul", {x, s.Name(node.inputs[1])}), x});
  return absl::OkStatus();
}

// Uses Kahan's correction: u = 1 + x loses the low digits of x, but log(u)/(u − 1) is accurate for the rounded u.
// Denominators are 1 where the quotient is not used, so that gradients stay finite.
absl::Status EmitLog1p(OnnxWriter& s, const Node& node) {
  const std::string x = s.Name(node.inputs[0]);
  const std::string one = s.Constant(HostTensor::Scalar(s.graph().type(node.inputs[0]).dtype, 1));
  const std::string u = s.Op("Add", {x, one}), log = s.Op("Log", {u});
  const std::string tiny = s.Op("Equal", {u, one});
  const std::string taken = s.Op("Where", {tiny, one, s.Op("Sub", {u, one})});
  const std::string corrected = s.Op("Mul", {log, s.Op("Div", {x, taken})});
  const std::string large = s.Op("Where", {s.Op("Greater", {x, one}), log, corrected});
  s.OpTo({s.Output(node)}, "Where", {tiny, x, large});
  return absl::OkStatus();
}

absl::Status EmitExpm1(OnnxWriter& s, const Node& node) {
  const DType dtype = s.graph().type(node.inputs[0]).dtype;
  const std::string x = s.Name(node.inputs[0]), one = s.Constant(HostTensor::Scalar(dtype, 1));
  const std::string u = s.Op("Exp", {x}), minus = s.Op("Sub", {u, one});
  const std::string tiny = s.Op("Equal", {u, one});
  const std::string far = s.Op("Greater", {s.Op("Abs", {x}), s.Constant(HostTensor::Scalar(dtype, 0.5))});
  const std::string taken = s.Op("Where", {s.Op("Or", {tiny, far}), one, s.Op("Log", {u})});
  const std::string corrected = s.Op("Mul", {minus, s.Op("Div", {x, taken})});
  s.OpTo({s.Output(node)}, "Where", {tiny, x, s.Op("Where", {far, minus, corrected})});
  return absl::OkStatus();
}

absl::Status EmitRsqrt(OnnxWriter& s, const Node& node) {
  s.OpTo({s.Output(node)}, "Reciprocal", {s.Op("Sqrt", {s.Name(node.inputs[0])})});
  return absl::OkStatus();
}

absl::Status EmitCast(OnnxWriter& s, const Node& node) {
  const int64_t to = DTypeToOnnx(s.graph().type(node.outputs[0]).dtype);
  s.OpTo({s.Output(node)}, "Cast", {s.Name(node.inputs[0])}, {{"to", to}});
  return absl::OkStatus();
}

absl::Status EmitClip(OnnxWriter& s, const Node& node) {
  const auto bound = [&](const char* name, double none) {
    const double value = node.attrs.Float(name, none);
    return value == none ? "" : s.Constant(HostTensor::Scalar(s.graph().type(node.inputs[0]).dtype, value));
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::string min = bound("min", -kInfinity), max = bound("max", kInfinity);
  s.OpTo({s.Output(node)}, "Clip", {s.Name(node.inputs[0]), min, max});
  return absl::OkStatus();
}

absl::Status EmitReduce(OnnxWriter& s, const Node& node) {
  std::vector<std::string> inputs = s.Names(node.inputs);
  if (const auto axes = node.attrs.Ints("axes"); !axes.empty()) inputs.push_back(s.Ints(axes));
  s.OpTo({s.Output(node)}, node.op, inputs, {{"keepdims", node.attrs.Int("keepdims", 1)}});
  return absl::OkStatus();
}

absl::Status EmitCumSum(OnnxWriter& s, const Node& node) {
  Attrs attrs = node.attrs;
  attrs.Erase("axis");
  const std::string axis = s.Constant(HostTensor::Scalar(DType::kInt64, static_cast<double>(node.attrs.Int("axis"))));
  s.OpTo({s.Output(node)}, "CumSum", {s.Name(node.inputs[0]), axis}, attrs);
  return absl::OkStatus();
}

// Writes the mask once per stream, for forward and backward pass. ONNX generates its own random numbers, so no node
// reads the random key.
absl::Status EmitDropout(OnnxWriter& s, const Node& node) {
  const std::string x = s.Name(node.inputs[0]), mask = s.Prefixed(StrCat(kMaskName, node.attrs.Int("stream")));
  const DType dtype = s.graph().type(node.inputs[0]).dtype;
  const double ratio = node.attrs.Float("ratio");
  if (s.TakeName(mask)) {
    const std::string uniform = s.Op("RandomUniformLike", {x}, {{"low", 0.0}, {"high", 1.0}});
    const std::string kept = s.Op("GreaterOrEqual", {uniform, s.Constant(HostTensor::Scalar(dtype, ratio))});
    const std::string scale = s.Constant(HostTensor::Scalar(dtype, 1 / (1 - ratio)));
    s.OpTo({mask}, "Where", {kept, scale, s.Constant(HostTensor::Scalar(dtype, 0))});
  }
  s.OpTo({s.Output(node)}, "Mul", {x, mask});
  return absl::OkStatus();
}

namespace {

std::string MatrixOperand(OnnxWriter& s, ValueId value, bool transposed) {
  if (!transposed) return s.Name(value);
  std::vector<int64_t> perm(s.shape(value).size());
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return s.Transpose(s.Name(value), perm);
}

}  // namespace

absl::Status EmitMatMul(OnnxWriter& s, const Node& node) {
  const std::string a = MatrixOperand(s, node.inputs[0], node.attrs.Int("trans_a") != 0);
  const std::string b = MatrixOperand(s, node.inputs[1], node.attrs.Int("trans_b") != 0);
  s.OpTo({s.Output(node)}, "MatMul", {a, b});
  return absl::OkStatus();
}

}  // namespace onnxtrain
