#include "optim/plan/caller_batches.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/data/transform/convert.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/value_checks.h"

namespace onnxtrain {
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
  // Labels [n, 1] are labels [n].
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

// What varies has the same extents in all tensors.
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
