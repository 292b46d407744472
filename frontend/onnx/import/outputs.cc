#include "frontend/onnx/import/outputs.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

absl::Status AddOutput(Graph* graph, const std::string& name, Val v, std::vector<std::string>* names) {
  if (graph->FindOutput(name) != nullptr) return Invalid("two outputs are named '", Printable(name), "'");
  graph->AddOutput(name, v.id());
  names->push_back(name);
  return absl::OkStatus();
}

// Moves the batch axis of an output to the front.
Val MoveBatchFirst(Val output, int axis) {
  if (axis == kAddedBatchAxis) {
    Shape shape = output.shape();
    shape.insert(shape.begin(), 1);
    return Reshape(output, std::move(shape));
  }
  if (axis <= 0 || axis >= output.rank()) return output;
  std::vector<int64_t> perm(output.rank());
  std::iota(perm.begin(), perm.end(), 0);
  std::rotate(perm.begin(), perm.begin() + axis, perm.begin() + axis + 1);
  return Transpose(output, std::move(perm));
}

absl::Status AddOutputs(Graph* graph, const std::string& name, const ImportValue& value,
                        std::vector<std::string>* names) {
  if (value.list == nullptr) return AddOutput(graph, name, value.tensor, names);
  for (size_t i = 0; i < value.list->elements.size(); ++i) {
    RETURN_IF_ERROR(AddOutput(graph, ElementName(name, i), value.list->elements[i], names));
  }
  return absl::OkStatus();
}

// A Softmax whose output is moved stays known as one.
void ExposeMovedLogits(ImportState& state, Val output, Val moved, int axis) {
  const Node* node = state.graph.producer(output.id());
  if (node == nullptr || node->op != "Softmax") return;
  state.effects.logits[moved.id()] = MoveBatchFirst(state.builder.Wrap(node->inputs[0]), axis).id();
}

std::string UnusedOutputName(const Graph& graph, std::string name) {
  while (graph.FindOutput(name) != nullptr) name += "_";
  return name;
}

}  // namespace

std::vector<std::string> ChooseOutputs(const OnnxModel::Parsed& model, const ImportOptions& options,
                                       std::vector<std::string>* notes) {
  if (!options.outputs.empty()) return options.outputs;
  std::vector<std::string> outputs = model.outputs;
  for (const ParsedValue& output : model.graph.outputs) {
    if (outputs.size() < 2 || output.kind != "tensor of string") continue;
    outputs.erase(std::ranges::find(outputs, output.name));
    notes->push_back(StrCat("output '", Printable(output.name), "' holds strings and is left out"));
  }
  return outputs;
}

absl::StatusOr<std::vector<std::string>> BindOutputs(ImportState& state, const std::vector<std::string>& outputs,
                                                     int64_t batch) {
  static const ParsedNode kReader{.op_type = "the model", .source = "outputs"};
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const std::string& name : outputs) {
    if (!seen.insert(name).second) return Invalid("output '", Printable(name), "' is asked for twice");
    const std::optional<ImportValue> v = state.symbols.Find(state.top, name, kReader);
    RETURN_IF_ERROR(state.errors.Summary());
    if (!v || !v->valid()) return Invalid("there is no value '", Printable(name), "' to make an output of");
    const auto axis = state.options.batch_axes.find(name);
    const bool moved = v->list == nullptr && axis != state.options.batch_axes.end();
    if (moved && axis->second == kAddedBatchAxis && batch != 1)
      return Invalid("output '", Printable(name), "' has no batch axis: the model takes one sample at a time");
    ImportValue batch_first = moved ? ImportValue(MoveBatchFirst(v->tensor, axis->second)) : *v;
    if (name == state.options.negated && v->list == nullptr) batch_first = ImportValue(-batch_first.tensor);
    if (moved && axis->second > 0) ExposeMovedLogits(state, v->tensor, batch_first.tensor, axis->second);
    RETURN_IF_ERROR(AddOutputs(&state.graph, name, batch_first, &names));
  }
  return names;
}

std::map<std::string, Logits> ExposeLogits(ImportState& state, const std::vector<std::string>& outputs,
                                           std::vector<std::string>* notes) {
  std::map<std::string, Logits> exposed;
  for (const std::string& name : outputs) {
    const GraphOutput* scores = state.graph.FindOutput(name);
    if (scores == nullptr) continue;  // a list
    const auto it = state.effects.logits.find(scores->value);
    if (it == state.effects.logits.end() || it->second == it->first) continue;
    exposed[name] = {.output = UnusedOutputName(state.graph, StrCat(name, ".logits"))};
    state.graph.AddOutput(exposed[name].output, it->second);
    notes->push_back(StrCat("output '", Printable(name),
                            "' is a classifier's: trained on its scores before they become probabilities"));
  }
  return exposed;
}

std::vector<StateUpdate> BindStateUpdates(ImportState& state) {
  std::vector<StateUpdate> updates;
  for (const UpdatedState& update : state.effects.updates) {
    const std::string& name = state.weights.Find(update.state)->name;
    const std::string output = UnusedOutputName(state.graph, StrCat(name, ".next"));
    state.graph.AddOutput(output, update.next, update.state);
    updates.push_back({.state = name, .output = output, .momentum = update.momentum});
  }
  return updates;
}

}  // namespace onnxtrain
