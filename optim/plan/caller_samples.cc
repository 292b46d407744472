#include "optim/plan/caller_samples.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/value_checks.h"

namespace onnxtrain {
namespace {

absl::Status SetShapes(const OnnxModel& model, const CallerSample& sample, BoundData* bound) {
  for (const auto& [name, type] : sample.inputs) {
    const auto input = std::ranges::find(model.inputs(), name, &ModelInput::name);
    if (input == model.inputs().end()) return Invalid("'", name, "' is no input of ", model.path());
    Shape shape = type.shape;
    shape.insert(shape.begin(), -1);
    const auto planned = bound->input_shapes.find(name);
    if (planned == bound->input_shapes.end())
      return Invalid("input '", name, "' has no batch axis: it is a constant (`input` ", name, "=N or @FILE.npy)");
    const bool fits = planned->second.size() == shape.size();
    if (!fits) return Invalid("input '", name, "': a sample of ", ToString(type), " has another rank than the model's");
    planned->second = std::move(shape);
  }
  return absl::OkStatus();
}

// Labels of unknown values: integers are classes.
LabelInfo DescribeLabel(const Type& type) {
  return {.present = true, .sample = type, .min_value = 0, .max_value = IsFloat(type.dtype) ? 0 : 2};
}

void SetLabels(const CallerSample& sample, BoundData* bound) {
  for (const auto& [name, type] : sample.labels)
    (name == kCallerLabel ? bound->label : bound->own_labels[name]).info = DescribeLabel(type);
}

}  // namespace

absl::StatusOr<BoundData> BindCallerSample(const TrainConfig& config, const OnnxModel& model,
                                           const CallerSample& sample) {
  ASSIGN_OR_RETURN(const ImportOptions import, MakeImportOptions(config, model));
  BoundData bound{
      .batch_axes = import.batch_axes, .input_shapes = import.input_shapes, .fixed_inputs = import.fixed_inputs};
  RETURN_IF_ERROR(SetShapes(model, sample, &bound));
  SetLabels(sample, &bound);
  return bound;
}

namespace {

absl::Status CheckLabelNames(const CallerSample& sample, const LossChoice& loss) {
  for (const auto& [name, type] : sample.labels) {
    const std::string key = name == kCallerLabel ? "" : name;
    if (std::ranges::find(loss.feeds, key, &LossFeed::label) == loss.feeds.end())
      return Invalid("'", name, "' is neither an input of the model nor a label of loss ", loss.name);
  }
  return absl::OkStatus();
}

std::vector<FeedSpec> ListInputs(const PreparedModel& prepared) {
  std::vector<FeedSpec> specs;
  for (const GraphInput& input : prepared.model.graph.inputs()) {
    if (input.kind != InputKind::kFeed || input.name == prepared.model.random_key) continue;
    Type sample = prepared.model.graph.type(input.value);
    if (!sample.shape.empty()) sample.shape.erase(sample.shape.begin());
    specs.push_back({.feed = input.name, .sample = std::move(sample)});
  }
  AddValueChecks(prepared.model, &specs);
  return specs;
}

// Has the extents of some axes differ between batches.
absl::Status SetVarying(const CallerSample& sample, SessionOptions* options, CallerBatches* batches) {
  Shape greatest;
  for (const auto& [name, axes] : sample.varying) {
    const bool is_input = sample.inputs.contains(name);
    const Shape& shape = (is_input ? sample.inputs : sample.labels).at(name).shape;
    if (axes.size() > 2 || axes.back() - axes.front() + 1 != axes.size())
      return Invalid("'", name, "': one extent may vary, or two one behind the other");
    const auto begin = shape.begin() + static_cast<int64_t>(axes.front());
    const Shape own(begin, begin + static_cast<int64_t>(axes.size()));
    if (!greatest.empty() && own != greatest)
      return Invalid("'", name, "' varies up to ", ToString(own), ", another tensor up to ", ToString(greatest));
    greatest = own;
    if (is_input) {
      options->variable_inputs.push_back({name, static_cast<int>(axes.front()) + 1});
    } else if (name == kCallerLabel) {
      options->variable_label_axis = static_cast<int>(axes.front());
    } else {
      return absl::UnimplementedError(StrCat("'", name, "': only inputs and '", kCallerLabel, "' may vary"));
    }
    batches->Vary(name, axes.front(), axes.size());
  }
  if (greatest.empty()) return absl::OkStatus();
  if (options->variable_inputs.empty()) return Invalid("labels vary only where an input does");
  options->variable_extents = greatest.size();
  options->step_form = StepForm::kMicroAndApply;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CallerBatches> MakeCallerBatches(const PreparedModel& prepared, const CallerSample& sample,
                                                int64_t ignore_index, SessionOptions* options) {
  RETURN_IF_ERROR(CheckLabelNames(sample, prepared.loss));
  CallerBatches batches(ListCallerTensors(ListInputs(prepared), prepared.loss, ignore_index));
  RETURN_IF_ERROR(SetVarying(sample, options, &batches));
  return batches;
}

}  // namespace onnxtrain
