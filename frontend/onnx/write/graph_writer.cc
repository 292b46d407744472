#include "frontend/onnx/write/export.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <set>

#include "frontend/base/status.h"
#include "frontend/onnx/read/proto_util.h"
#include "frontend/onnx/read/tensor_proto.h"
#include "frontend/ops/export/onnx_export.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/passes/decompose.h"
#include "frontend/passes/pipeline.h"

namespace onnxtrain {
namespace {

constexpr int kExportOpset = 18;  // opset of ai.onnx

// Appends nodes and initializers to a GraphProto. Values without a set name are named "v" plus the id, temporaries "t"
// plus a number.
class OnnxEmitter : public OnnxWriter {
 public:
  // Both must outlive the emitter.
  OnnxEmitter(const Graph& graph, onnx::GraphProto* proto) : OnnxWriter(graph), proto_(proto) {}

  std::string Name(ValueId value) const override;
  void SetName(ValueId value, std::string name);
  // Adds a prefix to all names generated later if they could clash with `names`.
  void Avoid(const std::set<std::string>& names);
  std::string Prefixed(std::string_view name) const override;
  bool TakeName(const std::string& name) override { return taken_.insert(name).second; }

  std::string Constant(const HostTensor& value) override;

 private:
  void Append(std::string_view op_type, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
              const Attrs& attrs) override;
  std::string NewName() override;

  onnx::GraphProto* proto_;
  std::vector<std::string> names_;  // by value; "" if not set
  std::set<std::string> taken_;     // passed to TakeName
  std::string prefix_;
  int temporaries_ = 0;
};

// Returns true if the emitter might generate the name: "v12", "t3", with or without suffixes, or a mask.
bool IsGenerated(std::string_view name) {
  const bool numbered = name.size() > 1 && (name[0] == 'v' || name[0] == 't') && std::isdigit(name[1]) != 0;
  return numbered || name.starts_with(kMaskName);
}

void OnnxEmitter::Avoid(const std::set<std::string>& names) {
  const auto clashes = [&](std::string_view name) {
    return name.starts_with(prefix_) && IsGenerated(name.substr(prefix_.size()));
  };
  while (std::ranges::any_of(names, clashes)) prefix_ += '_';
}

std::string OnnxEmitter::Prefixed(std::string_view name) const { return StrCat(prefix_, name); }

std::string OnnxEmitter::NewName() { return StrCat(prefix_, "t", temporaries_++); }

std::string OnnxEmitter::Name(ValueId value) const {
  if (value == kNoValue) return "";
  const size_t i = static_cast<size_t>(value);
  return i < names_.size() && !names_[i].empty() ? names_[i] : StrCat(prefix_, "v", value);
}

void OnnxEmitter::SetName(ValueId value, std::string name) {
  names_.resize(std::max(names_.size(), static_cast<size_t>(value) + 1));
  names_[value] = std::move(name);
}

void OnnxEmitter::Append(std::string_view op_type, const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs, const Attrs& attrs) {
  onnx::NodeProto* node = proto_->add_node();
  node->set_op_type(std::string(op_type));
  for (const std::string& input : inputs) node->add_input(input);
  for (const std::string& output : outputs) node->add_output(output);
  for (const auto& [name, value] : attrs) SetAttribute(name, value, node->add_attribute());
}

std::string OnnxEmitter::Constant(const HostTensor& value) {
  onnx::TensorProto* tensor = proto_->add_initializer();
  tensor->set_name(NewName());
  tensor->set_data_type(static_cast<int32_t>(DTypeToOnnx(value.dtype())));
  for (const int64_t d : value.shape()) tensor->add_dims(d);
  const HostTensor stored = PackForStorage(value);
  tensor->set_raw_data(stored.bytes().data(), stored.bytes().size());
  return tensor->name();
}

// Appends the nodes of one operator, which must have an emit function (FindEmit). Fails, without the node's tag, on
// attributes that ONNX lacks.
absl::Status Emit(OnnxEmitter& emitter, const Node& node) {
  const EmitFn emit = FindEmit(node.op);
  return emit == nullptr ? Invalid("standard ONNX has no operator for it") : emit(emitter, node);
}

constexpr int kIrVersion = 8;

class GraphWriter {
 public:
  explicit GraphWriter(const Graph& graph) : graph_(graph), emitter_(graph, model_.mutable_graph()) {
    model_.set_ir_version(kIrVersion);
    model_.set_producer_name("onnxtrain");
    model_.add_opset_import()->set_version(kExportOpset);
    model_.mutable_graph()->set_name("onnxtrain");
  }

  absl::StatusOr<std::string> Write(const std::map<std::string, HostTensor>& values) {
    emitter_.Avoid(ListPublicNames());
    for (const GraphInput& input : graph_.inputs()) RETURN_IF_ERROR(AddInput(input, values));
    for (const Node& node : graph_.nodes()) RETURN_IF_ERROR(Annotate(Emit(emitter_, node), NodeTag(node)));
    for (const GraphOutput& output : graph_.outputs()) RETURN_IF_ERROR(AddOutput(output));
    const size_t size = model_.ByteSizeLong();
    if (size > static_cast<size_t>(std::numeric_limits<int>::max() - 1))
      return Invalid("the graph has ", size, " bytes with its weights, more than an ONNX file may have");
    std::string bytes;
    if (!model_.SerializeToString(&bytes)) return absl::InternalError("the graph cannot be serialized");
    return bytes;
  }

 private:
  static std::string Shown(const std::string& name) { return name.starts_with('$') ? name.substr(1) : name; }

  std::set<std::string> ListPublicNames() const {
    std::set<std::string> names;
    for (const GraphInput& input : graph_.inputs()) names.insert(Shown(input.name));
    for (const GraphOutput& output : graph_.outputs()) names.insert(Shown(output.name));
    return names;
  }

  absl::StatusOr<std::string> PublicName(const std::string& name) {
    const std::string shown = Shown(name);
    if (!used_.insert(shown).second) return Invalid("two inputs or outputs are called '", shown, "'");
    return shown;
  }

  absl::Status AddInput(const GraphInput& input, const std::map<std::string, HostTensor>& values) {
    if (IsRandomKey(input)) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::string name, PublicName(input.name));
    emitter_.SetName(input.value, name);
    const auto value = values.find(input.name);
    const bool fed = input.kind != InputKind::kFrozen && input.kind != InputKind::kDerived;
    if (fed) Describe(name, input.value, model_.mutable_graph()->add_input());
    if (value != values.end()) {
      AddInitializer(name, value->second.CastTo(graph_.type(input.value).dtype), &model_);
    } else if (!fed) {
      return absl::InternalError(StrCat("the value of '", input.name, "' is missing"));
    }
    return absl::OkStatus();
  }

  // Returns true for random keys, which no emitter reads.
  bool IsRandomKey(const GraphInput& input) const {
    return input.kind == InputKind::kFeed && graph_.type(input.value) == Type{DType::kUInt32, {4}};
  }

  absl::Status AddOutput(const GraphOutput& output) {
    const bool updates = output.into != kNoValue;
    ASSIGN_OR_RETURN(const std::string name, PublicName(updates ? emitter_.Name(output.into) + "_new" : output.name));
    emitter_.OpTo({name}, "Identity", {emitter_.Name(output.value)});
    Describe(name, output.value, model_.mutable_graph()->add_output());
    return absl::OkStatus();
  }

  void Describe(const std::string& name, ValueId value, onnx::ValueInfoProto* info) const {
    info->set_name(name);
    auto* type = info->mutable_type()->mutable_tensor_type();
    type->set_elem_type(static_cast<int32_t>(DTypeToOnnx(graph_.type(value).dtype)));
    auto* shape = type->mutable_shape();
    for (const int64_t d : graph_.type(value).shape) shape->add_dim()->set_dim_value(d);
  }

  const Graph& graph_;
  onnx::ModelProto model_;
  OnnxEmitter emitter_;
  std::set<std::string> used_;
};

}  // namespace

absl::StatusOr<std::string> SerializeGraph(const Graph& graph, const std::map<std::string, HostTensor>& values) {
  ASSIGN_OR_RETURN(Graph clean, CleanUp(graph));
  const auto lacks = [](const Graph&, const Node& node) { return FindEmit(node.op) == nullptr; };
  ASSIGN_OR_RETURN(const Graph decomposed, DecomposeNodes(clean, lacks));
  ASSIGN_OR_RETURN(clean, CleanUp(decomposed));
  return GraphWriter(clean).Write(values);
}

}  // namespace onnxtrain
