// Runs the stages of an import in order.
#include <algorithm>
#include <map>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/import/stages.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

constexpr char kPayload[] = "onnxtrain/import_failures";

std::vector<int64_t> ParseExtents(const std::string& text) {
  std::vector<int64_t> extents;
  for (const std::string& extent : std::vector<std::string>(absl::StrSplit(text, ' ', absl::SkipEmpty())))
    extents.push_back(ParseInt(extent).value_or(0));
  return extents;
}

}  // namespace

// The payload has three lines for each failure: operator, extents, message.
absl::Status WithImportFailures(absl::Status status, const std::vector<NodeFailure>& failures) {
  std::vector<std::string> lines;
  for (const NodeFailure& failure : failures) {
    lines.push_back(failure.unsupported_op);
    lines.push_back(absl::StrJoin(failure.extents, " "));
    lines.push_back(PrintableLine(failure.message));
  }
  if (!lines.empty()) status.SetPayload(kPayload, absl::Cord(absl::StrJoin(lines, "\n")));
  return status;
}

std::vector<NodeFailure> GetImportFailures(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayload);
  if (!payload) return {};
  const std::vector<std::string> lines = absl::StrSplit(std::string(*payload), '\n');
  std::vector<NodeFailure> failures;
  for (size_t i = 0; i + 2 < lines.size(); i += 3)
    failures.push_back({.message = lines[i + 2], .unsupported_op = lines[i], .extents = ParseExtents(lines[i + 1])});
  return failures;
}

namespace {

// Returns, for each value, whether a path of float values and differentiable operators leads to an output.
std::vector<bool> ReachesOutput(const Graph& graph) {
  std::vector<bool> reaches(graph.values().size(), false);
  for (const GraphOutput& output : graph.outputs()) reaches[output.value] = IsFloat(graph.type(output.value).dtype);
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    const OpRow* row = FindOp(node->op);
    if (row == nullptr || row->grad_status == GradStatus::kZero) continue;
    if (std::ranges::none_of(node->outputs, [&](ValueId v) { return reaches[v]; })) continue;
    for (size_t i = node->op == "StraightThrough" ? 1 : 0; i < node->inputs.size(); ++i) {  // input 0 has no gradient
      const ValueId v = node->inputs[i];
      if (v != kNoValue && IsFloat(graph.type(v).dtype)) reaches[v] = true;
    }
  }
  return reaches;
}

// Makes weights parameters if they reach an output.
void SetWeightKinds(const WeightTable& table, Graph* graph) {
  const std::vector<bool> reaches = ReachesOutput(*graph);
  for (const ImportWeight& weight : table.weights()) {
    const bool trainable = reaches[weight.value] && !weight.stored;
    const InputKind kind = weight.state ? InputKind::kState : trainable ? InputKind::kParameter : InputKind::kFrozen;
    graph->SetInputKind(graph->value(weight.value).index, kind);
  }
}

// Moves the weights out of the table, in the order of the graph's inputs.
std::vector<ImportedWeight> TakeWeights(const SweptGraph& swept, WeightTable* table) {
  std::map<ValueId, ImportWeight*> by_value;
  for (ImportWeight& weight : table->weights()) by_value[swept.values[weight.value]] = &weight;
  std::vector<ImportedWeight> weights;
  for (const GraphInput& input : swept.graph.inputs()) {
    if (input.kind == InputKind::kFeed) continue;
    ImportWeight& weight = *by_value.at(input.value);
    weights.push_back({.name = weight.name,
                       .value = std::move(weight.tensor),
                       .consumer = std::move(weight.consumer),
                       .alias = std::move(weight.alias),
                       .fixed = weight.fixed});
  }
  return weights;
}

std::map<std::string, DType> FindLowPrecisionOutputs(const ParsedGraph& model, const Graph& graph) {
  std::map<std::string, DType> outputs;
  for (const ParsedValue& output : model.outputs) {
    const GraphOutput* bound = graph.FindOutput(output.name);
    const bool low = output.dtype == DType::kFloat16 || output.dtype == DType::kBFloat16;
    if (low && bound != nullptr && graph.type(bound->value).dtype == DType::kFloat32)
      outputs.emplace(output.name, *output.dtype);
  }
  return outputs;
}

std::set<std::string> FindMovedOutputs(const ImportOptions& options, const std::vector<std::string>& outputs) {
  std::set<std::string> moved;
  for (const std::string& name : outputs) {
    const auto axis = options.batch_axes.find(name);
    if (axis != options.batch_axes.end() && axis->second > 0) moved.insert(name);
  }
  return moved;
}

absl::StatusOr<ImportedModel> RunStages(const OnnxModel& file, const ImportOptions& options) {
  const OnnxModel::Parsed& model = file.parsed();
  std::vector<std::string> notes = model.notes;
  const std::vector<std::string> outputs = ChooseOutputs(model, options, &notes);
  const LiveGraph live(model.graph, outputs);
  RETURN_IF_ERROR(CheckOperators(model, live));
  const InputShapes shapes(model.graph, live, options);
  ImportState state(model, options, live, shapes, &notes);
  RETURN_IF_ERROR(CreateFeeds(options, live, shapes, state.types, &state.builder, &state.top, &notes));
  RETURN_IF_ERROR(GraphImporter(&state).ImportNodes(state.top));
  RETURN_IF_ERROR(state.errors.Summary());
  ImportedModel imported;
  ASSIGN_OR_RETURN(imported.outputs, BindOutputs(state, outputs, shapes.batch()));
  RETURN_IF_ERROR(state.batch_unfixer.CheckOutputs(model.graph, shapes));
  SetWeightKinds(state.weights, &state.graph);
  NoteModel(file, state, outputs, &notes);
  imported.logits = ExposeLogits(state, outputs, &notes);
  imported.state_updates = BindStateUpdates(state);
  SweptGraph swept = SweepGraph(state.graph);
  imported.weights = TakeWeights(swept, &state.weights);
  imported.low_precision_outputs = FindLowPrecisionOutputs(model.graph, swept.graph);
  imported.graph = std::move(swept.graph);
  imported.exported_batch = shapes.fixed_batch();
  imported.batch = shapes.batch();
  imported.mode_matters = state.effects.mode_matters;
  imported.moved_outputs = FindMovedOutputs(options, imported.outputs);
  std::ranges::transform(notes, std::back_inserter(imported.notes), PrintableLine);
  if (const Val key = state.effects.random_key; key.valid())
    imported.random_key = state.graph.inputs()[state.graph.value(key.id()).index].name;
  return imported;
}

}  // namespace

std::string ElementName(const std::string& name, size_t i) { return StrCat(name, ".", i); }

absl::Status CheckOperators(const OnnxModel& model, const std::vector<std::string>& outputs) {
  std::vector<std::string> notes;
  const LiveGraph live(model.parsed().graph, ChooseOutputs(model.parsed(), {.outputs = outputs}, &notes));
  const absl::Status status = CheckOperators(model.parsed(), live);
  return status.ok() ? status : OneLine(Annotate(status, StrCat(model.path(), ": ")));
}

absl::StatusOr<ImportedModel> Import(const OnnxModel& model, const ImportOptions& options) {
  RETURN_IF_ERROR(model.CheckUnchanged());
  auto imported = RunStages(model, options);
  if (imported.ok()) return imported;
  return WithImportFailures(OneLine(Annotate(imported.status(), StrCat(model.path(), ": "))),
                            GetImportFailures(imported.status()));
}

}  // namespace onnxtrain
