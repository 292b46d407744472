#include "optim/plan/language_model.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "frontend/base/status.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/bind/input_names.h"
#include "frontend/ops/row.h"
#include "optim/plan/value_checks.h"

namespace onnxtrain {
namespace {

bool NamesLabels(const std::string& name) {
  static const std::set<std::string> kNames = {"labels", "label", "targets", "target", "target_ids", "lm_labels"};
  return kNames.contains(absl::AsciiStrToLower(name));
}

// Is it [batch, length, tokens], as the loss wants logits?
bool IsTokenLogits(const ImportedModel& model, const std::string& name, int64_t length) {
  if (name.starts_with("present")) return false;
  const Type& type = model.graph.type(model.graph.FindOutput(name)->value);
  return IsFloat(type.dtype) && type.rank() == 3 && type.shape[0] == kTrialBatch && type.shape[1] == length;
}

// Is it [batch, classes], so that the model may classify texts?
bool ScoresSamples(const ImportedModel& model, const std::string& name) {
  const Type& type = model.graph.type(model.graph.FindOutput(name)->value);
  return IsFloat(type.dtype) && type.rank() == 2 && type.shape[0] == kTrialBatch;
}

bool IsScalarLoss(const ImportedModel& model, const std::string& name) {
  const Type& type = model.graph.type(model.graph.FindOutput(name)->value);
  return IsFloat(type.dtype) && type.elements() == 1;
}

// Does the model cut its labels, to compare each position with the label behind it?
bool CutsInput(const Graph& graph, const std::string& input) {
  std::vector<bool> moved(graph.values().size(), false);
  if (const GraphInput* found = graph.FindInput(input)) moved[found->value] = true;
  for (const Node& node : graph.nodes()) {
    const bool reads = !node.inputs.empty() && node.inputs[0] != kNoValue && moved[node.inputs[0]];
    const OpRow& row = *FindOp(node.op);
    if (!reads || !(row.moves_data || row.copies)) continue;
    const auto elements = [&](ValueId v) { return graph.type(v).elements(); };
    if (row.moves_data && elements(node.outputs[0]) < elements(node.inputs[0])) return true;
    moved[node.outputs[0]] = true;
  }
  return false;
}

std::optional<ValueRange> FindRange(const ImportedModel& model, const std::string& input) {
  std::vector<FeedSpec> feeds = {{.feed = input}};
  AddValueChecks(model, &feeds);
  return feeds[0].range;
}

int64_t CountRows(const ImportedModel& model, const std::string& input) {
  const auto range = FindRange(model, input);
  return range.has_value() ? static_cast<int64_t>(range->max) + 1 : 0;
}

// Sorts the inputs of tokens by what they are. False where several could be the ids.
bool SortInputs(const OnnxModel& model, LanguageModel* found) {
  for (const ModelInput& input : model.inputs()) {
    const bool positions = IsTokenInput(input) && FindTokenRole(input.name) == TokenRole::kPositions;
    if (positions) found->positions = input.name;
    if (IsPairMask(input)) found->pair_mask = input.name;
    if (!IsTokenInput(input) || FindTokenRole(input.name).has_value()) continue;
    std::string& place = NamesLabels(input.name) ? found->label_input : found->ids;
    if (!place.empty()) return false;
    place = input.name;
  }
  return !found->ids.empty();
}

LengthLimit FindLimit(const OnnxModel& model, const ImportedModel& imported) {
  int64_t rows = FindPositionRows(imported.graph, kTrialLength);
  for (const ModelInput& input : model.inputs()) {
    const bool positions = IsTokenInput(input) && FindTokenRole(input.name) == TokenRole::kPositions;
    const int64_t own = positions ? CountRows(imported, input.name) : 0;
    if (own > 0 && (rows == 0 || own < rows)) rows = own;
  }
  return {rows};
}

}  // namespace

absl::StatusOr<std::optional<LanguageModel>> FindLanguageModel(const TrainConfig& config, const OnnxModel& model,
                                                               const LossSpec& loss) {
  LanguageModel found;
  if (!SortInputs(model, &found)) return std::nullopt;
  const auto imported = ImportAtTrialLength(config, model);
  if (!imported.ok()) return std::nullopt;  // the error comes with the length of the data
  ASSIGN_OR_RETURN(found.limit, FindDeclaredLength(config, model));
  const int64_t length = found.limit.length > 0 ? found.limit.length : kTrialLength;
  const auto is_trained = [&](const std::string& name) { return loss.logits.empty() || name == loss.logits; };
  const auto has_logits = [&](const std::string& name) {
    return is_trained(name) && IsTokenLogits(*imported, name, length);
  };
  const auto is_loss = [&](const std::string& name) { return is_trained(name) && IsScalarLoss(*imported, name); };
  const auto classifies = [&](const std::string& name) { return is_trained(name) && ScoresSamples(*imported, name); };
  if (std::ranges::any_of(imported->outputs, classifies)) return std::nullopt;
  if (std::ranges::none_of(imported->outputs, has_logits)) {
    const auto own = std::ranges::find_if(imported->outputs, is_loss);
    if (found.label_input.empty() || own == imported->outputs.end()) return std::nullopt;
    found.own_loss = *own;
  }
  if (!found.limit.exact) found.limit = FindLimit(model, *imported);
  found.rows = CountRows(*imported, found.ids);
  found.shifts_labels = CutsInput(imported->graph, found.label_input);
  return found;
}

}  // namespace onnxtrain
