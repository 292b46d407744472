#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/onnx/importer.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

// Keeps what the outputs depend on. Feeds stay in any case: they are the model's interface.
class Sweeper {
 public:
  explicit Sweeper(const Graph& from) : from_(from), live_(from.values().size(), false), map_(from.values().size(), kNoValue) {}

  void Keep(ValueId value) { live_[value] = true; }

  Graph Sweep() {
    MarkLive();
    Graph to;
    for (const GraphInput* input : OrderedInputs()) {
      if (live_[input->value] || input->kind == InputKind::kFeed) map_[input->value] = to.AddInput(input->kind, input->name, from_.type(input->value));
    }
    for (const Node& node : from_.nodes()) {
      if (IsLive(node)) Copy(node, &to);
    }
    for (const GraphOutput& output : from_.outputs()) {
      to.AddOutput(output.name, map_[output.value], output.into == kNoValue ? kNoValue : map_[output.into]);
    }
    return to;
  }

  ValueId Map(ValueId value) const { return map_[value]; }

 private:
  bool IsLive(const Node& node) const {
    return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return live_[v]; });
  }

  // Feeds in the model's order, then weights in the order in which the graph reads them: by layers.
  std::vector<const GraphInput*> OrderedInputs() const {
    std::vector<const GraphInput*> inputs;
    for (const GraphInput& input : from_.inputs()) inputs.push_back(&input);
    const auto readers = Readers(from_);
    auto key = [&](const GraphInput* input) {
      if (input->kind == InputKind::kFeed) return -1;
      const auto& nodes = readers[input->value];
      return nodes.empty() ? static_cast<int32_t>(from_.nodes().size()) : nodes.front();
    };
    std::stable_sort(inputs.begin(), inputs.end(), [&](auto* a, auto* b) { return key(a) < key(b); });
    return inputs;
  }

  void MarkLive() {
    for (const GraphOutput& output : from_.outputs()) {
      live_[output.value] = true;
      if (output.into != kNoValue) live_[output.into] = true;
    }
    for (auto node = from_.nodes().rbegin(); node != from_.nodes().rend(); ++node) {
      if (!IsLive(*node)) continue;
      for (ValueId v : node->inputs) {
        if (v != kNoValue) live_[v] = true;
      }
    }
  }

  void Copy(const Node& node, Graph* to) {
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs) inputs.push_back(v == kNoValue ? kNoValue : map_[v]);
    std::vector<Type> types;
    for (ValueId v : node.outputs) types.push_back(from_.type(v));
    const std::vector<ValueId> outputs = to->AddNode(node.op, std::move(inputs), node.attrs, std::move(types), node.source).outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      map_[node.outputs[i]] = outputs[i];
      to->SetValueName(outputs[i], from_.value(node.outputs[i]).name);
    }
  }

  const Graph& from_;
  std::vector<bool> live_;
  std::vector<ValueId> map_;
};

}  // namespace

// A model that was exported for a fixed batch promises it in its outputs as well.
absl::Status Importer::CheckThawedOutputs() const {
  if (frozen_batch_ == 0) return absl::OkStatus();
  for (const ParsedValue& output : model_.graph.outputs) {
    const GraphOutput* bound = graph_.FindOutput(output.name);
    if (bound == nullptr || output.dims.empty() || output.dims[0] != frozen_batch_) continue;
    const Type& type = graph_.type(bound->value);
    if (type.rank() > 0 && type.shape[0] == batch_) continue;
    const Node* node = graph_.producer(bound->value);
    return Invalid(node == nullptr ? "" : NodeTag(*node), "output '", Printable(output.name), "' is ", ToString(type),
                   ": the model was exported for a batch of ", frozen_batch_, " and does not follow a batch of ", batch_);
  }
  return absl::OkStatus();
}

// A weight may be trained if a chain of floats and of operators with a gradient leads from it to an output.
void Importer::DecideKinds() {
  std::vector<bool> reaches(graph_.values().size(), false);
  for (const GraphOutput& output : graph_.outputs()) reaches[output.value] = IsFloat(graph_.type(output.value).dtype);
  for (auto node = graph_.nodes().rbegin(); node != graph_.nodes().rend(); ++node) {
    const OpRow* row = FindOp(node->op);
    if (row == nullptr || row->grad_status == GradStatus::kZero) continue;
    if (std::none_of(node->outputs.begin(), node->outputs.end(), [&](ValueId v) { return reaches[v]; })) continue;
    for (size_t i = node->op == "StraightThrough" ? 1 : 0; i < node->inputs.size(); ++i) {  // its value has no gradient
      const ValueId v = node->inputs[i];
      if (v != kNoValue && IsFloat(graph_.type(v).dtype)) reaches[v] = true;
    }
  }
  for (const Weight& weight : weights_) {
    const InputKind kind = weight.state ? InputKind::kState : reaches[weight.value] ? InputKind::kParameter : InputKind::kFrozen;
    graph_.SetInputKind(graph_.value(weight.value).index, kind);
  }
}

bool Importer::NormIsFrozen(const ParsedNode& node) const {
  return node.op_type == "BatchNormalization" && node.inputs.size() > 1 && options_.frozen_scales.count(node.inputs[1]) > 0;
}

int Importer::CountFrozenNorms() const {
  return static_cast<int>(std::count_if(needed_nodes_.begin(), needed_nodes_.end(), [&](const ParsedNode* n) { return NormIsFrozen(*n); }));
}

void Importer::MakeNotes() {
  std::map<std::string, int> counts;
  std::unordered_map<std::string, const ParsedNode*> producer;
  for (const ParsedNode& node : model_.graph.nodes) {
    if (needed_nodes_.count(&node) == 0) continue;
    ++counts[node.op_type];
    for (const std::string& name : node.outputs) producer[name] = &node;
  }
  for (const std::string& name : outputs_) {
    auto it = producer.find(name);
    if (it == producer.end()) continue;
    const std::string& op = it->second->op_type;
    if (op == "Softmax" || op == "LogSoftmax" || op == "Sigmoid") notes_.push_back(StrCat("output '", Printable(name), "' ends in ", op));
  }
  NoteWeightForms();
  if (counts["ZipMap"] > 0) notes_.push_back(StrCat("ZipMap nodes: ", counts["ZipMap"], ", a column per class in place of dictionaries"));
  if (!options_.training) return;
  if (body_weights_ > 0) notes_.push_back(StrCat("float tensors that bodies of If, Loop or Scan hold themselves: ", body_weights_, ", not trained"));
  NoteTies();
  if (copies_ > 0) notes_.push_back(StrCat("initializers that the exporter had merged because their bytes were equal: ", copies_, ", trained apart"));
  if (counts["Dropout"] > 0 && options_.dropout < 0) {
    notes_.push_back(StrCat("Dropout nodes: ", counts["Dropout"], ", with the ratio and mode that the file gives them"));
  }
  if (counts["BatchNormalization"] > 0) {
    notes_.push_back(StrCat("BatchNormalization nodes: ", counts["BatchNormalization"],
                            options_.batch_norm_frozen ? ", statistics frozen" : ", statistics of the batch, running statistics updated"));
  }
  if (const int frozen = CountFrozenNorms(); frozen > 0 && !options_.batch_norm_frozen) {
    notes_.push_back(StrCat("BatchNormalization nodes whose scale is frozen: ", frozen, ", they stay in inference mode"));
  }
}

// The logits behind a classifier's outputs are further outputs of the graph.
std::map<std::string, std::string> Importer::ExposeLogits() {
  std::map<std::string, std::string> exposed;
  for (const std::string& name : outputs_) {
    const GraphOutput* scores = graph_.FindOutput(name);
    if (scores == nullptr) continue;  // a list: its elements are the outputs
    auto it = logits_.find(scores->value);
    if (it == logits_.end() || it->second == it->first) continue;
    std::string output = StrCat(name, ".logits");
    while (graph_.FindOutput(output) != nullptr) output += "_";
    graph_.AddOutput(output, it->second);
    exposed[name] = output;
    notes_.push_back(StrCat("output '", Printable(name), "' is a classifier's: trained on its scores before what turns them into probabilities"));
  }
  return exposed;
}

ImportedModel Importer::Finish() {
  std::map<std::string, std::string> logits = ExposeLogits();
  for (const auto& [state, value] : update_values_) {
    const std::string& name = weights_[weight_of_.at(state)].name;
    std::string output = StrCat(name, ".next");
    while (graph_.FindOutput(output) != nullptr) output += "_";
    graph_.AddOutput(output, value, state);
    state_updates_.push_back({.state = name, .output = output});
  }
  Sweeper sweeper(graph_);
  ImportedModel imported{.graph = sweeper.Sweep()};
  std::map<ValueId, Weight*> by_value;
  for (Weight& weight : weights_) by_value[sweeper.Map(weight.value)] = &weight;
  for (const GraphInput& input : imported.graph.inputs()) {
    if (input.kind == InputKind::kFeed) continue;
    Weight& weight = *by_value.at(input.value);
    imported.weights.push_back({.name = weight.name, .value = std::move(weight.tensor), .consumer = std::move(weight.consumer)});
  }
  imported.outputs = output_names_;
  for (const ParsedValue& output : model_.graph.outputs) {
    const GraphOutput* bound = imported.graph.FindOutput(output.name);
    const bool half = output.dtype == DType::kFloat16 || output.dtype == DType::kBFloat16;
    if (half && bound != nullptr && imported.graph.type(bound->value).dtype == DType::kFloat32) imported.halves.emplace(output.name, *output.dtype);
  }
  imported.frozen_batch = frozen_batch_;
  imported.logits = std::move(logits);
  imported.state_updates = std::move(state_updates_);
  for (std::string& note : notes_) note = PrintableLine(note);
  imported.notes = std::move(notes_);
  if (random_key_.valid()) imported.random_key = graph_.inputs()[graph_.value(random_key_.id()).index].name;
  return imported;
}

}  // namespace onnxtrain
