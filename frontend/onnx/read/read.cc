#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include <onnx/onnx_pb.h>
#include "frontend/base/status.h"
#include "frontend/onnx/read/graph_reader.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/read/proto_util.h"
#include "frontend/onnx/recover/last_selected.h"
#include "frontend/onnx/recover/parametrizations.h"
#include "google/protobuf/io/coded_stream.h"

namespace onnxtrain {
namespace {

bool Moves(const ParsedNode& node) {
  const OnnxTraits& traits = GetOnnxTraits(node);
  return traits.view || traits.moves || (node.domain.empty() && node.op_type == "Cast");
}

bool TestsForNan(const ParsedNode& node) {
  if (node.domain.empty()) return node.op_type == "IsNaN";
  return node.domain == "ai.onnx.ml" && node.op_type == "Imputer" &&
         std::isnan(node.attrs.Float("replaced_value_float"));
}

// Returns the inputs that reach IsNaN, or an Imputer that replaces NaN, through no operators but moves and casts.
std::set<std::string> FindFilledInputs(const ParsedGraph& graph) {
  std::unordered_set<std::string> tested;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const auto is_tested = [&](const std::string& output) { return tested.contains(output); };
    const bool moves = std::ranges::any_of(node->outputs, is_tested) && Moves(*node);
    if (moves || TestsForNan(*node)) tested.insert(node->inputs.begin(), node->inputs.end());
  }
  std::set<std::string> inputs;
  for (const ParsedValue& input : graph.inputs) {
    if (input.dtype && IsFloat(*input.dtype) && tested.contains(input.name)) inputs.insert(input.name);
  }
  return inputs;
}

class TextNumberer {
 public:
  explicit TextNumberer(ParsedGraph* graph) : graph_(*graph) {}

  // Returns the texts by index; null if the graph is unchanged.
  std::shared_ptr<const std::vector<std::string>> Run() {
    for (const ParsedValue& input : graph_.inputs) {
      if (IsTextInput(input)) values_.insert(input.name);
    }
    if (values_.empty() || !std::ranges::all_of(graph_.nodes, [this](const auto& node) { return Follow(node); }))
      return nullptr;
    for (ParsedNode& node : graph_.nodes) {
      if (ReadsTexts(node)) Rewrite(&node);
    }
    for (ParsedValue& input : graph_.inputs) {
      if (IsTextInput(input)) input.dtype = DType::kInt64;
    }
    return std::make_shared<const std::vector<std::string>>(std::move(texts_));
  }

 private:
  static bool IsTextInput(const ParsedValue& input) { return !input.dtype && input.kind == kTextKind; }

  bool ReadsTexts(const ParsedNode& node) const {
    const auto is_text = [this](const std::string& name) { return values_.contains(name); };
    return std::ranges::any_of(node.inputs, is_text) || std::ranges::any_of(node.captured, is_text);
  }

  // Marks the outputs of a node that moves or looks up texts. Returns false if the node uses them in another way.
  bool Follow(const ParsedNode& node) {
    if (!ReadsTexts(node)) return true;
    const OnnxTraits& traits = GetOnnxTraits(node);
    const bool looks_up = Has(node, traits.text_keys), moves = traits.view || (traits.moves && MovesTextsOnly(node));
    if (!node.graphs.empty() || (!looks_up && !moves)) return false;
    if (moves || Has(node, traits.text_values)) values_.insert(node.outputs.begin(), node.outputs.end());
    values_.erase("");
    return true;
  }

  static bool Has(const ParsedNode& node, const TextAttr& attr) {
    return !attr.texts.empty() && node.strings.contains(std::string(attr.texts));
  }

  // Returns false if the node also reads strings of the file, which have no indices.
  bool MovesTextsOnly(const ParsedNode& node) const {
    return std::ranges::none_of(node.inputs, [this](const auto& name) { return graph_.opaque.contains(name); });
  }

  void Rewrite(ParsedNode* node) {
    const OnnxTraits& traits = GetOnnxTraits(*node);
    if (Has(*node, traits.text_keys)) Number(traits.text_keys, node);
    if (!Has(*node, traits.text_values)) return;
    Number(traits.text_values, node);
    node->attrs.Set("default_int64", FindPlace(node->attrs.String("default_string", "_Unused")));
  }

  void Number(const TextAttr& attr, ParsedNode* node) {
    const std::string texts(attr.texts);
    std::vector<int64_t> places;
    for (const std::string& text : node->strings.at(texts)) places.push_back(FindPlace(text));
    node->attrs.Erase(texts);
    node->strings.erase(texts);
    node->opaque.erase(texts);
    node->attrs.Set(std::string(attr.places), std::move(places));
  }

  int64_t FindPlace(const std::string& text) {
    const auto [it, added] = places_.emplace(text, std::ssize(texts_));
    if (added) texts_.push_back(text);
    return it->second;
  }

  ParsedGraph& graph_;
  std::vector<std::string> texts_;
  std::set<std::string> values_;  // values that hold texts
  std::unordered_map<std::string, int64_t> places_;
};

// Changes inputs of strings to int64 if the graph only moves the strings and looks them up in lists of the file, as
// encoders of categories do. Each string becomes its index in OnnxModel::Parsed::texts, the list of all strings that
// the model compares with, or -1 if it is not in the list; the operators become those for integers. Changes nothing if
// another operator reads the strings. Does not affect the exported file.
void NumberInputTexts(OnnxModel::Parsed* model) { model->texts = TextNumberer(&model->graph).Run(); }

constexpr int64_t kMaxVersion = 1000;  // of opsets and IR; real versions are below 30

// Returns the newest opset of an IR version, for files without opset_import. Before IR version 3 there was only opset
// 1.
int64_t NewestOpset(int64_t ir_version) {
  constexpr int64_t kNewestOf[] = {1, 1, 1, 8, 9, 10, 11, 14, 18, 20, 22, 23, 24};
  return kNewestOf[std::min<size_t>(ir_version, std::size(kNewestOf) - 1)];
}

// Reads the opset versions of each domain; some tools append theirs to the existing one. Import refuses nodes whose
// meaning depends on the version.
template <typename Imports>
absl::Status ReadOpsets(const Imports& imports, Opsets* opsets) {
  for (const auto& opset : imports) {
    if (opset.version() < 1 || opset.version() > kMaxVersion) {
      return Invalid("imports opset version ", opset.version(), " of domain '", Printable(opset.domain()),
                     "', which does not exist");
    }
    OpsetVersion& version =
        opsets->emplace(NormalizeDomain(opset.domain()), OpsetVersion{opset.version()}).first->second;
    const int64_t oldest = std::min(version.oldest.value_or(version.newest), opset.version());
    version.newest = std::max(version.newest, opset.version());
    if (oldest != version.newest) version.oldest = oldest;
  }
  return absl::OkStatus();
}

void NoteSeveralVersions(const std::string& tag, const Opsets& opsets, std::vector<std::string>* notes) {
  for (const auto& [domain, version] : opsets) {
    if (!version.oldest.has_value()) continue;
    notes->push_back(StrCat(tag, "imports domain '", domain.empty() ? "ai.onnx" : Printable(domain),
                            "' in the versions ", *version.oldest, " to ", version.newest, ": taken for ",
                            version.newest, ", as its operators mean the same in both"));
  }
}

absl::Status ReadVersions(const onnx::ModelProto& proto, OnnxModel::Parsed* model) {
  model->ir_version = proto.ir_version();
  if (model->ir_version < 1 || model->ir_version > kMaxVersion) {
    return Invalid("has no sensible ir_version (", model->ir_version, ")",
                   proto.has_graph() ? "" : ": it is not an ONNX model");
  }
  RETURN_IF_ERROR(ReadOpsets(proto.opset_import(), &model->opsets));
  NoteSeveralVersions("", model->opsets, &model->notes);
  if (model->opsets.empty()) {
    model->opsets[""].newest = NewestOpset(model->ir_version);
    if (model->ir_version >= 3) {
      model->notes.push_back(StrCat("has no opset_import: taken for opset ", model->opsets[""].newest,
                                    ", the newest of IR version ", model->ir_version));
    }
  }
  model->producer = proto.producer_name();
  if (!proto.producer_version().empty()) StrAppend(&model->producer, " ", proto.producer_version());
  model->producer = Printable(model->producer);
  return absl::OkStatus();
}

absl::Status ReadFunction(const onnx::FunctionProto& proto, GraphReader* reader, OnnxModel::Parsed* model) {
  const std::string tag = StrCat("function '", Printable(proto.name()), "': ");
  ParsedFunction function;
  for (const std::string& name : proto.input()) function.graph.inputs.push_back({.name = name});
  for (const std::string& name : proto.output()) function.graph.outputs.push_back({.name = name});
  function.graph.nodes.resize(proto.node_size());
  for (int i = 0; i < proto.node_size(); ++i) {
    RETURN_IF_ERROR(Annotate(reader->ReadNode(proto.node(i), i, &function.graph.nodes[i]), tag));
  }
  RETURN_IF_ERROR(Annotate(ReadOpsets(proto.opset_import(), &function.opsets), tag));
  NoteSeveralVersions(tag, function.opsets, &model->notes);
  RETURN_IF_ERROR(Annotate(CheckAndSort(&function.graph), tag));
  const bool added =
      model->functions.emplace(std::pair(NormalizeDomain(proto.domain()), proto.name()), std::move(function)).second;
  return added ? absl::OkStatus() : Invalid(tag, "is defined twice");
}

// Fills in the inputs, outputs and output forms of the model.
void Summarize(OnnxModel::Parsed* model) {
  const ParsedGraph& graph = model->graph;
  const std::set<std::string> filled = FindFilledInputs(graph);
  for (const ParsedValue& v : graph.inputs) {
    if (graph.initializers.count(v.name) > 0 || graph.opaque.count(v.name) > 0) continue;
    model->inputs.push_back({.name = v.name,
                             .dtype = v.dtype.value_or(DType::kFloat32),
                             .dims = v.dims,
                             .dim_names = v.dim_names,
                             .has_shape = v.has_shape,
                             .form = v.form,
                             .texts = v.kind == kTextKind && v.dtype ? model->texts : nullptr,
                             .takes_missing = filled.contains(v.name)});
  }
  for (const ParsedValue& v : graph.outputs) {
    model->outputs.push_back(v.name);
    model->output_forms.push_back(v.form);
  }
}

absl::Status ReadContent(const onnx::ModelProto& proto, GraphReader* reader, OnnxModel::Parsed* model) {
  RETURN_IF_ERROR(ReadVersions(proto, model));
  if (!proto.has_graph()) return Invalid("holds no graph: it is not an ONNX model");
  if (proto.graph().output_size() == 0) return Invalid("its graph has no outputs");
  RETURN_IF_ERROR(reader->ReadGraph(proto.graph(), &model->graph));
  RETURN_IF_ERROR(CheckAndSort(&model->graph));
  JoinLastSelections(&model->graph);
  NumberInputTexts(model);
  model->metadata = ReadMetadata(proto);
  RETURN_IF_ERROR(RecoverWeights(ReadTorchMetadata(proto), model));
  for (const auto& function : proto.functions()) RETURN_IF_ERROR(ReadFunction(function, reader, model));
  RETURN_IF_ERROR(CheckFunctionCalls(*model));
  Summarize(model);
  return absl::OkStatus();
}

ExtractedData IndexByName(const onnx::GraphProto& graph, const std::vector<ByteRange>& raw_data) {
  ExtractedData extracted;
  for (int i = 0; i < graph.initializer_size(); ++i) {
    if (raw_data[i].size > 0) extracted[graph.initializer(i).name()] = raw_data[i];
  }
  return extracted;
}

// Parses bytes that have passed GuardModelBytes.
absl::StatusOr<std::shared_ptr<onnx::ModelProto>> ParseGuarded(std::span<const std::byte> bytes) {
  auto proto = std::make_shared<onnx::ModelProto>();
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  stream.SetTotalBytesLimit(std::numeric_limits<int>::max() - 1);
  stream.SetRecursionLimit(kMaxMessages + 10);
  if (!proto->ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage()) {
    return Invalid("is not an ONNX model: not a protobuf of that kind");
  }
  return proto;
}

}  // namespace

absl::StatusOr<std::shared_ptr<onnx::ModelProto>> ParseModelProto(std::span<const std::byte> bytes) {
  RETURN_IF_ERROR(GuardModelBytes(bytes));
  return ParseGuarded(bytes);
}

absl::StatusOr<PartialModel> ParsePartialModel(std::span<const std::byte> bytes) {
  RETURN_IF_ERROR(GuardModelBytes(bytes));
  const ExtractedModel extracted = ExtractInitializers(bytes, kMinMappedBytes);
  PartialModel model;
  ASSIGN_OR_RETURN(model.proto, ParseGuarded(std::as_bytes(std::span(extracted.rest))));
  model.extracted = IndexByName(model.proto->graph(), extracted.raw_data);
  return model;
}

absl::Status ReadModel(const std::shared_ptr<const MappedFile>& file, OnnxModel::Parsed* model) {
  ASSIGN_OR_RETURN(PartialModel partial, ParsePartialModel(file->bytes()));
  auto& [proto, extracted] = partial;
  if (proto->has_graph()) MoveBodyWeights(proto->mutable_graph());
  RETURN_IF_ERROR(ApplyEdits(model->edits, proto.get()));
  for (const auto& [name, value] : model->edits.tensors) extracted.erase(name);
  const bool shares_file = !extracted.empty();
  GraphReader reader(proto, model->memory == nullptr ? model->path : "", std::move(extracted), file);
  RETURN_IF_ERROR(ReadContent(*proto, &reader, model));
  model->mapped = reader.mapped();
  if (shares_file) model->mapped.push_back(file);
  return absl::OkStatus();
}

}  // namespace onnxtrain
