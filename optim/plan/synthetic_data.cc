#include "optim/plan/synthetic_data.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/onnx/interop/training_info.h"
#include "frontend/ops/cost.h"
#include "frontend/ops/row.h"
#include "optim/config/training_settings.h"
#include "optim/plan/default_inputs.h"
#include "optim/plan/free_dims.h"
#include "optim/plan/micro_batch.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/session_setup.h"
#include "optim/plan/surgery.h"
#include "optim/plan/threads.h"
#include "optim/step/prepared_models.h"
#include "optim/step/training_state.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMinBatch = 2;
constexpr double kStepFlops = 2e11;      // one or two seconds on two CPUs
constexpr double kBackwardFactor = 3.0;  // operations of forward and backward pass relative to the forward pass

bool ChoosesBatch(const TrainConfig& config) {
  const char* const fields[] = {"batch_size", "micro_batch_size", "gradient_accumulation_steps"};
  return std::ranges::any_of(fields, [&](const char* field) { return IsSpecified(config, field); });
}

// Returns the floating-point operations of a training step for one sample; 0 if the model cannot be imported, which
// later stages report.
double StepFlops(PreparedModels& models, const PrepareOptions& options, int64_t batch) {
  const auto imported = models.ImportForward(options, batch, true, true);
  if (!imported.ok() && batch > 1) return StepFlops(models, options, 1);  // the model may accept one sample only
  if (!imported.ok()) return 0;
  const Graph& graph = (*imported)->graph;
  double flops = 0;
  for (const Node& node : graph.nodes()) flops += NodeFlops(graph, node);
  return flops * kBackwardFactor / static_cast<double>(batch);
}

}  // namespace

int64_t SyntheticBatchSize(const TrainConfig& config, PreparedModels& models, const PrepareOptions& options) {
  const OnnxModel& model = *models.model();
  int64_t batch = GlobalBatchSize(config, model, options.import.batch_axes);
  if (ChoosesBatch(config) || ExportedBatch(model, options.import.batch_axes) > 1) return batch;
  const double flops = StepFlops(models, options, batch);
  while (batch > kMinBatch && static_cast<double>(batch) * flops > kStepFlops) batch /= 2;
  return batch;
}

namespace {

// Returns the extent of the table that a feed indexes, directly or through data movement; 2 if it indexes none.
int64_t IndexLimit(const Graph& graph, ValueId feed) {
  const auto readers = ComputeUsers(graph);
  std::vector<ValueId> open = {feed};
  int64_t limit = 0;
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    for (int32_t r : readers[v]) {
      const Node& node = graph.nodes()[r];
      if (node.op == "Gather" && node.inputs[1] == v) {
        const int64_t extent = graph.type(node.inputs[0]).shape[node.attrs.Int("axis")];
        limit = limit == 0 ? extent : std::min(limit, extent);
      } else if (FindOp(node.op)->moves_data) {
        open.insert(open.end(), node.outputs.begin(), node.outputs.end());
      }
    }
  }
  return limit == 0 ? 2 : limit;
}

bool IsMask(const std::string& name) { return name.find("mask") != std::string::npos; }

std::string DescribeColumn(const SyntheticColumn& c) {
  if (IsFloat(c.sample.dtype)) return "normal numbers";
  if (!IsInteger(c.sample.dtype)) return "coins";
  return c.low + 1 == c.high ? StrCat("all ", c.low) : StrCat("integers from ", c.low, " to ", c.high - 1);
}

SyntheticColumn InputColumn(const Graph& graph, const OnnxModel::Input& input, const Shape& sample) {
  SyntheticColumn column{.name = input.name, .sample = {input.dtype, sample}};
  const GraphInput* feed = graph.FindInput(input.name);
  if (IsInteger(input.dtype) && feed != nullptr) column.high = IndexLimit(graph, feed->value);
  if (IsInteger(input.dtype) && IsMask(input.name)) column.low = 1, column.high = 2;
  if (input.texts != nullptr) column.low = 0, column.high = std::max<int64_t>(1, std::ssize(*input.texts));
  return column;
}

// Fills labels with class indices for classes, 0 or 1 for probabilities, and normally distributed numbers otherwise.
SyntheticColumn LabelColumn(const LossChoice& loss, const LossFeed& feed) {
  const std::string name = feed.label.empty() ? "label" : feed.label;
  for (const LossTerm& term : loss.terms) {
    // Class 0 is usually the blank of CTC, which is no label.
    const int64_t first = term.feed == feed.name && term.form == LabelForm::kSequence && feed.num_classes > 1 ? 1 : 0;
    if (feed.num_classes > 0) return {name, {DType::kInt64, feed.sample.shape}, first, feed.num_classes};
    const bool binary_labels =
        term.feed == feed.name && term.form == LabelForm::kElements && !term.function->final_activations.empty();
    if (binary_labels) return {name, {DType::kInt64, feed.sample.shape}, 0, 2};
  }
  if (IsInteger(feed.sample.dtype)) return {name, {DType::kInt64, feed.sample.shape}, 0, 2};
  return {name, {DType::kFloat32, feed.sample.shape}};
}

}  // namespace

std::string DescribeFreeDims(const OnnxModel& model, const std::map<std::string, int64_t>& dims) {
  std::string free;
  for (const auto& input : model.inputs()) {
    for (size_t i = 1; i < input.dims.size(); ++i) {
      const std::string name = i < input.dim_names.size() ? input.dim_names[i] : "";
      if (input.dims[i] >= 0 || name.empty() || dims.contains(name) || free.find(" " + name + "=") != std::string::npos)
        continue;
      StrAppend(&free, " `dim` ", name, "=N");
    }
  }
  return free.empty() ? "" : StrCat(" (free dimensions were taken to be ", TrialSizes().front(), "; say", free, ")");
}

namespace {

// Formats "input 'sr' is a constant for all samples: i64 [] of 16000".
std::string DescribeConstant(const std::string& name, const HostTensor& value) {
  if (value.size() == 0) return StrCat("input '", name, "' is not in the data: empty ", ToString(value.type()));
  const std::string what = value.size() == 1 ? StrCat(value.At(0)) : StrCat("of ", value.size(), " values");
  return StrCat("input '", name, "' is a constant for all samples: ", ToString(value.type()), " ", what, " (`input` ",
                name, "=N or @FILE.npy)");
}

// Adds a column for each input that is no constant.
absl::Status AddInputColumns(const OnnxModel& model, const ImportOptions& import, const LossSpec& loss,
                             const Graph& graph, BoundData* data, std::vector<SyntheticColumn>* columns) {
  ASSIGN_OR_RETURN(const std::vector<std::string> outputs, LossOutputs(model, loss));
  for (const OnnxModel::Input& input : NeededInputs(model, outputs)) {
    if (const auto fixed = import.fixed_inputs.find(input.name); fixed != import.fixed_inputs.end()) {
      data->notes.push_back(DescribeConstant(input.name, fixed->second));
      continue;
    }
    const auto shape = import.input_shapes.find(input.name);
    if (shape == import.input_shapes.end())
      return Invalid("input '", input.name, "' has no shape: no sample can be made up for it");
    const SyntheticColumn& column =
        columns->emplace_back(InputColumn(graph, input, {shape->second.begin() + 1, shape->second.end()}));
    data->feeds.push_back(
        {.feed = column.name, .columns = {static_cast<int>(columns->size()) - 1}, .sample = column.sample});
    data->notes.push_back(StrCat("input '", column.name, "' ", ToString(column.sample), " ← ", DescribeColumn(column)));
  }
  return absl::OkStatus();
}

absl::Status AddLabelColumns(const LossSpec& loss, const LossChoice& choice, BoundData* data,
                             std::vector<SyntheticColumn>* columns) {
  for (const LossFeed& feed : choice.feeds) {
    const SyntheticColumn column = LabelColumn(choice, feed);
    BoundLabel& label = feed.label.empty() ? data->label : data->own_labels[feed.label];
    if (!label.columns.empty())
      return Invalid("`loss` ", loss.name,
                     ": synthetic labels fit one kind of loss: give each loss labels of its own (label=NAME)");
    label.columns = {static_cast<int>(columns->size())};
    label.info = {.present = true, .sample = column.sample, .min_value = column.low, .max_value = column.high - 1};
    columns->push_back(column);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BoundData> MakeSyntheticData(PreparedModels& models, const ImportOptions& import, const LossSpec& loss,
                                            int64_t size, int64_t micro_batch, uint64_t seed) {
  const OnnxModel& model = *models.model();
  BoundData data{
      .batch_axes = import.batch_axes, .input_shapes = import.input_shapes, .fixed_inputs = import.fixed_inputs};
  PrepareOptions prepare{.import = import, .loss = loss};
  int64_t fixed_batch = 0;
  const auto prepared = PrepareAtAnyBatch(models, micro_batch, true, &prepare, &fixed_batch);
  if (!prepared.ok()) {
    const absl::Status& status = prepared.status();
    const bool of_sizes = !models.ImportForward(prepare, micro_batch, true, false).ok();
    return absl::Status(status.code(),
                        StrCat(status.message(), of_sizes ? DescribeFreeDims(model, import.dim_values) : ""));
  }
  std::vector<SyntheticColumn> columns;
  RETURN_IF_ERROR(AddInputColumns(model, import, loss, prepared->model.graph, &data, &columns));
  RETURN_IF_ERROR(AddLabelColumns(loss, prepared->loss, &data, &columns));
  data.dataset = SyntheticDataset(std::move(columns), size, seed);
  return data;
}

}  // namespace onnxtrain
