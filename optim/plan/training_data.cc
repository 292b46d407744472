#include "optim/plan/training_data.h"

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/dataset.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/folders.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/step_plan.h"
#include "optim/plan/surgery.h"
#include "optim/plan/synthetic_data.h"
#include "optim/plan/train_data.h"
#include "optim/record/checkpoint/resume.h"

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
  ASSIGN_OR_RETURN(const auto weights, ReadWeights(point.checkpoint, point.state.config.ema_decay > 0));
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
  ASSIGN_OR_RETURN(const ImportOptions import, MakeImportOptions(config, *data->model));
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
  RETURN_IF_ERROR(NumberCountedLabels(config, data.loss, &data.train.bound));
  RETURN_IF_ERROR(ApplySurgeryToData(config, &data.train.bound, &data));
  data.models = std::make_shared<PreparedModels>(data.model);
  RETURN_IF_ERROR(NumberModelLabels(config, *data.models, data.loss, &data.train.bound));
  RETURN_IF_ERROR(OpenEvalData(config, &data));
  return data;
}

}  // namespace onnxtrain
