#include "frontend/onnx/interop/ort_artifacts.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <vector>

#include <onnx/onnx_pb.h>
#include "absl/strings/str_split.h"
#include "frontend/base/status.h"
#include "frontend/onnx/read/file.h"
#include "frontend/onnx/read/proto_util.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {
namespace {

constexpr char kIdentifier[] = "ODTC";
constexpr size_t kRoot = 0, kIdentifierAt = 4;

// Fields of the tables, in schema order.
enum CheckpointField { kVersion, kModuleState };
enum ModuleField { kTrained, kFrozen, kIsNominal, kHasExternalData };
enum TensorField { kName, kDocString, kDims, kDataType, kRawData, kStringData };

// Reads an untrusted flatbuffer. Reads outside of the bytes return 0 and are recorded.
class Buffer {
 public:
  explicit Buffer(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool damaged() const { return damaged_; }

  template <typename T>
  T Read(size_t at) const {
    T value = 0;
    if (at > bytes_.size() || bytes_.size() - at < sizeof(T)) {
      damaged_ = true;
    } else {
      std::memcpy(&value, bytes_.data() + at, sizeof(T));
    }
    return value;
  }

  // Returns the position that the offset stored at `at` refers to.
  size_t Follow(size_t at) const { return at + Read<uint32_t>(at); }

  // Returns the position of a table's field; 0 if it is absent.
  size_t Field(size_t table, int field) const {
    const size_t vtable = table - static_cast<size_t>(static_cast<int64_t>(Read<int32_t>(table)));
    const size_t entry = 4 + 2 * static_cast<size_t>(field);
    if (entry + 2 > Read<uint16_t>(vtable)) return 0;
    const uint16_t offset = Read<uint16_t>(vtable + entry);
    return offset == 0 ? 0 : table + offset;
  }

  // Returns the bytes of a vector field with elements of `size` bytes; empty if the field is absent.
  std::span<const std::byte> Elements(size_t table, int field, size_t size) const {
    const size_t at = Field(table, field);
    if (at == 0) return {};
    const size_t vector = Follow(at), count = Read<uint32_t>(vector);
    if (damaged_ || bytes_.size() - vector - 4 < count * size) {
      damaged_ = true;
      return {};
    }
    return bytes_.subspan(vector + 4, count * size);
  }

  // Returns the positions of the tables in a vector field.
  std::vector<size_t> Tables(size_t table, int field) const {
    const auto offsets = Elements(table, field, sizeof(uint32_t));
    std::vector<size_t> tables;
    for (size_t i = 0; i < offsets.size(); i += sizeof(uint32_t))
      tables.push_back(Follow(static_cast<size_t>(offsets.data() - bytes_.data()) + i));
    return tables;
  }

 private:
  std::span<const std::byte> bytes_;
  mutable bool damaged_ = false;
};

bool HasIdentifier(std::span<const std::byte> bytes) {
  return bytes.size() >= 8 && std::memcmp(bytes.data() + kIdentifierAt, kIdentifier, 4) == 0;
}

std::string ReadName(const Buffer& buffer, size_t tensor) {
  const auto bytes = buffer.Elements(tensor, kName, 1);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

absl::StatusOr<HostTensor> ReadValue(const Buffer& buffer, size_t tensor) {
  const auto dims = buffer.Elements(tensor, kDims, sizeof(int64_t)), raw = buffer.Elements(tensor, kRawData, 1);
  const size_t type_at = buffer.Field(tensor, kDataType);
  const auto dtype = DTypeFromOnnx(type_at == 0 ? 0 : buffer.Read<int32_t>(type_at));
  if (buffer.damaged()) return Invalid("is damaged");
  if (!dtype.has_value()) return Invalid("has an element type that is not supported");
  Type type{*dtype, Shape(dims.size() / sizeof(int64_t))};
  std::ranges::copy(dims, std::as_writable_bytes(std::span(type.shape)).begin());
  size_t bytes = DTypeSize(*dtype);
  for (const int64_t d : type.shape) {
    if (d < 0 || (d > 0 && bytes > raw.size() / static_cast<size_t>(d))) return Invalid("has more elements than bytes");
    bytes *= static_cast<size_t>(d);
  }
  if (bytes != raw.size()) return Invalid("has ", raw.size(), " bytes, ", ToString(type), " takes ", bytes);
  HostTensor value(type);
  std::ranges::copy(raw, value.mutable_bytes().begin());
  return value;
}

}  // namespace

bool IsOrtCheckpoint(const std::string& path) {
  std::vector<char> bytes(256);
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const std::span<const std::byte> head = std::as_bytes(std::span(bytes).first(static_cast<size_t>(file.gcount())));
  if (!HasIdentifier(head)) return false;
  const Buffer buffer(head);
  const size_t state = buffer.Field(buffer.Follow(kRoot), kModuleState);
  if (state == 0) return false;
  const size_t nominal = buffer.Field(buffer.Follow(state), kIsNominal);
  return nominal == 0 || buffer.Read<uint8_t>(nominal) == 0 || buffer.damaged();
}

absl::StatusOr<std::map<std::string, HostTensor>> ParseOrtCheckpoint(std::span<const std::byte> bytes) {
  if (!HasIdentifier(bytes)) return Invalid("is no checkpoint of ONNX Runtime");
  const Buffer buffer(bytes);
  const size_t field = buffer.Field(buffer.Follow(kRoot), kModuleState);
  if (field == 0 || buffer.damaged()) return Invalid("is damaged: it holds no weights");
  const size_t state = buffer.Follow(field);
  const size_t external = buffer.Field(state, kHasExternalData);
  if (external != 0 && buffer.Read<uint8_t>(external) != 0)
    return Invalid("keeps its values in another file, which is not read");
  std::map<std::string, HostTensor> weights;
  size_t total = 0;  // bounds values that share bytes, which could exceed the memory
  for (const int list : {kTrained, kFrozen}) {
    for (const size_t tensor : buffer.Tables(state, list)) {
      const std::string name = ReadName(buffer, tensor);
      auto value = ReadValue(buffer, tensor);
      if (!value.ok()) return Annotate(value.status(), StrCat("weight '", name, "': "));
      total += value->bytes().size();
      if (total > bytes.size()) return Invalid("is damaged: its weights overlap");
      weights.emplace(name, *std::move(value));
    }
  }
  return buffer.damaged() ? absl::StatusOr<std::map<std::string, HostTensor>>(Invalid("is damaged")) : weights;
}

namespace {

namespace fs = std::filesystem;

constexpr char kEval[] = "eval_model.onnx", kOutputsKey[] = "InferenceGraphOutputs";
constexpr const char* kRoles[] = {kEval, "training_model.onnx", "optimizer_model.onnx"};

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Returns the eval model of a folder of artifacts or of an artifact, whose name may have a prefix; "" for other paths.
fs::path FindEvalModel(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    const bool artifacts = std::ranges::any_of(kRoles, [&](const char* role) { return Exists(path / role); });
    return artifacts ? path / kEval : fs::path();
  }
  const std::string name = path.filename().string();
  for (const std::string_view role : kRoles) {
    if (name.ends_with(role)) return path.parent_path() / StrCat(name.substr(0, name.size() - role.size()), kEval);
  }
  return {};
}

absl::StatusOr<std::shared_ptr<onnx::ModelProto>> ReadProto(const fs::path& path) {
  ASSIGN_OR_RETURN(const auto file, MapProtoFile(path.string()));
  auto proto = ParseModelProto(file->bytes());
  return proto.ok() ? proto : Annotate(proto.status(), StrCat(path.string(), ": "));
}

bool HasInput(const onnx::GraphProto& graph, bool (*matches)(const std::string& name)) {
  return std::ranges::any_of(graph.input(), [&](const auto& input) { return matches(input.name()); });
}

// Returns true if the graph has gradient buffers or lists of moments as inputs, and so is an artifact, not a model with
// such a name.
bool IsTrainingOrOptimizer(const onnx::GraphProto& graph) {
  return HasInput(graph, [](const std::string& name) {
    return name == "lazy_reset_grad" || name == "first_order_moments" || name.ends_with("_grad.accumulation.buffer");
  });
}

// Returns true if weights may be inputs of the graph, that is, if it has no matrices among its initializers.
bool LacksWeights(const onnx::GraphProto& graph) {
  const bool holds = std::ranges::any_of(graph.initializer(), [](const auto& t) { return t.dims_size() > 1; });
  return !holds && graph.input_size() > 2;
}

std::vector<fs::path> ListCheckpoints(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder.empty() ? fs::path(".") : folder, error)) {
    if (entry.is_regular_file(error) && IsOrtCheckpoint(entry.path().string())) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

absl::StatusOr<fs::path> FindCheckpoint(const fs::path& folder) {
  const std::vector<fs::path> found = ListCheckpoints(folder);
  if (found.empty())
    return Invalid("its weights are in a checkpoint of ONNX Runtime, which is missing in the same folder");
  if (found.size() > 1)
    return Invalid("two checkpoints are in its folder: ", found[0].filename().string(), " and ",
                   found[1].filename().string());
  return found[0];
}

// Adds the names that a node and its bodies read.
void AddReads(const onnx::NodeProto& node, std::set<std::string>* reads) {
  reads->insert(node.input().begin(), node.input().end());
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    const auto add_body = [&](const onnx::GraphProto& body) {
      for (const onnx::NodeProto& inner : body.node()) AddReads(inner, reads);
      for (const onnx::ValueInfoProto& output : body.output()) reads->insert(output.name());
    };
    if (attribute.has_g()) add_body(attribute.g());
    std::ranges::for_each(attribute.graphs(), add_body);
  }
}

// Removes nodes that the outputs do not depend on, and unread inputs.
void Prune(const std::vector<std::string>& outputs, onnx::GraphProto* graph) {
  std::set<std::string> needed(outputs.begin(), outputs.end());
  std::vector<onnx::NodeProto> kept;
  for (int i = graph->node_size() - 1; i >= 0; --i) {
    onnx::NodeProto* node = graph->mutable_node(i);
    if (std::ranges::none_of(node->output(), [&](const std::string& o) { return needed.contains(o); })) continue;
    AddReads(*node, &needed);
    kept.push_back(std::move(*node));
  }
  graph->clear_node();
  for (auto node = kept.rbegin(); node != kept.rend(); ++node) *graph->add_node() = std::move(*node);
  const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> inputs = graph->input();
  graph->clear_input();
  for (const onnx::ValueInfoProto& input : inputs) {
    if (needed.contains(input.name())) *graph->add_input() = input;
  }
}

// Returns the declared type of an inner value; else float, and a matrix if a Gemm computes it.
onnx::ValueInfoProto DescribeValue(const std::string& name, const onnx::GraphProto& graph) {
  for (const onnx::ValueInfoProto& info : graph.value_info()) {
    if (info.name() == name) return info;
  }
  onnx::ValueInfoProto info;
  info.set_name(name);
  auto* type = info.mutable_type()->mutable_tensor_type();
  type->set_elem_type(onnx::TensorProto::FLOAT);
  const bool product = std::ranges::any_of(graph.node(), [&](const onnx::NodeProto& node) {
    return node.output_size() == 1 && node.output(0) == name && node.op_type() == "Gemm";
  });
  for (int i = 0; product && i < 2; ++i) type->mutable_shape()->add_dim();
  return info;
}

void ReplaceOutputs(const std::vector<std::string>& outputs, onnx::GraphProto* graph) {
  graph->clear_output();
  for (const std::string& name : outputs) *graph->add_output() = DescribeValue(name, *graph);
  Prune(outputs, graph);
}

// Replaces inputs by the initializers of the checkpoint.
absl::Status AddWeights(const fs::path& checkpoint, onnx::ModelProto* model) {
  ASSIGN_OR_RETURN(const auto file, MapProtoFile(checkpoint.string()));
  auto weights = ParseOrtCheckpoint(file->bytes());
  if (!weights.ok()) return Annotate(weights.status(), StrCat(checkpoint.string(), ": "));
  onnx::GraphProto* graph = model->mutable_graph();
  const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> inputs = graph->input();
  graph->clear_input();
  for (const onnx::ValueInfoProto& input : inputs) {
    const auto weight = weights->find(input.name());
    if (weight == weights->end()) {
      *graph->add_input() = input;
    } else {
      AddInitializer(input.name(), weight->second, model);
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> ListOrtArtifacts(const std::string& path) {
  const fs::path eval = FindEvalModel(path);
  if (eval.empty()) return {};
  std::vector<std::string> files = {eval.string()};
  for (const fs::path& checkpoint : ListCheckpoints(eval.parent_path())) files.push_back(checkpoint.string());
  return files;
}

absl::StatusOr<std::optional<std::string>> AssembleOrtArtifacts(const std::string& path) {
  const fs::path eval = FindEvalModel(path);
  if (eval.empty()) return std::nullopt;
  if (!Exists(eval)) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
      ASSIGN_OR_RETURN(const auto other, ReadProto(path));
      if (!IsTrainingOrOptimizer(other->graph())) return std::nullopt;
    }
    return Invalid(path, ": an artifact of ONNX Runtime's training; its ", eval.filename().string(),
                   ", which has the model, is missing in the same folder");
  }
  ASSIGN_OR_RETURN(const auto model, ReadProto(eval));
  const std::string named = FindMetadata(ReadMetadata(*model), kOutputsKey);
  if (named.empty() && !LacksWeights(model->graph())) return std::nullopt;
  const auto checkpoint = FindCheckpoint(eval.parent_path());
  if (!checkpoint.ok()) {
    if (named.empty()) return std::nullopt;
    return Annotate(checkpoint.status(), StrCat(eval.string(), ": "));
  }
  if (!named.empty()) {
    const std::vector<std::string> outputs = absl::StrSplit(named, absl::ByAnyChar(", "), absl::SkipEmpty());
    ReplaceOutputs(outputs, model->mutable_graph());
  }
  RETURN_IF_ERROR(AddWeights(*checkpoint, model.get()));
  std::string bytes;
  if (!model->SerializeToString(&bytes)) return Invalid(eval.string(), ": has more than 2 GiB with its weights");
  return bytes;
}

}  // namespace onnxtrain
