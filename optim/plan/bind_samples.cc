// Chooses the columns of a model's inputs and labels, and binds them (open_stages.h).
#include <algorithm>

#include "frontend/base/status.h"
#include "optim/plan/constant_inputs.h"
#include "optim/plan/input_plan.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/open_stages.h"

namespace onnxtrain {
namespace {

std::vector<std::string> ResolveAll(const OpenedSamples& samples, const std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const std::string& name : names) {
    for (std::string& resolved : samples.Resolve(name)) all.push_back(std::move(resolved));
  }
  return all;
}

// Chooses the columns of inputs and labels, and the pixels of pictures.
absl::Status CompleteSpec(const ReadingPlan& plan, const OpenedSamples& samples, BindSpec* spec) {
  const TrainConfig& config = plan.config;
  const std::optional<Preprocess>& before = plan.before;
  const bool want_label = plan.request.want_label;
  const std::vector<Column>& columns = samples.dataset->columns();
  spec->class_labels = plan.class_labels;
  const bool same_label = config.label.empty() || config.label == spec->label;
  if (before.has_value() && !plan.request.fit && same_label) spec->mask_encodings = before->mask_encodings;
  if (!config.label.empty() || !want_label) spec->label.clear();
  std::map<std::string, std::vector<std::string>> explicit_inputs;
  ASSIGN_OR_RETURN(explicit_inputs, ParseInputs(config.input, plan.constants));
  for (auto& [input, names] : explicit_inputs) {
    spec->inputs.erase(input);
    names = ResolveAll(samples, names);
  }
  RETURN_IF_ERROR(Annotate(MatchColumns(columns, plan.request.same_columns, spec), StrCat(plan.request.path, ": ")));
  spec->inputs.merge(explicit_inputs);
  if (!config.label.empty()) spec->label = ResolveAll(samples, config.label);
  if (!want_label && before.has_value()) {
    for (const std::string& label : before->label) {
      if (config.label.empty() && HasColumn(columns, label)) spec->label.push_back(label);
    }
  }
  auto pixels = ParseNormalize(plan.normalize);
  if (!pixels.ok()) return Annotate(pixels.status(), "`normalize`: ");
  spec->pixels = *pixels;
  spec->pixels_requested = IsSpecified(config, "normalize");
  // Files of earlier versions do not list the inputs.
  if (before.has_value() && (before->normalize.empty() || !before->pixels.empty())) spec->pixel_inputs = before->pixels;
  return absl::OkStatus();
}

// Fails if samples would feed an input without a batch axis.
absl::Status CheckBatchedInputs(const std::vector<OnnxModel::Input>& inputs, const BatchAxes& axes) {
  for (const OnnxModel::Input& input : inputs) {
    const auto axis = axes.find(input.name);
    const bool batchless = input.dims.empty() || (axis != axes.end() && axis->second == kNoBatchAxis);
    if (input.has_shape && batchless)
      return Invalid("input '", input.name, "' ", TypeText(input),
                     " has no batch axis: it cannot be fed with samples; give it a constant (`input` ", input.name,
                     "=N or ", input.name, "=@FILE.npy)");
  }
  return absl::OkStatus();
}

// Binds the data with the model's batch axes. If it does not fit them, tries whole inputs as samples.
absl::StatusOr<BoundData> BindWithAxes(const ReadingPlan& plan, const ModelSamples& read,
                                       const std::vector<OnnxModel::Input>& inputs) {
  const auto bind = [&](const BatchAxes& axes) -> absl::StatusOr<BoundData> {
    const std::vector<OnnxModel::Input> fed = MoveBatchFirst(inputs, axes);
    RETURN_IF_ERROR(CheckBatchedInputs(fed, axes));
    ASSIGN_OR_RETURN(BoundData bound, BindData(fed, read.samples.dataset, read.spec));
    bound.batch_axes = axes;
    return bound;
  };
  const auto of_tensors = [](const FeedSpec& feed) { return feed.columns.size() == 1; };
  auto bound = bind(plan.import.batch_axes);
  if (bound.ok() || plan.config.batch_axis == "none") return bound;
  for (const BatchAxes& axes : GuessWholeSamples(plan.model, inputs)) {
    auto whole = bind(axes);
    if (whole.ok() && std::ranges::all_of(whole->feeds, of_tensors)) return whole;
  }
  return bound;
}

// Fails if an input of strings is fed with columns that were not read as strings.
absl::Status CheckTextInputs(const std::vector<RawInput>& inputs, const std::set<std::string>& text_columns,
                             const BoundData& bound) {
  for (const RawInput& input : inputs) {
    const auto feed = std::ranges::find(bound.feeds, input.name, &FeedSpec::feed);
    if (input.texts == nullptr || feed == bound.feeds.end()) continue;
    for (const int c : feed->columns) {
      const std::string& column = bound.dataset->columns()[c].name;
      if (!text_columns.contains(column))
        return Invalid("input '", input.name, "' takes strings: `input` ", input.name,
                       "=COLUMN says where they are, if not in '", column, "'");
    }
  }
  return absl::OkStatus();
}

// Makes all samples one batch, in order, if a constant refers to them by position.
absl::Status KeepPlaces(const ReadingPlan& plan, const std::vector<std::string>& outputs, bool held_out,
                        BoundData* bound) {
  std::vector<std::string> arrays;
  for (const auto& [name, text] : plan.constants) {
    if (text.starts_with("@") && bound->fixed_inputs.contains(name)) arrays.push_back(name);
  }
  if (arrays.empty() || bound->dataset->streams()) return absl::OkStatus();
  ImportOptions import = ImportWithData(plan.import, *bound);
  import.outputs = outputs;
  const int64_t samples = bound->dataset->size();
  bound->sample_index_input = FindInputOfPlaces(plan.model, import, arrays, samples);
  if (bound->sample_index_input.empty()) return absl::OkStatus();
  const std::string why = DescribePlaces(bound->sample_index_input, samples);
  if (held_out) return Invalid("`eval_split`: ", why, ": none can be held out");
  const int64_t batch = plan.config.batch_size;
  if (batch > 0 && batch != samples) return Invalid("`batch_size` ", batch, ": ", why);
  bound->notes.push_back(why);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OpenedData> BindSamples(const ReadingPlan& plan, ModelSamples read) {
  const OpenedSamples& samples = read.samples;
  RETURN_IF_ERROR(CompleteSpec(plan, samples, &read.spec));
  ASSIGN_OR_RETURN(const std::vector<std::string> outputs, LossOutputs(plan.model, plan.loss));
  const std::vector<OnnxModel::Input> needed = NeededInputs(plan.model, outputs);
  DefaultInputs natural = FindDefaultInputs(needed, [&](const std::string& name) {
    return read.spec.inputs.contains(name) || HasColumn(samples.dataset->columns(), name);
  });
  for (const auto& [name, text] : plan.constants) {
    const auto fixed = plan.import.fixed_inputs.find(name);
    if (fixed == plan.import.fixed_inputs.end()) continue;  // the outputs do not depend on it
    natural.fixed[name] = fixed->second;
    natural.notes.push_back(StrCat("input '", name, "' ← the constant ", text));
  }
  auto bound = BindWithAxes(plan, read, WithoutFixed(needed, natural));
  if (!bound.ok()) return ExplainBadSample(plan, WithPath(bound.status(), plan.request.path));
  RETURN_IF_ERROR(WithPath(CheckTextInputs(plan.request.raw_inputs, samples.text_columns, *bound), plan.request.path));
  OpenedData data = std::move(read.data);
  bound->text_unit = data.bound.text_unit;
  bound->packed = std::move(data.bound.packed);
  data.bound = *std::move(bound);
  data.bound.fixed_inputs = natural.fixed;
  std::vector<std::string>& notes = data.bound.notes;
  notes.insert(notes.begin(), samples.notes.begin(), samples.notes.end());
  notes.insert(notes.end(), natural.notes.begin(), natural.notes.end());
  RETURN_IF_ERROR(KeepPlaces(plan, outputs, data.held_out.has_value(), &data.bound));
  RETURN_IF_ERROR(SetStandardization(plan.config, plan.before, plan.request, &data));
  return data;
}

}  // namespace onnxtrain
