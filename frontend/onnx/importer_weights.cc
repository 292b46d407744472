#include <algorithm>
#include <array>

#include "frontend/base/status.h"
#include "frontend/onnx/importer.h"

namespace onnxtrain {
namespace {

// A tensor of one element that only these read is a number of the formula (an exponent, a bound, a divisor, an ε) and not
// a weight.
constexpr std::string_view kTakeNumbers[] = {"Pow", "Div", "Sub", "Min", "Max", "Clip", "Where", "Equal", "Greater", "Less",
                                             "GreaterOrEqual", "LessOrEqual", "Mod", "Resize", "Upsample", "Pad", "Range",
                                             "OneHot", "Dropout", "Cast", "QuantizeLinear", "DequantizeLinear"};

bool TakesNumbers(const ParsedNode& node) {
  return std::find(std::begin(kTakeNumbers), std::end(kTakeNumbers), node.op_type) != std::end(kTakeNumbers);
}

// Attributes that hold an ONNX element type, and the operators that make floats where they are absent.
struct TypeAttr {
  std::string_view op, attr;
  bool default_float;
};
constexpr TypeAttr kTypeAttrs[] = {
    {"Cast", "to", false}, {"RandomNormal", "dtype", true}, {"RandomUniform", "dtype", true},
    {"RandomNormalLike", "dtype", false}, {"RandomUniformLike", "dtype", false}, {"EyeLike", "dtype", false},
    {"DequantizeLinear", "output_dtype", false}, {"QuantizeLinear", "precision", false}, {"Attention", "softmax_precision", false},
    {"HannWindow", "output_datatype", true}, {"HammingWindow", "output_datatype", true},
    {"BlackmanWindow", "output_datatype", true}, {"MelWeightMatrix", "output_datatype", true},
};

// Kernels read constants where they lie, for which the address must fit the element type.
HostTensor Aligned(HostTensor tensor) {
  return reinterpret_cast<uintptr_t>(tensor.bytes().data()) % SizeOf(tensor.dtype()) == 0 ? tensor : tensor.Clone();
}

}  // namespace

// Half precisions get masters of the chosen type, and everything around them computes in it.
DType Importer::MappedType(DType dtype) const {
  const bool half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  if (dtype == DType::kFloat32 || (half && !options_.conformance)) return options_.float_type;
  return dtype;
}

HostTensor Importer::Mapped(const HostTensor& tensor) const { return tensor.CastTo(MappedType(tensor.dtype())); }

void Importer::MapTypes(const ParsedNode& node, Attrs* attrs) const {
  Attrs mapped;
  for (const auto& [name, value] : *attrs) {
    const HostTensor* tensor = std::get_if<HostTensor>(&value);
    if (tensor != nullptr && MappedType(tensor->dtype()) != tensor->dtype()) mapped.Set(name, Mapped(*tensor));
  }
  for (const TypeAttr& t : kTypeAttrs) {
    if (!node.domain.empty() || node.op_type != t.op) continue;
    const auto* number = attrs->Find<int64_t>(t.attr);
    if (number == nullptr && (!t.default_float || attrs->Has(t.attr))) continue;
    const auto dtype = DTypeFromOnnx(number == nullptr ? DTypeToOnnx(DType::kFloat32) : *number);
    if (dtype && MappedType(*dtype) != *dtype) mapped.Set(std::string(t.attr), DTypeToOnnx(MappedType(*dtype)));
  }
  const bool fills = node.domain.empty() && node.op_type == "ConstantOfShape" && !attrs->Has("value");
  if (fills) mapped.Set("value", HostTensor({MappedType(DType::kFloat32), {1}}));
  for (const auto& [name, value] : mapped) attrs->Set(name, value);
}

bool Importer::IsConstant(const ParsedGraph& graph, const std::string& name, const HostTensor& tensor) const {
  if (!IsFloat(tensor.dtype()) || tensor.shape().empty() || tensor.size() == 0 || graph.sparse.count(name) > 0) return true;
  if (&graph != &model_.graph || tensor.size() > 1) return &graph != &model_.graph;
  auto it = readers_.find(name);
  if (it == readers_.end()) return false;
  return std::all_of(it->second.begin(), it->second.end(), [&](const ParsedNode* reader) {
    if (TakesNumbers(*reader)) return true;
    // x + ε before a square root.
    auto next = reader->outputs.empty() ? readers_.end() : readers_.find(reader->outputs[0]);
    return reader->op_type == "Add" && next != readers_.end() && next->second.size() == 1 && next->second[0]->op_type == "Sqrt";
  });
}

Val Importer::AddWeight(const std::string& name, HostTensor tensor, const ParsedNode& reader) {
  const ParsedNode* consumer = &reader;
  if (auto it = readers_.find(name); it != readers_.end()) {
    auto works = [](const ParsedNode* node) { return node->op_type != "Identity"; };
    auto found = std::find_if(it->second.begin(), it->second.end(), works);
    if (found != it->second.end()) consumer = *found;
  }
  const Val v = builder_.Input(InputKind::kParameter, name, tensor.type());
  weight_of_[v.id()] = weights_.size();
  weights_.push_back({.value = v.id(), .name = name, .tensor = std::move(tensor),
                      .consumer = StrCat(consumer->op_type, " ", consumer->source)});
  return v;
}

// Named by the node's first output, where the exporter finds it again.
Val Importer::AttributeWeight(const ParsedNode& node, std::string_view attribute, HostTensor tensor) {
  auto first = std::find_if(node.outputs.begin(), node.outputs.end(), [](const std::string& name) { return !name.empty(); });
  const std::string name = StrCat(*first, ".", attribute);
  auto makes = [&](const ParsedNode& other) { return std::count(other.outputs.begin(), other.outputs.end(), name) > 0; };
  const auto& nodes = model_.graph.nodes;
  const bool taken = model_.graph.initializers.count(name) > 0 || graph_.FindInput(name) != nullptr ||
                     std::any_of(nodes.begin(), nodes.end(), makes);
  if (taken) return builder_.Fail(Invalid("the weight in its attribute '", attribute, "' would be named '", Printable(name), "' like another value"));
  return AddWeight(name, Mapped(tensor), node);
}

Val Importer::InitializerValue(ImportScope& scope, const std::string& name, const HostTensor& tensor, const ParsedNode& reader) {
  HostTensor mapped = Mapped(tensor);
  if (!IsConstant(*scope.graph, name, tensor)) return AddWeight(name, std::move(mapped), reader);
  Val& v = body_constants_[{scope.graph, name}];
  if (v.valid()) return v;
  if (scope.graph != &model_.graph && IsFloat(tensor.dtype()) && tensor.size() > 1) ++body_weights_;
  v = builder_.Constant(Aligned(std::move(mapped)));
  if (v.valid()) graph_.SetValueName(v.id(), scope.prefix + name);
  return v;
}

absl::Status Importer::ImportConstant(ImportScope& scope, const ParsedNode& node) {
  if (node.outputs.size() != 1 || node.outputs[0].empty()) return Invalid("expected 1 output, got ", node.outputs.size());
  ASSIGN_OR_RETURN(const Attrs attrs, ResolveAttrs(scope, node));
  HostTensor value;
  if (const HostTensor* t = attrs.Tensor("value")) {
    value = *t;
  } else if (const auto* f = attrs.Find<double>("value_float")) {
    value = HostTensor::Scalar(DType::kFloat32, *f);
  } else if (const auto* i = attrs.Find<int64_t>("value_int")) {
    value = HostTensor::FromInts({DType::kInt64, {}}, std::array{*i});
  } else if (const auto* fs = attrs.Find<std::vector<double>>("value_floats")) {
    value = HostTensor::FromDoubles({DType::kFloat32, {static_cast<int64_t>(fs->size())}}, *fs);
  } else if (const auto* is = attrs.Find<std::vector<int64_t>>("value_ints")) {
    value = HostTensor::FromInts(*is);
  } else if (!node.opaque.empty()) {
    return absl::UnimplementedError(StrCat("holds a ", node.opaque.begin()->second, ", which is not supported"));
  } else {
    return Invalid("holds no value that is supported");
  }
  HostTensor mapped = Mapped(value);
  const bool weight = IsFloat(value.dtype()) && value.size() > 1 && scope.graph == &model_.graph;
  if (!weight) return Bind(scope, node, {builder_.Constant(std::move(mapped))}), absl::OkStatus();
  return Bind(scope, node, {AddWeight(node.outputs[0], std::move(mapped), node)}), absl::OkStatus();
}

// PyTorch's exporter merges initializers of equal bytes and reads the copies through Identity nodes. In a freshly made
// model they are equal by chance (biases, statistics, layers cloned from one): each copy is a weight of its own, named by
// the Identity's output. Weights that are really tied are one initializer with several direct readers.
bool Importer::ImportSharedIdentity(ImportScope& scope, const ParsedNode& node) {
  if (options_.conformance || scope.graph != &model_.graph || !node.domain.empty() || node.op_type != "Identity") return false;
  if (node.inputs.size() != 1 || node.outputs.size() != 1 || node.outputs[0].empty()) return false;
  auto it = model_.graph.initializers.find(node.inputs[0]);
  if (it == model_.graph.initializers.end() || readers_[node.inputs[0]].size() < 2) return false;
  if (IsConstant(model_.graph, node.outputs[0], it->second)) return false;
  Bind(scope, node, {AddWeight(node.outputs[0], Mapped(it->second), node)});
  ++copies_;
  return true;
}

// `integers` must be the value of an initializer of the model's own graph.
Val Importer::FloatWeight(Val integers, const HostTensor& value, const ParsedNode& reader) {
  const std::string name = graph_.value(integers.id()).name;
  auto bound = root_.values.find(name);
  if (bound == root_.values.end() || bound->second.tensor.id() != integers.id() || model_.graph.initializers.count(name) == 0) return Val();
  for (const Weight& weight : weights_) {
    if (weight.name == name) return weight.tensor.SameBytes(value) ? builder_.Wrap(weight.value) : Val();
  }
  return AddWeight(name, value, reader);
}

Importer::Weight* Importer::FindWeight(Val v) {
  auto it = v.valid() ? weight_of_.find(v.id()) : weight_of_.end();
  return it == weight_of_.end() ? nullptr : &weights_[it->second];
}

}  // namespace onnxtrain
