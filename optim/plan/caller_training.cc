#include "optim/plan/caller_training.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/data/transform/convert.h"
#include "optim/config/training_settings.h"
#include "optim/config/unused_fields.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/session_setup.h"
#include "optim/plan/surgery.h"
#include "optim/plan/synthetic_data.h"
#include "optim/plan/threads.h"
#include "optim/plan/value_checks.h"

namespace onnxtrain {
namespace {

std::vector<std::string> GetFeeds(std::span<const FedTensor> tensors) {
  std::vector<std::string> feeds;
  for (const FedTensor& tensor : tensors) feeds.push_back(tensor.feed);
  return feeds;
}

bool IsAligned(const HostTensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.bytes().data()) % DTypeSize(tensor.dtype()) == 0;
}

bool IsVarying(const FedTensor& tensor, size_t axis) {
  return axis >= tensor.varying_axis && axis < tensor.varying_axis + tensor.varying_axes;
}

std::string WithBatch(const FedTensor& tensor) {
  std::string shape = "[batch";
  for (size_t axis = 0; axis < tensor.sample.shape.size(); ++axis)
    StrAppend(&shape, IsVarying(tensor, axis) ? ",≤" : ",", tensor.sample.shape[axis]);
  return StrCat(ToString(tensor.sample.dtype), shape, "]");
}

absl::Status CheckShape(const FedTensor& wanted, const HostTensor& given) {
  const Shape& shape = given.shape();
  bool fits = shape.size() == wanted.sample.shape.size() + 1;
  for (size_t axis = 0; fits && axis < wanted.sample.shape.size(); ++axis) {
    const int64_t extent = shape[axis + 1], most = wanted.sample.shape[axis];
    fits = IsVarying(wanted, axis) ? extent >= 1 && extent <= most : extent == most;
  }
  // Labels [n, 1] are labels [n].
  const bool column = wanted.is_label && wanted.sample.shape.empty() && shape.size() == 2 && shape[1] == 1;
  if (fits || column) return absl::OkStatus();
  return Invalid("'", wanted.name, "' is ", ToString(given.type()), ", expected ", WithBatch(wanted));
}

absl::StatusOr<HostTensor> Convert(const FedTensor& wanted, const HostTensor& given) {
  const DType to = wanted.sample.dtype;
  if (given.dtype() == to && IsAligned(given)) return given;
  HostTensor converted({to, given.shape()});
  if (given.dtype() == to) {
    std::ranges::copy(given.bytes(), converted.mutable_bytes().begin());
    return converted;
  }
  if (IsStorage(given.dtype()) || IsStorage(to))
    return Invalid("'", wanted.name, "' is ", ToString(given.type()), ", expected ", WithBatch(wanted));
  const HostTensor aligned = IsAligned(given) ? given : given.Clone();
  RETURN_IF_ERROR(Annotate(ConvertValues(given.dtype(), aligned.bytes(), to, converted.mutable_bytes().data(), 1),
                           StrCat("'", wanted.name, "': ")));
  return converted;
}

absl::Status CheckValues(const FedTensor& wanted, const HostTensor& tensor) {
  if (!wanted.range.has_value()) return absl::OkStatus();
  const int64_t place = FindInvalidValue(tensor.dtype(), tensor.bytes(), wanted.range, true);
  if (place < 0) return absl::OkStatus();
  const int64_t row = tensor.size() / tensor.shape()[0];
  return Invalid("'", wanted.name, "': sample ", place / row, row > 1 ? StrCat(", element ", place % row) : "", ": ",
                 tensor.At(place), " is outside of ", wanted.range->what);
}

absl::StatusOr<const HostTensor*> FindView(std::span<const NamedTensorView> views, const std::string& name) {
  const HostTensor* found = nullptr;
  for (const NamedTensorView& view : views) {
    if (view.name != name) continue;
    if (found != nullptr) return Invalid("'", name, "' is there twice");
    found = &view.tensor;
  }
  return found != nullptr ? absl::StatusOr<const HostTensor*>(found) : Invalid("'", name, "' is missing in the batch");
}

absl::Status CheckNames(std::span<const NamedTensorView> views, const std::vector<FedTensor>& tensors) {
  for (const NamedTensorView& view : views) {
    if (std::ranges::find(tensors, view.name, &FedTensor::name) != tensors.end()) continue;
    const auto name = [](std::string* out, const FedTensor& t) { StrAppend(out, "'", t.name, "'"); };
    return Invalid("'", view.name, "' is no tensor of a batch, which has ", absl::StrJoin(tensors, ", ", name));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<FedTensor> ListFedTensors(const std::vector<FeedSpec>& inputs, const LossChoice& loss,
                                      int64_t ignore_index) {
  std::vector<FedTensor> tensors;
  for (const FeedSpec& spec : inputs) {
    if (std::ranges::find(loss.feeds, spec.feed, &LossFeed::name) != loss.feeds.end()) continue;
    tensors.push_back({.name = spec.feed, .feed = spec.feed, .sample = spec.sample, .range = spec.range});
  }
  for (const LossFeed& feed : loss.feeds) {
    tensors.push_back({.name = feed.label.empty() ? kFedLabel : feed.label,
                       .feed = feed.name,
                       .sample = feed.sample,
                       .range = FindLabelRange(loss, feed, ignore_index),
                       .is_label = true});
  }
  return tensors;
}

FedBatches::FedBatches(std::vector<FedTensor> tensors) : tensors_(std::move(tensors)) {
  inputs_ = std::ranges::count(tensors_, false, &FedTensor::is_label);
  with_labels_ = GlobalBatch(GetFeeds(tensors_));
  inputs_only_ = GlobalBatch(GetFeeds(std::span(tensors_).first(inputs_)));
}

void FedBatches::Vary(std::string_view name, size_t axis, size_t axes) {
  for (FedTensor& tensor : tensors_) {
    if (tensor.name == name) tensor.varying_axis = axis, tensor.varying_axes = axes;
  }
}

// What varies has the same extents in all tensors.
absl::Status FedBatches::CheckExtents(std::span<const NamedTensorView> views, size_t count) const {
  const FedTensor* first = nullptr;
  Shape extents;
  for (const FedTensor& tensor : std::span(tensors_).first(count)) {
    if (tensor.varying_axes == 0) continue;
    ASSIGN_OR_RETURN(const HostTensor* given, FindView(views, tensor.name));
    const auto begin = given->shape().begin() + 1 + static_cast<int64_t>(tensor.varying_axis);
    const Shape own(begin, begin + static_cast<int64_t>(tensor.varying_axes));
    if (first != nullptr && own != extents)
      return Invalid("'", tensor.name, "' has ", ToString(own), " where '", first->name, "' has ", ToString(extents));
    if (first == nullptr) first = &tensor, extents = own;
  }
  return absl::OkStatus();
}

absl::Status FedBatches::Set(size_t place, const FedTensor& wanted, const HostTensor& given, GlobalBatch* batch) {
  RETURN_IF_ERROR(CheckShape(wanted, given));
  const int64_t samples = given.shape()[0];
  if (samples == 0) return Invalid("'", wanted.name, "' has no samples");
  if (place > 0 && batch->tensor(0).shape()[0] != samples)
    return Invalid("'", wanted.name, "' has ", samples, " samples, '", tensors_[0].name, "' has ",
                   batch->tensor(0).shape()[0]);
  ASSIGN_OR_RETURN(const HostTensor tensor, Convert(wanted, given));
  RETURN_IF_ERROR(CheckValues(wanted, tensor));
  batch->Set(place, tensor);
  return absl::OkStatus();
}

absl::StatusOr<const GlobalBatch*> FedBatches::Fill(std::span<const NamedTensorView> views, bool labels) {
  RETURN_IF_ERROR(CheckNames(views, tensors_));
  GlobalBatch* batch = labels ? &with_labels_ : &inputs_only_;
  const size_t count = labels ? tensors_.size() : inputs_;
  for (size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const HostTensor* given, FindView(views, tensors_[i].name));
    RETURN_IF_ERROR(Set(i, tensors_[i], *given, batch));
  }
  RETURN_IF_ERROR(CheckExtents(views, count));
  return batch;
}

void FedBatches::Clear() {
  for (GlobalBatch* batch : {&with_labels_, &inputs_only_}) {
    for (size_t i = 0; i < batch->names()->size(); ++i) batch->Set(i, HostTensor());
  }
}

namespace {

absl::Status CheckFedConfig(const TrainConfig& config) {
  RETURN_IF_ERROR(Validate(config));
  RETURN_IF_ERROR(RefuseUnused(config, {.has_data = false, .has_loop = false, .has_eval = false}));
  if (config.lr_scheduler.starts_with("plateau"))
    return Invalid("`lr_scheduler` plateau: there is no evaluation data (`eval_data`, `eval_split`)");
  if (config.max_steps == 0 && config.lr_scheduler != "constant")
    return Invalid("`lr_scheduler` ", config.lr_scheduler, ": of how many updates? (`max_steps`)");
  if (config.max_steps == 0 && config.warmup > 0 && config.warmup < 1)
    return Invalid("`warmup` ", config.warmup, ": a share of how many updates? (`max_steps`)");
  return absl::OkStatus();
}

absl::Status SetShapes(const OnnxModel& model, const FedSample& sample, BoundData* bound) {
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

void SetLabels(const FedSample& sample, BoundData* bound) {
  for (const auto& [name, type] : sample.labels)
    (name == kFedLabel ? bound->label : bound->own_labels[name]).info = DescribeLabel(type);
}

absl::StatusOr<BoundData> Bind(const TrainConfig& config, const OnnxModel& model, const FedSample& sample) {
  ASSIGN_OR_RETURN(const ImportOptions import, MakeImportOptions(config, model));
  BoundData bound{
      .batch_axes = import.batch_axes, .input_shapes = import.input_shapes, .fixed_inputs = import.fixed_inputs};
  RETURN_IF_ERROR(SetShapes(model, sample, &bound));
  SetLabels(sample, &bound);
  return bound;
}

absl::Status CheckLabelNames(const FedSample& sample, const LossChoice& loss) {
  for (const auto& [name, type] : sample.labels) {
    const std::string key = name == kFedLabel ? "" : name;
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

absl::Status CheckTrains(const PreparedModel& prepared) {
  const auto trained = [](const WeightDecision& w) { return w.trained; };
  return std::ranges::any_of(prepared.weights, trained) ? absl::OkStatus()
                                                        : Invalid("nothing to train: no weight is trainable");
}

// Adds how the sizes of inputs are said.
absl::Status NameFreeDims(const absl::Status& status, const OnnxModel& model, const SessionOptions& options) {
  return {status.code(), StrCat(status.message(), DescribeFreeDims(model, options.import.dim_values))};
}

// Has the extents of some axes differ between batches.
absl::Status SetVarying(const FedSample& sample, SessionOptions* options, FedBatches* batches) {
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
    } else if (name == kFedLabel) {
      options->variable_label_axis = static_cast<int>(axes.front());
    } else {
      return absl::UnimplementedError(StrCat("'", name, "': only inputs and '", kFedLabel, "' may vary"));
    }
    batches->Vary(name, axes.front(), axes.size());
  }
  if (greatest.empty()) return absl::OkStatus();
  if (options->variable_inputs.empty()) return Invalid("labels vary only where an input does");
  options->variable_extents = greatest.size();
  options->step_form = StepForm::kMicroAndApply;
  return absl::OkStatus();
}

// The model after surgery, with the loss that is asked for.
absl::StatusOr<LossSpec> ChangeModel(const TrainConfig& config, std::shared_ptr<const OnnxModel>* model,
                                     std::vector<std::string>* fresh, std::vector<std::string>* notes) {
  ASSIGN_OR_RETURN(LossSpec loss, MakeLossSpec(config, **model, std::nullopt));
  if (!HasSurgery(config)) return loss;
  ASSIGN_OR_RETURN(Surgery surgery, ApplySurgery(config, *model, nullptr, loss.logits));
  *model = std::move(surgery.model);
  *fresh = std::move(surgery.fresh);
  *notes = std::move(surgery.lines);
  if (!surgery.logits.empty()) loss.logits = surgery.logits;
  return loss;
}

}  // namespace

absl::StatusOr<FedTraining> PrepareFedTraining(const TrainConfig& given, std::shared_ptr<const OnnxModel> model,
                                               const FedSample& sample, const BackendFactory& make_backend) {
  RETURN_IF_ERROR(CheckFedConfig(given));
  const TrainConfig config = WithTrainingSettings(given, *model);
  RETURN_IF_ERROR(CheckRunnable(config, *model));
  FedTraining training{.config = config};
  std::vector<std::string> fresh;
  ASSIGN_OR_RETURN(const LossSpec loss, ChangeModel(config, &model, &fresh, &training.notes));
  training.models = std::make_shared<PreparedModels>(model);
  ASSIGN_OR_RETURN(const BoundData bound, Bind(config, *model, sample));
  ASSIGN_OR_RETURN(training.batch, PlanBatch(config, GlobalBatchSize(config, *model, bound.batch_axes)));
  ASSIGN_OR_RETURN(SessionOptions options, MakeSessionOptions(config, *model, bound, loss, training.batch.micro));
  auto prepared = PrepareFor(*training.models, bound, &options, true);
  if (!prepared.ok()) return NameFreeDims(prepared.status(), *model, options);
  RETURN_IF_ERROR(CheckLabelNames(sample, prepared->loss));
  RETURN_IF_ERROR(CheckTrains(*prepared));
  RETURN_IF_ERROR(RefuseUnused(config, MakeRunFacts(*model, prepared->loss)));
  RETURN_IF_ERROR(FixMicroBatch(config, options, &training.batch));
  ASSIGN_OR_RETURN(training.optimizer,
                   ChooseOptimizer(config, *model, *prepared, fresh, training.batch.global, config.max_steps));
  training.optimizer.schedule.host_factor = true;
  options.optimizer = training.optimizer.spec;
  options.schedule = training.optimizer.schedule;
  options.recompute = MakeRecomputeSpec(config);
  training.batches = FedBatches(ListFedTensors(ListInputs(*prepared), prepared->loss, config.ignore_index));
  RETURN_IF_ERROR(SetVarying(sample, &options, &training.batches));
  training.notes.push_back(prepared->loss.explanation);
  ASSIGN_OR_RETURN(training.backend, MakeBackendForModel(training.models, options, make_backend, &training.config));
  ASSIGN_OR_RETURN(training.precision, ChoosePrecisionAndBatch(config, training.models, *training.backend,
                                                               training.batch.global, &training.batch, &options));
  ASSIGN_OR_RETURN(training.session, Session::Create(training.models, training.backend.get(), std::move(options)));
  return training;
}

}  // namespace onnxtrain
