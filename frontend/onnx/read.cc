// OnnxModel::Load: bytes → protobuf → plain structs.
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "google/protobuf/io/coded_stream.h"

#include "absl/strings/str_join.h"
#include "frontend/base/sha256.h"
#include "frontend/base/status.h"
#include "frontend/onnx/file.h"
#include "frontend/onnx/guard.h"
#include "frontend/onnx/lift.h"
#include "frontend/onnx/model_proto.h"
#include "frontend/onnx/parsed.h"
#include "frontend/onnx/sparse_proto.h"
#include "frontend/onnx/tensor_proto.h"
#include "frontend/ops/onnx_import.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

constexpr size_t kHashedMeanwhile = size_t{1} << 20;  // files of so many bytes are hashed while they are read and used
constexpr int64_t kNewestSaneVersion = 1000;  // of opsets and IR; real ones are below 30

std::string Domain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

// Where the raw_data of initializers that are not in the message stands in the file, by name.
using LiftedData = std::map<std::string, ByteRange>;

// Keeps apart what is read from what is shared: the proto stays alive as long as any tensor that points into it.
class Reader {
 public:
  Reader(std::shared_ptr<onnx::ModelProto> proto, const std::string& path, LiftedData lifted, std::shared_ptr<const MappedFile> file)
      : proto_(std::move(proto)), files_(path), lifted_(std::move(lifted)), file_(std::move(file)) {}

  absl::Status Read(OnnxModel::Parsed* model) {
    RETURN_IF_ERROR(ReadVersions(model));
    if (!proto_->has_graph()) return Invalid("holds no graph: it is not an ONNX model");
    const onnx::GraphProto& graph = proto_->graph();
    if (graph.output_size() == 0) return Invalid("its graph has no outputs");
    RETURN_IF_ERROR(ReadGraph(graph, &model->graph));
    RETURN_IF_ERROR(CheckAndSort(&model->graph));
    for (const auto& function : proto_->functions()) RETURN_IF_ERROR(ReadFunction(function, model));
    RETURN_IF_ERROR(CheckFunctionCalls(*model));
    model->mapped = files_.mapped();
    if (!lifted_.empty()) model->mapped.push_back(file_);
    Summarize(model);
    return absl::OkStatus();
  }

 private:
  absl::Status ReadVersions(OnnxModel::Parsed* model) {
    model->ir_version = proto_->ir_version();
    if (model->ir_version < 1 || model->ir_version > kNewestSaneVersion) {
      return Invalid("has no sensible ir_version (", model->ir_version, ")", proto_->has_graph() ? "" : ": it is not an ONNX model");
    }
    RETURN_IF_ERROR(ReadOpsets(proto_->opset_import(), &model->opsets));
    if (model->opsets.empty()) {
      model->opsets[""] = OpsetOf(model->ir_version);
      if (model->ir_version >= 3) {
        model->notes.push_back(StrCat("has no opset_import: taken for opset ", model->opsets[""], ", the newest of IR version ", model->ir_version));
      }
    }
    model->producer = proto_->producer_name();
    if (!proto_->producer_version().empty()) StrAppend(&model->producer, " ", proto_->producer_version());
    model->producer = Printable(model->producer);
    return absl::OkStatus();
  }

  // What a file that does not say its opset may mean. Before IR 3 there were no opset versions: everything was version 1.
  static int64_t OpsetOf(int64_t ir_version) {
    constexpr int64_t kNewestOf[] = {1, 1, 1, 8, 9, 10, 11, 14, 18, 20, 22, 23, 24};
    return kNewestOf[std::min<size_t>(ir_version, std::size(kNewestOf) - 1)];
  }

  template <typename Opsets>
  static absl::Status ReadOpsets(const Opsets& imports, std::map<std::string, int64_t>* opsets) {
    for (const auto& opset : imports) {
      if (opset.version() < 1 || opset.version() > kNewestSaneVersion) {
        return Invalid("imports opset version ", opset.version(), " of domain '", Printable(opset.domain()), "', which does not exist");
      }
      auto [it, added] = opsets->emplace(Domain(opset.domain()), opset.version());
      if (!added && it->second != opset.version()) {
        return Invalid("imports domain '", Printable(opset.domain()), "' in the versions ", it->second, " and ", opset.version());
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadGraph(const onnx::GraphProto& proto, ParsedGraph* graph) {
    graph->name = proto.name();
    for (const auto& initializer : proto.initializer()) RETURN_IF_ERROR(ReadInitializer(initializer, graph));
    for (const auto& initializer : proto.sparse_initializer()) RETURN_IF_ERROR(ReadSparseInitializer(initializer, graph));
    for (const auto& input : proto.input()) graph->inputs.push_back(ReadValue(input));
    for (const auto& output : proto.output()) graph->outputs.push_back(ReadValue(output));
    graph->nodes.resize(proto.node_size());
    for (int i = 0; i < proto.node_size(); ++i) RETURN_IF_ERROR(ReadNode(proto.node(i), i, &graph->nodes[i]));
    return absl::OkStatus();
  }

  absl::Status ReadInitializer(const onnx::TensorProto& proto, ParsedGraph* graph) {
    if (proto.name().empty()) return Invalid("an initializer has no name");
    const std::string tag = StrCat("initializer '", Printable(proto.name()), "' ");
    auto tensor = ReadTensor(proto, proto_, &files_, Lifted(proto.name()));
    if (!tensor.ok()) return Annotate(tensor.status(), tag);
    const bool added = tensor->opaque.empty() ? graph->initializers.emplace(proto.name(), std::move(tensor->tensor)).second
                                              : graph->opaque.emplace(proto.name(), tensor->opaque).second;
    if (!added) return Invalid(tag, "is defined twice");
    graph->initializer_order.push_back(proto.name());
    return absl::OkStatus();
  }

  // Dense from here on; the export leaves it as it is in the file.
  absl::Status ReadSparseInitializer(const onnx::SparseTensorProto& proto, ParsedGraph* graph) {
    const std::string& name = proto.values().name();
    if (name.empty()) return Invalid("a sparse initializer has no name");
    const std::string tag = StrCat("sparse initializer '", Printable(name), "' ");
    auto tensor = ReadSparseTensor(proto, &files_, kMaxHostConstantBytes - sparse_bytes_);
    if (!tensor.ok()) return Annotate(tensor.status(), tag);
    sparse_bytes_ += static_cast<int64_t>(tensor->bytes().size());
    if (graph->opaque.count(name) > 0 || !graph->initializers.emplace(name, *std::move(tensor)).second) return Invalid(tag, "is defined twice");
    graph->initializer_order.push_back(name);
    graph->sparse.insert(name);
    return absl::OkStatus();
  }

  OwnedBytes Lifted(const std::string& name) const {
    const auto it = lifted_.find(name);
    return it == lifted_.end() ? OwnedBytes() : OwnedBytes{file_->bytes().subspan(it->second.offset, it->second.size), file_};
  }

  static ParsedValue ReadValue(const onnx::ValueInfoProto& proto) {
    ParsedValue value{.name = proto.name()};
    if (!proto.type().has_tensor_type()) {
      ReadList(proto.type(), &value);
      return value;
    }
    const auto& tensor = proto.type().tensor_type();
    value.dtype = DTypeFromOnnx(tensor.elem_type());
    value.kind = StrCat("tensor of ", OnnxTypeName(tensor.elem_type()));
    value.has_shape = tensor.has_shape();
    for (const auto& dim : tensor.shape().dim()) {
      // Exporters write 0 and -1 for "unknown"; neither can be an extent of real data.
      value.dims.push_back(dim.has_dim_value() && dim.dim_value() > 0 ? dim.dim_value() : -1);
      value.dim_names.push_back(dim.has_dim_param() ? Printable(dim.dim_param()) : "");
    }
    return value;
  }

  // Sequences, optionals and optional sequences of tensors; nothing deeper.
  static void ReadList(const onnx::TypeProto& type, ParsedValue* value) {
    value->kind = KindOf(type);
    value->form.optional = type.has_optional_type();
    const onnx::TypeProto& inner = type.has_optional_type() ? type.optional_type().elem_type() : type;
    value->form.sequence = inner.has_sequence_type();
    const onnx::TypeProto& element = inner.has_sequence_type() ? inner.sequence_type().elem_type() : inner;
    if (element.has_tensor_type()) value->element = DTypeFromOnnx(element.tensor_type().elem_type());
  }

  static std::string KindOf(const onnx::TypeProto& type) {
    if (type.has_sequence_type()) return StrCat("sequence of ", KindOf(type.sequence_type().elem_type()));
    if (type.has_map_type()) return "map";
    if (type.has_optional_type()) return StrCat("optional ", KindOf(type.optional_type().elem_type()));
    if (type.has_tensor_type()) return StrCat("tensor of ", OnnxTypeName(type.tensor_type().elem_type()));
    if (type.has_sparse_tensor_type()) return "sparse tensor";
    return "value of unknown type";
  }

  absl::Status ReadNode(const onnx::NodeProto& proto, int index, ParsedNode* node) {
    const std::string tag = NodeTag(Printable(proto.op_type()), proto.name().empty() ? StrCat("#", index) : Printable(proto.name()));
    if (proto.op_type().empty()) return Invalid(tag, "has no op_type");
    node->name = proto.name();
    node->op_type = proto.op_type();
    node->domain = Domain(proto.domain());
    node->inputs.assign(proto.input().begin(), proto.input().end());
    node->outputs.assign(proto.output().begin(), proto.output().end());
    std::unordered_set<std::string> seen;
    for (const auto& attribute : proto.attribute()) {
      const std::string name = StrCat(tag, "attribute '", Printable(attribute.name()), "' ");
      if (!seen.insert(attribute.name()).second) return Invalid(name, "is given twice");
      RETURN_IF_ERROR(Annotate(ReadAttribute(attribute, node), name));
    }
    return absl::OkStatus();
  }

  // Files of IR version 1 do not say which field is in use.
  static onnx::AttributeProto::AttributeType TypeOf(const onnx::AttributeProto& proto) {
    if (proto.type() != onnx::AttributeProto::UNDEFINED) return proto.type();
    if (proto.has_f()) return onnx::AttributeProto::FLOAT;
    if (proto.has_i()) return onnx::AttributeProto::INT;
    if (proto.has_s()) return onnx::AttributeProto::STRING;
    if (proto.has_t()) return onnx::AttributeProto::TENSOR;
    if (proto.has_g()) return onnx::AttributeProto::GRAPH;
    if (proto.floats_size() > 0) return onnx::AttributeProto::FLOATS;
    if (proto.strings_size() > 0) return onnx::AttributeProto::STRINGS;
    return onnx::AttributeProto::INTS;
  }

  absl::Status ReadAttribute(const onnx::AttributeProto& proto, ParsedNode* node) {
    const std::string& name = proto.name();
    if (name.empty()) return Invalid("has no name");
    if (!proto.ref_attr_name().empty()) {
      node->refs[name] = proto.ref_attr_name();
      return absl::OkStatus();
    }
    switch (TypeOf(proto)) {
      case onnx::AttributeProto::FLOAT: node->attrs.Set(name, static_cast<double>(proto.f())); break;
      case onnx::AttributeProto::INT: node->attrs.Set(name, static_cast<int64_t>(proto.i())); break;
      case onnx::AttributeProto::STRING: node->attrs.Set(name, proto.s()); break;
      case onnx::AttributeProto::INTS:
        node->attrs.Set(name, std::vector<int64_t>(proto.ints().begin(), proto.ints().end()));
        break;
      case onnx::AttributeProto::FLOATS:
        node->attrs.Set(name, std::vector<double>(proto.floats().begin(), proto.floats().end()));
        break;
      case onnx::AttributeProto::TENSOR: return ReadTensorAttribute(proto, node);
      case onnx::AttributeProto::GRAPH: return ReadGraph(proto.g(), (node->graphs[name] = std::make_shared<ParsedGraph>()).get());
      case onnx::AttributeProto::STRINGS:
        node->strings[name].assign(proto.strings().begin(), proto.strings().end());
        node->attrs.Set(name, absl::StrJoin(proto.strings(), "\n"));
        [[fallthrough]];
      default: node->opaque[name] = onnx::AttributeProto::AttributeType_Name(proto.type());
    }
    return absl::OkStatus();
  }

  absl::Status ReadTensorAttribute(const onnx::AttributeProto& proto, ParsedNode* node) {
    if (!proto.has_t()) return Invalid("of type tensor holds none");
    ASSIGN_OR_RETURN(TensorOrKind tensor, ReadTensor(proto.t(), proto_, &files_));
    if (tensor.opaque.empty()) {
      node->attrs.Set(proto.name(), std::move(tensor.tensor));
    } else {
      node->opaque[proto.name()] = StrCat("tensor of ", tensor.opaque);
    }
    return absl::OkStatus();
  }

  absl::Status ReadFunction(const onnx::FunctionProto& proto, OnnxModel::Parsed* model) {
    const std::string tag = StrCat("function '", Printable(proto.name()), "': ");
    ParsedFunction function;
    for (const std::string& name : proto.input()) function.graph.inputs.push_back({.name = name});
    for (const std::string& name : proto.output()) function.graph.outputs.push_back({.name = name});
    function.graph.nodes.resize(proto.node_size());
    for (int i = 0; i < proto.node_size(); ++i) {
      RETURN_IF_ERROR(Annotate(ReadNode(proto.node(i), i, &function.graph.nodes[i]), tag));
    }
    RETURN_IF_ERROR(Annotate(ReadOpsets(proto.opset_import(), &function.opsets), tag));
    RETURN_IF_ERROR(Annotate(CheckAndSort(&function.graph), tag));
    const bool added = model->functions.emplace(std::pair(Domain(proto.domain()), proto.name()), std::move(function)).second;
    return added ? absl::OkStatus() : Invalid(tag, "is defined twice");
  }

  static void Summarize(OnnxModel::Parsed* model) {
    const ParsedGraph& graph = model->graph;
    for (const ParsedValue& v : graph.inputs) {
      if (graph.initializers.count(v.name) > 0 || graph.opaque.count(v.name) > 0) continue;
      model->inputs.push_back({.name = v.name, .dtype = v.dtype.value_or(DType::kFloat32), .dims = v.dims,
                               .dim_names = v.dim_names, .has_shape = v.has_shape, .form = v.form});
    }
    for (const ParsedValue& v : graph.outputs) {
      model->outputs.push_back(v.name);
      model->output_forms.push_back(v.form);
    }
  }

  std::shared_ptr<onnx::ModelProto> proto_;
  ExternalFiles files_;
  LiftedData lifted_;
  std::shared_ptr<const MappedFile> file_;
  int64_t sparse_bytes_ = 0;
};

LiftedData ByName(const onnx::GraphProto& graph, const std::vector<ByteRange>& raw_data) {
  LiftedData lifted;
  for (int i = 0; i < graph.initializer_size(); ++i) {
    if (raw_data[i].size > 0) lifted[graph.initializer(i).name()] = raw_data[i];
  }
  return lifted;
}

// Behind the guard.
absl::StatusOr<std::shared_ptr<onnx::ModelProto>> Parse(std::span<const std::byte> bytes) {
  auto proto = std::make_shared<onnx::ModelProto>();
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<int>(bytes.size()));
  stream.SetTotalBytesLimit(std::numeric_limits<int>::max() - 1);
  stream.SetRecursionLimit(kMaxMessages + 10);
  if (!proto->ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage()) {
    return Invalid("is not an ONNX model: not a protobuf of that kind");
  }
  return proto;
}

absl::Status ReadModel(const std::shared_ptr<const MappedFile>& file, OnnxModel::Parsed* model) {
  RETURN_IF_ERROR(GuardModelBytes(file->bytes()));
  const LiftedModel bytes = LiftInitializers(file->bytes(), kMappedFrom);
  ASSIGN_OR_RETURN(auto proto, Parse(std::as_bytes(std::span(bytes.rest))));
  LiftedData lifted = ByName(proto->graph(), bytes.raw_data);
  RETURN_IF_ERROR(ApplyEdits(model->edits, proto.get()));
  for (const auto& [name, value] : model->edits.tensors) lifted.erase(name);
  return Reader(std::move(proto), model->path, std::move(lifted), file).Read(model);
}

}  // namespace

absl::StatusOr<std::shared_ptr<onnx::ModelProto>> ParseModelProto(std::span<const std::byte> bytes) {
  RETURN_IF_ERROR(GuardModelBytes(bytes));
  return Parse(bytes);
}

OnnxModel::OnnxModel() : parsed_(std::make_unique<Parsed>()) {}
OnnxModel::~OnnxModel() = default;

absl::StatusOr<std::shared_ptr<const OnnxModel>> OnnxModel::Load(const std::string& path, ModelEdits edits) {
  const auto file = MapProtoFile(path);
  if (!file.ok()) return OneLine(file.status());
  std::shared_ptr<OnnxModel> model(new OnnxModel);
  model->parsed_->edits = std::move(edits);
  model->parsed_->path = path;
  model->parsed_->sha256 = std::async([file = *file] { return Sha256Hex(file->bytes()); }).share();
  if ((*file)->size() < kHashedMeanwhile) model->parsed_->sha256.wait();
  if (absl::Status s = ReadModel(*file, model->parsed_.get()); !s.ok()) return OneLine(Annotate(s, StrCat(path, ": ")));
  return std::shared_ptr<const OnnxModel>(model);
}

absl::Status OnnxModel::CheckUnchanged() const {
  for (const auto& file : parsed_->mapped) {
    if (!file->Unchanged()) return absl::FailedPreconditionError(StrCat(parsed_->path, ": it or its external data has changed since it was read"));
  }
  return absl::OkStatus();
}

void OnnxModel::DropResident() const {
  parsed_->sha256.wait();  // which reads the file
  for (const auto& file : parsed_->mapped) file->DropResident();
}

size_t OnnxModel::OwnBytes() const {
  size_t total = 0;
  for (const auto& [name, tensor] : parsed_->graph.initializers) {
    const std::byte* data = tensor.bytes().data();
    const bool mapped = std::any_of(parsed_->mapped.begin(), parsed_->mapped.end(),
                                    [&](const auto& file) { return data >= file->data() && data < file->data() + file->size(); });
    if (!mapped) total += tensor.bytes().size();
  }
  return total;
}

const std::string& OnnxModel::path() const { return parsed_->path; }
const std::string& OnnxModel::sha256() const { return parsed_->sha256.get(); }
const ModelEdits& OnnxModel::edits() const { return parsed_->edits; }
const std::vector<OnnxModel::Input>& OnnxModel::inputs() const { return parsed_->inputs; }
const std::vector<std::string>& OnnxModel::outputs() const { return parsed_->outputs; }
const std::vector<ValueForm>& OnnxModel::output_forms() const { return parsed_->output_forms; }
std::vector<OnnxModel::Input> OnnxModel::InputsOf(const std::vector<std::string>& values) const {
  std::unordered_set<std::string> needed(values.begin(), values.end());
  const auto& nodes = parsed_->graph.nodes;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (std::none_of(node->outputs.begin(), node->outputs.end(), [&](const std::string& o) { return !o.empty() && needed.count(o) > 0; })) continue;
    needed.insert(node->inputs.begin(), node->inputs.end());
    needed.insert(node->captured.begin(), node->captured.end());
  }
  std::vector<Input> inputs;
  std::copy_if(parsed_->inputs.begin(), parsed_->inputs.end(), std::back_inserter(inputs), [&](const Input& i) { return needed.count(i.name) > 0; });
  return inputs;
}

std::string OnnxModel::producer() const { return parsed_->producer; }
int64_t OnnxModel::ir_version() const { return parsed_->ir_version; }
std::map<std::string, int64_t> OnnxModel::opsets() const { return parsed_->opsets; }

std::vector<OnnxModel::Node> OnnxModel::nodes() const {
  std::vector<Node> nodes;
  for (const ParsedNode& node : parsed_->graph.nodes) {
    const std::string op = StrCat(node.domain, node.domain.empty() ? "" : ".", node.op_type);
    nodes.push_back({Printable(op), Printable(node.source), node.inputs, node.outputs});
  }
  return nodes;
}

std::map<std::string, int> OnnxModel::op_histogram() const {
  std::map<std::string, int> counts;
  for (const ParsedNode& node : parsed_->graph.nodes) ++counts[StrCat(node.domain, node.domain.empty() ? "" : ".", node.op_type)];
  return counts;
}

const HostTensor* OnnxModel::Initializer(const std::string& name) const {
  auto it = parsed_->graph.initializers.find(name);
  return it == parsed_->graph.initializers.end() ? nullptr : &it->second;
}

std::vector<std::string> OnnxModel::InitializerNames() const { return parsed_->graph.initializer_order; }

}  // namespace onnxtrain
