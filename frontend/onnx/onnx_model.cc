#include <algorithm>
#include <unordered_set>

#include "frontend/base/sha256.h"
#include "frontend/base/status.h"
#include "frontend/onnx/interop/ort_artifacts.h"
#include "frontend/onnx/read/file.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/read/proto_util.h"
#include "frontend/onnx/recover/rows.h"

namespace onnxtrain {
namespace {

// Files from this size on are hashed on a separate thread while the model is read and used.
constexpr size_t kMinHashedInBackground = size_t{1} << 20;

std::string OpName(const ParsedNode& node) { return StrCat(node.domain, node.domain.empty() ? "" : ".", node.op_type); }

bool IsWithin(const std::byte* data, const MappedFile& file) {
  return data >= file.data() && data < file.data() + file.size();
}

// Returns an initializer, or the value of a Constant node, as the file stores it.
absl::StatusOr<HostTensor> ReadStored(const std::string& name, const ParsedGraph& graph) {
  for (const JoinedWeight* joined : ListForms<JoinedWeight>(graph.records)) {
    if (joined->value == name) return JoinStored(*joined, graph);
  }
  if (const auto stored = graph.initializers.find(name); stored != graph.initializers.end()) return stored->second;
  for (const ParsedNode& node : graph.nodes) {
    const HostTensor* value = node.attrs.Tensor("value");
    if (node.op_type == "Constant" && node.outputs[0] == name && value != nullptr) return *value;
  }
  return Invalid("is neither an initializer nor a Constant");
}

}  // namespace

OnnxModel::OnnxModel() : parsed_(std::make_unique<Parsed>()) {}
OnnxModel::~OnnxModel() = default;

absl::StatusOr<std::shared_ptr<const OnnxModel>> OnnxModel::Load(const std::string& path, ModelEdits edits) {
  const auto assembled = AssembleOrtArtifacts(path);
  if (!assembled.ok()) return OneLine(assembled.status());
  if (assembled->has_value()) return LoadBytes(std::as_bytes(std::span(**assembled)), path, std::move(edits));
  auto file = MapProtoFile(path);
  if (!file.ok()) return OneLine(file.status());
  return LoadMapped(*std::move(file), path, std::move(edits), false);
}

absl::StatusOr<std::shared_ptr<const OnnxModel>> OnnxModel::LoadBytes(std::span<const std::byte> bytes,
                                                                      const std::string& name, ModelEdits edits) {
  if (bytes.empty()) return Invalid(name, ": is empty (0 bytes)");
  if (std::ssize(bytes) > kMaxProtoBytes) return Invalid(name, ": has ", bytes.size(), " bytes, more than 2 GiB");
  auto memory = MappedFile::Copy(bytes);
  if (!memory.ok()) return Annotate(memory.status(), StrCat(name, ": "));
  return LoadMapped(*std::move(memory), name, std::move(edits), true);
}

absl::StatusOr<std::shared_ptr<const OnnxModel>> OnnxModel::LoadMapped(const std::shared_ptr<const MappedFile>& file,
                                                                       const std::string& path, ModelEdits edits,
                                                                       bool in_memory) {
  std::shared_ptr<OnnxModel> model(new OnnxModel);
  model->parsed_->edits = std::move(edits);
  model->parsed_->path = path;
  if (in_memory) model->parsed_->memory = file;
  // Not a temporary: if no thread can be started, libstdc++ calls the callable after it has moved from it.
  const auto hash = [file] { return Sha256Hex(file->bytes()); };
  model->parsed_->sha256 = std::async(hash).share();
  if (file->size() < kMinHashedInBackground) model->parsed_->sha256.wait();
  if (absl::Status s = ReadModel(file, model->parsed_.get()); !s.ok()) return OneLine(Annotate(s, StrCat(path, ": ")));
  return std::shared_ptr<const OnnxModel>(model);
}

absl::StatusOr<std::shared_ptr<const OnnxModel>> OnnxModel::LoadEdited(ModelEdits edits) const {
  edits.ties = parsed_->edits.ties;
  edits.tie_stored_twice = parsed_->edits.tie_stored_twice;
  if (edits.low_rank.empty()) {
    edits.low_rank = parsed_->edits.low_rank;
    edits.blocks = parsed_->edits.blocks;
    edits.requantize = parsed_->edits.requantize;
  }
  StoredWeights stored{.tensors = {edits.tensors.begin(), edits.tensors.end()},
                       .read = [this](const std::string& name) { return ReadStored(name, parsed_->graph); }};
  RETURN_IF_ERROR(WriteStoredForms(parsed_->graph.records, &stored));
  edits.tensors.clear();
  for (const auto& [name, value] : stored.tensors) edits.tensors.emplace(name, value.Whole());
  for (const auto& [split, value] : stored.splits) {
    if (!value) continue;
    edits.tensors.emplace(split->name, value->Whole());
    for (const FileReader& reader : split->readers)
      edits.inputs.push_back({.node = reader.node, .input = reader.input, .name = split->name});
  }
  for (SplitNodes& split : stored.nodes) {
    const bool read = std::ranges::any_of(edits.inputs, [&](const auto& input) {
      return std::ranges::any_of(split.outputs, [&](const auto& output) { return output.second == input.node; });
    });
    if (read) edits.copies.push_back(std::move(split));
  }
  return in_memory() ? LoadMapped(parsed_->memory, path(), std::move(edits), true) : Load(path(), std::move(edits));
}

absl::Status OnnxModel::CheckUnchanged() const {
  for (const auto& file : parsed_->mapped) {
    if (!file->IsUnchanged())
      return absl::FailedPreconditionError(
          StrCat(parsed_->path, ": it or its external data has changed since it was read"));
  }
  return absl::OkStatus();
}

void OnnxModel::ReleasePages() const {
  parsed_->sha256.wait();  // hashing reads the file
  for (const auto& file : parsed_->mapped) file->ReleasePages();
}

size_t OnnxModel::HeapBytes() const {
  constexpr size_t kNodeBytes = 1024;  // of names, attributes and metadata; measured
  size_t total = parsed_->graph.nodes.size() * kNodeBytes;
  for (const auto& [name, tensor] : parsed_->graph.initializers) {
    const std::byte* data = tensor.bytes().data();
    const bool mapped = std::ranges::any_of(parsed_->mapped, [&](const auto& file) { return IsWithin(data, *file); });
    if (!mapped) total += tensor.bytes().size();
  }
  return total;
}

const std::string& OnnxModel::path() const { return parsed_->path; }
bool OnnxModel::in_memory() const { return parsed_->memory != nullptr; }
const std::string& OnnxModel::sha256() const { return parsed_->sha256.get(); }
const ModelEdits& OnnxModel::edits() const { return parsed_->edits; }
const std::vector<OnnxModel::Input>& OnnxModel::inputs() const { return parsed_->inputs; }
const std::vector<std::string>& OnnxModel::outputs() const { return parsed_->outputs; }
const std::vector<ValueForm>& OnnxModel::output_forms() const { return parsed_->output_forms; }

std::vector<OnnxModel::Input> OnnxModel::FindInputs(const std::vector<std::string>& values) const {
  std::unordered_set<std::string> needed(values.begin(), values.end());
  const auto& nodes = parsed_->graph.nodes;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (std::none_of(node->outputs.begin(), node->outputs.end(),
                     [&](const std::string& o) { return !o.empty() && needed.count(o) > 0; }))
      continue;
    needed.insert(node->inputs.begin(), node->inputs.end());
    needed.insert(node->captured.begin(), node->captured.end());
  }
  std::vector<Input> inputs;
  std::copy_if(parsed_->inputs.begin(), parsed_->inputs.end(), std::back_inserter(inputs),
               [&](const Input& i) { return needed.count(i.name) > 0; });
  return inputs;
}

std::string OnnxModel::producer() const { return parsed_->producer; }
int64_t OnnxModel::ir_version() const { return parsed_->ir_version; }
std::map<std::string, int64_t> OnnxModel::opsets() const {
  std::map<std::string, int64_t> versions;
  for (const auto& [domain, version] : parsed_->opsets) versions[domain] = version.newest;
  return versions;
}

std::vector<OnnxModel::Node> OnnxModel::nodes() const {
  std::vector<Node> nodes;
  for (const ParsedNode& node : parsed_->graph.nodes) {
    nodes.push_back({Printable(OpName(node)), Printable(node.source), node.inputs, node.outputs});
  }
  return nodes;
}

std::map<std::string, int> OnnxModel::op_histogram() const {
  std::map<std::string, int> counts;
  for (const ParsedNode& node : parsed_->graph.nodes) ++counts[OpName(node)];
  return counts;
}

const HostTensor* OnnxModel::Initializer(const std::string& name) const {
  auto it = parsed_->graph.initializers.find(name);
  return it == parsed_->graph.initializers.end() ? nullptr : &it->second;
}

std::vector<std::string> OnnxModel::InitializerNames() const { return parsed_->graph.initializer_order; }

const std::string& FindModelMetadata(const OnnxModel& model, const std::string& key) {
  return FindMetadata(model.parsed().metadata, key);
}

}  // namespace onnxtrain
