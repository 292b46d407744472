#include "frontend/onnx/write/graph_writer.h"

#include <onnx/onnx_pb.h>

#include <limits>
#include <set>

#include "frontend/base/status.h"
#include "frontend/onnx/read/proto_util.h"
#include "frontend/onnx/write/emit.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/passes/decompose.h"
#include "frontend/passes/pipeline.h"

namespace onnxtrain {
namespace {

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
