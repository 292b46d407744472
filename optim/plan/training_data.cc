#include "optim/plan/training_data.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/text/pair_rows.h"
#include "frontend/onnx/interop/training_info.h"
#include "frontend/ops/cost.h"
#include "frontend/ops/row.h"
#include "optim/config/loss_text.h"
#include "optim/config/training_settings.h"
#include "optim/plan/adapters.h"
#include "optim/plan/constant_inputs.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/folders.h"
#include "optim/plan/input_plan.h"
#include "optim/plan/micro_batch.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/reference_scores.h"
#include "optim/plan/session_setup.h"
#include "optim/plan/step_plan.h"
#include "optim/plan/surgery.h"
#include "optim/plan/threads.h"
#include "optim/record/checkpoint/resume.h"
#include "optim/step/prepared_models.h"
#include "optim/step/training_state.h"

namespace onnxtrain {
namespace {

constexpr int64_t kSyntheticSteps = 20;

// Returns an error that names, as an example, a weight whose shapes differ.
absl::Status NothingFits(const std::string& path, const std::map<std::string, HostTensor>& weights,
                         const OnnxModel& model) {
  for (const auto& [name, value] : weights) {
    const HostTensor* stored = model.Initializer(name);
    if (stored == nullptr) continue;
    return Invalid(path, ": no weight has the shape that it has in ", model.path(), ": '", name, "' is ",
                   ToString(value.shape()), " there and ", ToString(stored->shape()), " in the model");
  }
  return Invalid(path, ": holds no weight of ", model.path());
}

// Returns the model with its initializers replaced by the weights and running statistics of a checkpoint that have the
// same name and shape. `path` may also be a folder of checkpoints or of a run, for its newest checkpoint. Adds to
// *lines how many tensors were replaced and which were skipped. Fails if none fits.
absl::StatusOr<std::shared_ptr<const OnnxModel>> InitFromCheckpoint(const std::shared_ptr<const OnnxModel>& model,
                                                                    const std::string& path,
                                                                    std::vector<std::string>* lines) {
  if (path.ends_with(".onnx"))
    return Invalid("`init_from` ", path, ": is a model, no checkpoint (`model` starts from the weights of a model)");
  auto opened = OpenResumePoint(path);
  if (!opened.ok()) return Annotate(opened.status(), "`init_from`: ");
  const ResumePoint& point = *opened;
  RETURN_IF_ERROR(CheckUnit(point));
  ASSIGN_OR_RETURN(const auto weights, ReadWeights(point.checkpoint, KeepsAverage(point.state.config)));
  ModelEdits edits;
  std::vector<std::string> left_out;
  for (const auto& [name, value] : weights) {
    const HostTensor* stored = model->Initializer(name);
    if (stored != nullptr && stored->shape() == value.shape()) {
      edits.tensors[name] = value.CastTo(stored->dtype());
    } else {
      left_out.push_back(name);
    }
  }
  if (edits.tensors.empty()) return NothingFits(point.checkpoint.path, weights, *model);
  edits.lines.push_back(StrCat(edits.tensors.size(), " weights were those of a checkpoint before training"));
  lines->push_back(StrCat("initialized: ", edits.tensors.size(), " weights from ", point.checkpoint.path));
  if (!left_out.empty()) lines->push_back(StrCat("left out: ", absl::StrJoin(left_out, ", ")));
  return model->LoadEdited(std::move(edits));
}

absl::Status ApplySurgeryToData(const TrainConfig& config, const BoundData* bound, TrainingData* data) {
  if (!HasSurgery(config)) return absl::OkStatus();
  ASSIGN_OR_RETURN(Surgery surgery, ApplySurgery(config, data->model, bound, data->loss.logits));
  data->model = std::move(surgery.model);
  data->surgery.insert(data->surgery.end(), surgery.lines.begin(), surgery.lines.end());
  data->fresh = std::move(surgery.fresh);
  if (!surgery.logits.empty()) data->loss.logits = surgery.logits;
  return absl::OkStatus();
}

// Chooses a synthetic batch that does not take long, unless its size is specified.
int64_t ChooseSyntheticBatch(const TrainConfig& config, const SampleSource& source, const ImportOptions& import,
                             TrainingData* data) {
  if (source.batch.has_value()) return *source.batch;
  if (source.one_batch) return GlobalBatchSize(config, *data->model, import.batch_axes);
  return SyntheticBatchSize(config, *data->models, {.import = import, .loss = data->loss});
}

absl::Status MakeSyntheticDataset(const TrainConfig& config, const SampleSource& source, TrainingData* data) {
  data->synthetic = true;
  data->one_batch = source.one_batch;
  data->loss.sum_outputs = true;
  data->train_text = "synthetic";
  RETURN_IF_ERROR(ApplySurgeryToData(config, nullptr, data));
  data->models = std::make_shared<PreparedModels>(data->model);
  ASSIGN_OR_RETURN(ImportOptions import, MakeImportOptions(config, *data->model));
  import.half_weights = HasAdapters(config);  // that training with adapters does not convert either
  data->synthetic_batch = ChooseSyntheticBatch(config, source, import, data);
  ASSIGN_OR_RETURN(const BatchPlan batch, PlanBatch(config, data->synthetic_batch));
  const int64_t samples = (source.one_batch ? 1 : SyntheticSteps(config)) * batch.global;
  ASSIGN_OR_RETURN(data->train.bound,
                   MakeSyntheticData(*data->models, import, data->loss, samples, batch.micro, config.seed));
  const int64_t usual = GlobalBatchSize(config, *data->model, import.batch_axes);
  if (!source.batch.has_value() && batch.global < usual) {
    data->train.bound.notes.push_back(
        StrCat("batches of ", batch.global, " samples: a step of ", usual, " would take long (`batch_size`)"));
  }
  return absl::OkStatus();
}

absl::Status BindCaller(const TrainConfig& config, const CallerSample& sample, TrainingData* data) {
  data->train_text = "the program's batches";
  RETURN_IF_ERROR(ApplySurgeryToData(config, nullptr, data));
  data->models = std::make_shared<PreparedModels>(data->model);
  ASSIGN_OR_RETURN(data->train.bound, BindCallerSample(config, *data->model, sample));
  return absl::OkStatus();
}

void HoldOutEvalData(TrainingData* data) {
  data->eval = data->train;
  const SplitRows& rows = data->train.held_out->rows;
  data->train.bound.dataset = SubsetDataset(data->train.bound.dataset, rows.train);
  data->eval.bound.dataset = SubsetDataset(data->eval.bound.dataset, rows.eval);
  data->eval_text = data->train.held_out->text;
  data->eval_is_part_of_train = true;
}

absl::Status OpenEvalData(const TrainConfig& config, TrainingData* data) {
  if (data->train.held_out.has_value()) {
    HoldOutEvalData(data);
    return absl::OkStatus();
  }
  const bool folders = !FindFolderColumns(config, std::nullopt, config.data, true).empty();
  if (config.eval_data.empty() && (folders || !HasEvalFiles(config.data))) return absl::OkStatus();
  data->eval_text = config.eval_data.empty() ? config.data : config.eval_data;
  const DataRequest request{.path = data->eval_text,
                            .field = "eval_data",
                            .eval_split = true,
                            .same_columns = true,
                            .text = data->train.text};
  ASSIGN_OR_RETURN(data->eval, OpenData(config, *data->model, DescribeBinding(data->train), request, data->loss));
  return absl::OkStatus();
}

}  // namespace

int64_t SyntheticSteps(const TrainConfig& config) { return config.max_steps > 0 ? config.max_steps : kSyntheticSteps; }

bool LengthsDiffer(const Dataset& data) {
  int64_t i = 1;
  while (i < data.size() && data.Length(i) == data.Length(0)) ++i;
  return i < data.size();
}

RunFacts MakeRunFacts(const TrainConfig& config, const TrainingData& data, const LossChoice& loss) {
  RunFacts facts = MakeRunFacts(*data.model, loss);
  facts.has_folder = data.has_samples() || !config.out.empty();
  facts.has_data = data.has_samples() && !data.synthetic;
  facts.has_checkpoints = facts.has_folder && !data.synthetic;
  facts.has_loop = data.has_samples();
  facts.has_eval = data.has_eval();
  facts.writes_text = !config.sample_prompts.empty();
  facts.has_images = data.train.bound.has_images;
  facts.has_pictures = data.train.pictures.has_value();
  facts.has_sounds = data.train.audio.has_value();
  facts.augments = facts.has_pictures || data.train.arrays.has_value();
  facts.lengths_differ = !config.length_grouping || (data.has_samples() && LengthsDiffer(*data.train.bound.dataset));
  return facts;
}

absl::StatusOr<TrainingData> LoadTrainingData(const TrainConfig& config, std::shared_ptr<const OnnxModel> model,
                                              const SampleSource& source) {
  TrainingData data{.model = std::move(model)};
  if (!config.init_from.empty()) {
    ASSIGN_OR_RETURN(data.model, InitFromCheckpoint(data.model, config.init_from, &data.surgery));
  }
  ASSIGN_OR_RETURN(const std::optional<Preprocess> before, ReadPreprocess(config));
  if (before.has_value()) data.preprocess_path = PreprocessPath(config.model);
  ASSIGN_OR_RETURN(data.loss, MakeLossSpec(config, *data.model, before));
  if (config.data.empty()) {
    RETURN_IF_ERROR(source.caller != nullptr ? BindCaller(config, *source.caller, &data)
                                             : MakeSyntheticDataset(config, source, &data));
    return data;
  }
  data.train_text = config.data;
  ASSIGN_OR_RETURN(const std::shared_ptr<CacheBudget> cache, MakeCacheBudget(config));
  const DataRequest request{.path = config.data,
                            .field = "data",
                            .model_classes = !ChangesClasses(config),
                            .fit = true,
                            .leave_out = SplitColumn(config),
                            .cache = cache};
  ASSIGN_OR_RETURN(data.train, OpenData(config, *data.model, before, request, data.loss));
  data.train.ChooseOwnLoss(&data.loss);
  RETURN_IF_ERROR(ChoosePairLoss(config, &data.train.bound, &data.loss));
  RETURN_IF_ERROR(NumberCountedLabels(config, data.loss, &data.train.bound));
  RETURN_IF_ERROR(ApplySurgeryToData(config, &data.train.bound, &data));
  data.models = std::make_shared<PreparedModels>(data.model);
  RETURN_IF_ERROR(NumberModelLabels(config, *data.models, data.loss, &data.train.bound));
  RETURN_IF_ERROR(OpenEvalData(config, &data));
  if (data.loss.alphabet != nullptr && data.has_eval())
    PadTextLabels(data.loss.ignore_index, &data.train.bound, &data.eval.bound);
  return data;
}

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
