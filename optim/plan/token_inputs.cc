#include "optim/plan/token_inputs.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "frontend/base/status.h"
#include "optim/plan/model_setup.h"
#include "optim/step/loss.h"

namespace onnxtrain {
namespace {

// The shape of an input for a trial: the length for token inputs, and for both sides of masks of pairs.
Shape TrialShape(const ModelInput& input) {
  Shape shape = input.dims;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool is_length = i + 2 >= shape.size() && i > 0;
    if (shape[i] < 0) shape[i] = is_length ? kTrialLength : 1;
  }
  shape[0] = kTrialBatch;
  return shape;
}

}  // namespace

bool IsTokenInput(const ModelInput& input) {
  return input.has_shape && input.dims.size() == 2 && IsInteger(input.dtype) && input.form.is_tensor();
}

bool IsPairMask(const ModelInput& input) {
  const bool pairs = input.has_shape && (input.dims.size() == 3 || input.dims.size() == 4) && input.form.is_tensor();
  return pairs && absl::AsciiStrToLower(input.name).find("mask") != std::string::npos;
}

absl::StatusOr<ImportedModel> ImportAtTrialLength(const TrainConfig& config, const OnnxModel& model) {
  ASSIGN_OR_RETURN(ImportOptions import, MakeImportOptions(config, model));
  for (const ModelInput& input : model.inputs()) {
    if (IsTokenInput(input) || IsPairMask(input)) import.input_shapes[input.name] = TrialShape(input);
  }
  import.batch = kTrialBatch;
  ASSIGN_OR_RETURN(import.outputs, LossOutputs(model, MakeOutputSpec(config, model)));
  return Import(model, import);
}

int64_t FindPositionRows(const Graph& graph, int64_t length) {
  int64_t limit = 0;
  for (const Node& node : graph.nodes()) {
    const HostTensor* indices = node.op == "Gather" ? graph.FindConstant(node.inputs[1]) : nullptr;
    if (indices == nullptr || indices->size() == 0) continue;
    std::set<int64_t> values;
    for (int64_t i = 0; i < indices->size(); ++i) values.insert(indices->IntAt(i));
    const bool positions =
        *values.begin() >= 0 && std::ssize(values) == length && *values.rbegin() - *values.begin() == length - 1;
    const int64_t rows = graph.type(node.inputs[0]).shape[node.attrs.Int("axis")] - *values.begin();
    if (positions && (limit == 0 || rows < limit)) limit = rows;
  }
  return limit;
}

absl::StatusOr<LengthLimit> FindDeclaredLength(const TrainConfig& config, const OnnxModel& model) {
  ASSIGN_OR_RETURN(const auto dims, ParseDims(config, model));
  for (const ModelInput& input : model.inputs()) {
    if (!IsTokenInput(input)) continue;
    const auto given = input.dim_names.size() == 2 ? dims.find(input.dim_names[1]) : dims.end();
    if (input.dims[1] >= 0) return LengthLimit{input.dims[1], true};
    if (given != dims.end()) return LengthLimit{given->second, true};
  }
  return LengthLimit();
}

absl::StatusOr<LengthLimit> FindLengthLimit(const TrainConfig& config, const OnnxModel& model) {
  ASSIGN_OR_RETURN(const LengthLimit declared, FindDeclaredLength(config, model));
  if (declared.exact) return declared;
  const auto imported = ImportAtTrialLength(config, model);
  if (!imported.ok()) return LengthLimit();  // the error comes with the length of the data
  return LengthLimit{FindPositionRows(imported->graph, kTrialLength)};
}

}  // namespace onnxtrain
