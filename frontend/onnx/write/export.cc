#include "frontend/onnx/write/export.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "frontend/base/files.h"
#include "frontend/base/sha256.h"
#include "frontend/base/status.h"
#include "frontend/onnx/edit/low_rank.h"
#include "frontend/onnx/read/file.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/read/proto_util.h"
#include "frontend/onnx/read/tensor_proto.h"
#include "frontend/onnx/recover/parametrizations.h"
#include "frontend/onnx/write/adapter_inputs.h"
#include "frontend/onnx/write/external_writer.h"
#include "frontend/onnx/write/low_rank_nodes.h"
#include "frontend/onnx/write/weight_replacer.h"

namespace onnxtrain {
namespace {

class Exporter {
 public:
  Exporter(onnx::ModelProto* model, const std::string& source, const std::string& target)
      : model_(model),
        graph_(model->mutable_graph()),
        files_(source),
        weights_(model, &files_),
        external_(source, target) {}

  absl::StatusOr<std::vector<std::string>> Edit(const std::map<std::string, HostTensor>& trained,
                                                const WeightRecords& records, bool checks_only) {
    StoredWeights stored{.tensors = {trained.begin(), trained.end()},
                         .checks_only = checks_only,
                         .read = [this](const std::string& name) { return weights_.ReadConstant(name); }};
    RETURN_IF_ERROR(WriteStoredForms(records, &stored));
    weights_.SetSplitNodes(std::move(stored.nodes));
    RETURN_IF_ERROR(ReadUntrained(&stored.splits));
    for (const bool copies : {false, true}) {
      for (const auto& [name, value] : stored.tensors) {
        if (weights_.IsCopy(name) == copies)
          RETURN_IF_ERROR(Annotate(weights_.Replace(name, value), StrCat("weight '", Printable(name), "' ")));
      }
    }
    for (const auto& [split, value] : stored.splits) {
      if (value)
        RETURN_IF_ERROR(
            Annotate(weights_.ReplaceSplit(*split, *value), StrCat("weight '", Printable(split->name), "' ")));
    }
    RETURN_IF_ERROR(PlaceExternal());
    LeaveTrainingMode();
    weights_.RemoveReplacedNodes();
    requantized_ = std::move(stored.requantized);
    return Notes();
  }

  const std::vector<std::pair<std::string, double>>& requantized() const { return requantized_; }

  ExternalWriter& external() { return external_; }
  void SetExtracted(const ExtractedData& extracted, const std::shared_ptr<const MappedFile>& file) {
    std::map<const onnx::TensorProto*, LazyTensor> raw_data;
    for (const auto& proto : graph_->initializer()) {
      const auto at = extracted.find(proto.name());
      if (at == extracted.end()) continue;
      const Type type{DType::kUInt8, {static_cast<int64_t>(at->second.size)}};
      raw_data.emplace(&proto, HostTensor(type, file, file->data() + at->second.offset));
    }
    weights_.SetExtracted(std::move(raw_data));
  }

  // Returns the message, after Edit. Its pieces refer to bytes of this exporter, of the file and of the trained
  // weights.
  std::vector<MessagePiece> Serialize() {
    std::vector<LazyTensor> raw_data;
    for (auto& proto : *graph_->mutable_initializer()) {
      const auto at = weights_.extracted().find(&proto);
      const bool extracted = at != weights_.extracted().end();
      raw_data.push_back(extracted ? at->second : LazyTensor());
      if (extracted) proto.set_raw_data("");
    }
    return InsertInitializers(model_->SerializeAsString(), raw_data);
  }

 private:
  // Reads merged weights that are not trained from the file, before any replacement. Weights that the file omits stay
  // zero.
  absl::Status ReadUntrained(std::vector<StoredWeights::Split>* splits) {
    for (auto& [split, value] : *splits) {
      if (value || split->merged.empty()) continue;
      ASSIGN_OR_RETURN(const HostTensor stored, weights_.ReadInitializer(split->merged));
      value = stored.Clone();
    }
    return absl::OkStatus();
  }

  // Keeps external data of the source external, replaced or not.
  absl::Status PlaceExternal() {
    std::vector<std::pair<onnx::TensorProto*, size_t>> moved;
    RETURN_IF_ERROR(ForEachTensor(model_, [&](onnx::TensorProto* proto) {
      if (proto->data_location() != onnx::TensorProto::EXTERNAL) return absl::OkStatus();
      auto stored = ReadExternalBytes(*proto, &files_);
      if (!stored.ok()) return Annotate(stored.status(), StrCat("tensor '", Printable(proto->name()), "' "));
      const auto replaced = weights_.external().find(proto);
      const bool is_new = replaced != weights_.external().end();
      moved.emplace_back(proto,
                         external_.Add(stored->range, is_new ? replaced->second : LazyTensor(stored->bytes), is_new));
      return absl::OkStatus();
    }));
    RETURN_IF_ERROR(external_.Place());
    for (const auto& [proto, i] : moved) SetRange(external_.range(i), proto);
    return absl::OkStatus();
  }

  static void SetRange(const ExternalRange& range, onnx::TensorProto* proto) {
    proto->clear_external_data();
    for (const auto& [key, value] : {std::pair<std::string, std::string>("location", range.location),
                                     {"offset", StrCat(range.offset)},
                                     {"length", StrCat(range.length)}}) {
      auto* entry = proto->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
  }

  // Returns the names that nodes and outputs read.
  std::set<std::string> ReadNames() const {
    std::set<std::string> names;
    for (const auto& node : graph_->node()) names.insert(node.input().begin(), node.input().end());
    for (const auto& output : graph_->output()) names.insert(output.name());
    return names;
  }

  void LeaveTrainingMode() {
    const std::set<std::string> read = ReadNames();
    for (auto& node : *graph_->mutable_node()) {
      if (IsOnnxOp(node, "BatchNormalization")) DisableBatchStatistics(read, &node);
      if (IsOnnxOp(node, "Dropout")) DisableDropout(&node);
    }
  }

  // Sets a BatchNormalization to inference mode and removes its statistics outputs, unless anything reads them.
  // Training mode is an attribute since opset 14; before, these outputs imply it.
  void DisableBatchStatistics(const std::set<std::string>& read, onnx::NodeProto* node) {
    onnx::AttributeProto* mode = FindAttribute(node, "training_mode");
    const bool training = mode != nullptr ? mode->i() != 0 : node->output_size() > 1;
    if (!training) return;
    for (int i = 1; i < node->output_size(); ++i) {
      if (read.count(node->output(i)) > 0) return;
    }
    if (mode != nullptr) mode->set_i(0);
    while (node->output_size() > 1) node->mutable_output()->RemoveLast();
    ++modes_changed_;
  }

  void DisableDropout(onnx::NodeProto* node) {
    if (node->input_size() < 3 || node->input(2).empty()) return;
    const onnx::TensorProto* mode = weights_.FindTensor(node->input(2));
    if (mode == nullptr) return;
    auto value = weights_.ReadStored(*mode);
    if (!value.ok() || value->size() != 1 || value->IntAt(0) == 0) return;
    node->mutable_input()->RemoveLast();  // inference mode, the default
    ++modes_changed_;
  }

  std::string DescribeErrors() const {
    const auto worst = std::ranges::max_element(requantized_, {}, &std::pair<std::string, double>::second);
    return StrCat(requantized_.size(),
                  " sums with adapters were quantized in the blocks of the file; largest relative error ",
                  absl::StrFormat("%.3g", worst->second), ", of '", Printable(worst->first), "'");
  }

  std::vector<std::string> Notes() const {
    std::vector<std::string> notes;
    auto note = [&](int count, std::string_view what) {
      if (count > 0) notes.push_back(StrCat(count, " ", what));
    };
    const WeightReplacer::Counts& counts = weights_.counts();
    note(counts.initializers, "initializers replaced");
    note(counts.constants, "Constant nodes replaced");
    note(counts.attributes, "attributes replaced");
    note(counts.filled, "ConstantOfShape nodes became initializers");
    note(counts.split_copies,
         "Identity nodes over shared initializers became initializers: the copies were trained separately");
    note(counts.split_weights,
         "weights of different modules, which the file stores as one initializer, became initializers of their own");
    note(counts.copied_nodes, "nodes, which the file shares between modules, were copied: their weights differ now");
    note(counts.restored_biases, "biases, which the file leaves out because they were zeros, became initializers");
    note(modes_changed_, "BatchNormalization or Dropout nodes set to inference mode");
    note(static_cast<int>(external_.size()), "tensors written as external data");
    if (!requantized_.empty()) notes.push_back(DescribeErrors());
    return notes;
  }

  onnx::ModelProto* model_;
  onnx::GraphProto* graph_;
  ExternalFiles files_;
  WeightReplacer weights_;
  ExternalWriter external_;
  std::vector<std::pair<std::string, double>> requantized_;
  int modes_changed_ = 0;
};

// The source file and its message after all edits.
struct EditedModel {
  std::shared_ptr<const MappedFile> file;
  std::shared_ptr<onnx::ModelProto> model;
  std::unique_ptr<Exporter> exporter;
  std::vector<std::string> notes;
  std::vector<MessagePiece> pieces;  // pieces of the message
};

std::string HashFile(const std::shared_ptr<const MappedFile>& file) {
  Sha256 hash;
  const Type type{DType::kUInt8, {static_cast<int64_t>(file->size())}};
  LazyTensor(HostTensor(type, file, file->data())).ForEachBlock([&](int64_t, const HostTensor& block) {
    hash.Update(block.bytes());
    return true;
  });
  return hash.Hex();
}

absl::StatusOr<EditedModel> EditModel(const OnnxModel& source, const std::map<std::string, HostTensor>& weights,
                                      const std::string& target, const AdapterInputs* inputs = nullptr,
                                      bool checks_only = false) {
  RETURN_IF_ERROR(source.CheckUnchanged());
  EditedModel edited{.file = source.parsed().memory};
  const bool in_memory = edited.file != nullptr;
  if (!in_memory) {
    ASSIGN_OR_RETURN(edited.file, MapProtoFile(source.path()));
  }
  const std::string tag = StrCat(source.path(), ": ");
  const ModelEdits& edits = source.edits();
  if (HashFile(edited.file) != source.sha256())
    return absl::FailedPreconditionError(StrCat(tag, "has changed since it was imported"));
  auto model = ParsePartialModel(edited.file->bytes());
  if (!model.ok()) return OneLine(Annotate(model.status(), tag));
  edited.model = std::move(model->proto);
  if (!edits.tensors.empty() && edited.model->has_graph()) MoveBodyWeights(edited.model->mutable_graph());
  if (absl::Status s = ApplyEdits(edits, edited.model.get()); !s.ok()) return OneLine(Annotate(s, tag));
  if (absl::Status s = AddLowRankNodes(source.parsed().graph.records, edited.model.get()); !s.ok())
    return OneLine(Annotate(s, tag));
  for (const auto& [name, value] : edits.tensors) model->extracted.erase(name);
  edited.exporter = std::make_unique<Exporter>(edited.model.get(), in_memory ? "" : source.path(), target);
  edited.exporter->SetExtracted(model->extracted, edited.file);
  auto notes = edited.exporter->Edit(weights, source.parsed().graph.records, checks_only);
  if (!notes.ok()) return OneLine(Annotate(notes.status(), tag));
  edited.notes = *std::move(notes);
  if (inputs != nullptr) RETURN_IF_ERROR(OneLine(Annotate(AddAdapterInputs(*inputs, edited.model.get()), tag)));
  edited.pieces = edited.exporter->Serialize();
  const uint64_t size = CountBytes(edited.pieces);
  if (size > static_cast<uint64_t>(std::numeric_limits<int>::max() - 1))
    return Invalid("the trained model has ", size, " bytes, more than an ONNX file may have");
  return edited;
}

// Writes all files under temporary names, then commits the data before the model, so that the model never refers to a
// missing file.
absl::Status WriteModel(const std::vector<MessagePiece>& pieces, ExternalWriter& external, const std::string& target) {
  RETURN_IF_ERROR(external.Write());
  ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(target));
  int64_t at = 0;
  for (const MessagePiece& piece : pieces) {
    RETURN_IF_ERROR(file.WriteAt(at, std::as_bytes(std::span(piece.head))));
    at += std::ssize(piece.head);
    RETURN_IF_ERROR(WriteAt(at, piece.data, file));
    at += static_cast<int64_t>(piece.data.bytes());
  }
  RETURN_IF_ERROR(external.Commit());
  return file.Commit();
}

// Returns the values of those weights that the file has merged into the initializers of others.
std::map<std::string, HostTensor> ListSharedWeights(const OnnxModel& model, const std::vector<std::string>& names) {
  std::set<std::string> merged;
  for (const SplitWeight* split : ListForms<SplitWeight>(model.parsed().graph.records)) merged.insert(split->name);
  std::map<std::string, HostTensor> shared;
  for (const ModuleWeight& weight : ListModuleWeights(model, {})) {
    if (std::ranges::find(names, weight.weight) == names.end()) continue;
    if (merged.contains(weight.weight) || model.Initializer(weight.weight) == nullptr)
      shared.emplace(weight.weight, weight.value);
  }
  return shared;
}

// Builds the message of the base with optional inputs.
absl::StatusOr<EditedModel> EditBase(const OnnxModel& model, const std::vector<std::string>& weights,
                                     const std::string& target) {
  if (model.in_memory()) return Invalid(model.path(), ": is no single file, whose base could be written");
  const AdapterInputs inputs{.updates = model.edits().low_rank, .weights = weights};
  ModelEdits edits = model.edits();
  edits.low_rank.clear();
  for (const std::string& name : edits.replaced) edits.tensors.erase(name);
  ASSIGN_OR_RETURN(auto base, OnnxModel::Load(model.path(), edits));
  const std::map<std::string, HostTensor> shared = ListSharedWeights(*base, weights);
  if (!shared.empty()) {
    for (const auto& [name, value] : shared) edits.tensors.insert_or_assign(name, value);
    ASSIGN_OR_RETURN(base, base->LoadEdited(std::move(edits)));
  }
  return EditModel(*base, {}, target, &inputs);
}

absl::Status CheckRoom(int64_t bytes, const std::string& target) {
  const std::string folder = std::filesystem::path(target).parent_path().string();
  std::error_code error;
  const auto space = std::filesystem::space(folder.empty() ? "." : folder, error);
  if (error || space.available >= static_cast<uintmax_t>(bytes)) return absl::OkStatus();
  return absl::UnavailableError(
      StrCat(target, ": needs ", bytes, " bytes, and its folder has room for ", space.available));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> Export(const OnnxModel& model,
                                                const std::map<std::string, HostTensor>& weights,
                                                const std::string& target,
                                                std::vector<std::pair<std::string, double>>* errors) {
  ASSIGN_OR_RETURN(EditedModel edited, EditModel(model, weights, target));
  if (errors != nullptr) *errors = edited.exporter->requantized();
  RETURN_IF_ERROR(OneLine(WriteModel(edited.pieces, edited.exporter->external(), target)));
  const std::vector<std::string>& lines = model.edits().lines;
  edited.notes.insert(edited.notes.begin(), lines.begin(), lines.end());
  return std::move(edited.notes);
}

absl::StatusOr<std::string> ExportBytes(const OnnxModel& model, const std::map<std::string, HostTensor>& weights) {
  ASSIGN_OR_RETURN(const EditedModel edited, EditModel(model, weights, "model.onnx"));
  if (edited.exporter->external().size() > 0) return Invalid(model.path(), ": has external data: export it to a file");
  std::string bytes;
  bytes.reserve(CountBytes(edited.pieces));
  for (const MessagePiece& piece : edited.pieces) {
    bytes.append(piece.head);
    piece.data.ForEachBlock([&](int64_t, const HostTensor& block) {
      bytes.append(reinterpret_cast<const char*>(block.bytes().data()), block.bytes().size());
      return true;
    });
  }
  return bytes;
}

namespace {

absl::Status CheckWrites(const EditedModel& edited, const std::string& target) {
  const int64_t bytes = static_cast<int64_t>(CountBytes(edited.pieces)) + edited.exporter->external().bytes();
  RETURN_IF_ERROR(CheckRoom(bytes, target));
  return AtomicFile::Create(target).status();
}

}  // namespace

absl::Status CheckExport(const OnnxModel& model, const std::map<std::string, HostTensor>& weights,
                         const std::string& target) {
  ASSIGN_OR_RETURN(const EditedModel edited, EditModel(model, weights, target, nullptr, true));
  return CheckWrites(edited, target);
}

absl::Status ExportAdapterInputs(const OnnxModel& model, const std::vector<std::string>& weights,
                                 const std::string& target) {
  ASSIGN_OR_RETURN(const EditedModel edited, EditBase(model, weights, target));
  return OneLine(WriteModel(edited.pieces, edited.exporter->external(), target));
}

absl::Status CheckAdapterInputs(const OnnxModel& model, const std::vector<std::string>& weights,
                                const std::string& target) {
  ASSIGN_OR_RETURN(const EditedModel edited, EditBase(model, weights, target));
  return CheckWrites(edited, target);
}

}  // namespace onnxtrain
