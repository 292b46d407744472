#include "optim/plan/caller_samples.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/data/transform/convert.h"
#include "optim/plan/data_checks.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/model_setup.h"

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

// Describes labels of unknown values: integers are classes.
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

// Lets the extents of some axes differ between batches.
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

namespace {

std::vector<std::string> GetFeeds(std::span<const CallerTensor> tensors) {
  std::vector<std::string> feeds;
  for (const CallerTensor& tensor : tensors) feeds.push_back(tensor.feed);
  return feeds;
}

bool IsAligned(const HostTensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.bytes().data()) % DTypeSize(tensor.dtype()) == 0;
}

bool IsVarying(const CallerTensor& tensor, size_t axis) {
  return axis >= tensor.varying_axis && axis < tensor.varying_axis + tensor.varying_axes;
}

std::string WithBatch(const CallerTensor& tensor) {
  std::string shape = "[batch";
  for (size_t axis = 0; axis < tensor.sample.shape.size(); ++axis)
    StrAppend(&shape, IsVarying(tensor, axis) ? ",≤" : ",", tensor.sample.shape[axis]);
  return StrCat(ToString(tensor.sample.dtype), shape, "]");
}

absl::Status CheckShape(const CallerTensor& wanted, const HostTensor& given) {
  const Shape& shape = given.shape();
  bool fits = shape.size() == wanted.sample.shape.size() + 1;
  for (size_t axis = 0; fits && axis < wanted.sample.shape.size(); ++axis) {
    const int64_t extent = shape[axis + 1], most = wanted.sample.shape[axis];
    fits = IsVarying(wanted, axis) ? extent >= 1 && extent <= most : extent == most;
  }
  // Labels of shape [n, 1] are accepted as [n].
  const bool column = wanted.is_label && wanted.sample.shape.empty() && shape.size() == 2 && shape[1] == 1;
  if (fits || column) return absl::OkStatus();
  return Invalid("'", wanted.name, "' is ", ToString(given.type()), ", expected ", WithBatch(wanted));
}

absl::StatusOr<HostTensor> Convert(const CallerTensor& wanted, const HostTensor& given) {
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

absl::Status CheckValues(const CallerTensor& wanted, const HostTensor& tensor) {
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

absl::Status CheckNames(std::span<const NamedTensorView> views, const std::vector<CallerTensor>& tensors) {
  for (const NamedTensorView& view : views) {
    if (std::ranges::find(tensors, view.name, &CallerTensor::name) != tensors.end()) continue;
    const auto name = [](std::string* out, const CallerTensor& t) { StrAppend(out, "'", t.name, "'"); };
    return Invalid("'", view.name, "' is no tensor of a batch, which has ", absl::StrJoin(tensors, ", ", name));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<CallerTensor> ListCallerTensors(const std::vector<FeedSpec>& inputs, const LossChoice& loss,
                                            int64_t ignore_index) {
  std::vector<CallerTensor> tensors;
  for (const FeedSpec& spec : inputs) {
    if (std::ranges::find(loss.feeds, spec.feed, &LossFeed::name) != loss.feeds.end()) continue;
    tensors.push_back({.name = spec.feed, .feed = spec.feed, .sample = spec.sample, .range = spec.range});
  }
  for (const LossFeed& feed : loss.feeds) {
    tensors.push_back({.name = feed.label.empty() ? kCallerLabel : feed.label,
                       .feed = feed.name,
                       .sample = feed.sample,
                       .range = FindLabelRange(loss, feed, ignore_index),
                       .is_label = true});
  }
  return tensors;
}

CallerBatches::CallerBatches(std::vector<CallerTensor> tensors) : tensors_(std::move(tensors)) {
  inputs_ = std::ranges::count(tensors_, false, &CallerTensor::is_label);
  with_labels_ = GlobalBatch(GetFeeds(tensors_));
  inputs_only_ = GlobalBatch(GetFeeds(std::span(tensors_).first(inputs_)));
}

void CallerBatches::Vary(std::string_view name, size_t axis, size_t axes) {
  for (CallerTensor& tensor : tensors_) {
    if (tensor.name == name) tensor.varying_axis = axis, tensor.varying_axes = axes;
  }
}

// Checks that varying axes have the same extents in all tensors.
absl::Status CallerBatches::CheckExtents(std::span<const NamedTensorView> views, size_t count) const {
  const CallerTensor* first = nullptr;
  Shape extents;
  for (const CallerTensor& tensor : std::span(tensors_).first(count)) {
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

absl::Status CallerBatches::Set(size_t place, const CallerTensor& wanted, const HostTensor& given, GlobalBatch* batch) {
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

absl::StatusOr<const GlobalBatch*> CallerBatches::Fill(std::span<const NamedTensorView> views, bool labels) {
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

void CallerBatches::Clear() {
  for (GlobalBatch* batch : {&with_labels_, &inputs_only_}) {
    for (size_t i = 0; i < batch->names()->size(); ++i) batch->Set(i, HostTensor());
  }
}

}  // namespace onnxtrain
