// What a program that hands over its own batches says of them, in place of data.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/load/loader.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"
#include "optim/step/global_batch.h"
#include "optim/step/loss.h"
#include "optim/step/prepared_models.h"
#include "optim/step/session.h"

namespace onnxtrain {

// The name of the default labels in such batches; labels of their own have the names of LossFeed::label.
inline constexpr char kCallerLabel[] = "label";

// A tensor [batch, sample…] that a session reads.
struct CallerTensor {
  std::string name;  // in the caller's batch
  std::string feed;  // in a GlobalBatch
  Type sample;
  std::optional<ValueRange> range;  // of integers and labels; nullopt: any value
  bool is_label = false;
  // Axes of the sample, one behind the other, whose extents may be smaller: the same ones for all tensors of a batch.
  size_t varying_axis = 0, varying_axes = 0;
};

// The tensors of a session with these inputs, whose ranges are set, and this loss. Specs of labels are left out.
std::vector<CallerTensor> ListCallerTensors(const std::vector<FeedSpec>& inputs, const LossChoice& loss,
                                            int64_t ignore_index);

struct NamedTensorView {
  std::string name;
  HostTensor tensor;
};

// Makes global batches of caller's tensors without copying those that have the element type and alignment that the
// session wants. Thread-compatible.
class CallerBatches {
 public:
  explicit CallerBatches(std::vector<CallerTensor> tensors);
  // Lets the extents of `axes` axes of the sample of a tensor vary, from the given one on.
  void Vary(std::string_view name, size_t axis, size_t axes);

  const std::vector<CallerTensor>& tensors() const { return tensors_; }
  // Every tensor must be there once, and no other, but labels are neither needed nor read where not `labels`. All have
  // the same batch of at least 1. Integers that index tables or classes are checked. The batch refers to the views
  // until the next call. Errors name the tensor.
  absl::StatusOr<const GlobalBatch*> Fill(std::span<const NamedTensorView> views, bool labels);
  // Ends the references to the views of the last call.
  void Clear();

 private:
  absl::Status Set(size_t place, const CallerTensor& wanted, const HostTensor& given, GlobalBatch* batch);
  absl::Status CheckExtents(std::span<const NamedTensorView> views, size_t count) const;

  std::vector<CallerTensor> tensors_;  // inputs first
  size_t inputs_ = 0;
  GlobalBatch with_labels_, inputs_only_;
};

// What the program says of a sample, without the batch axis. Everything may be left out that follows from the model.
struct CallerSample {
  std::map<std::string, Type> inputs;  // shapes of inputs with free dimensions
  std::map<std::string, Type> labels;  // by CallerTensor::name; none: those that the loss of the model's output takes
  // Axes of samples whose extents differ between batches, by tensor: one, or two one behind the other. The shapes have
  // the greatest extents, which are the same for all.
  std::map<std::string, std::vector<size_t>> varying;
};

// Returns the columns of such samples, without a data set.
absl::StatusOr<BoundData> BindCallerSample(const TrainConfig& config, const OnnxModel& model,
                                           const CallerSample& sample);

// Returns the batches that a session on the prepared model takes. Sets in *options which extents differ between
// batches. Fails where the sample has labels that the loss does not read.
absl::StatusOr<CallerBatches> MakeCallerBatches(const PreparedModel& prepared, const CallerSample& sample,
                                                int64_t ignore_index, SessionOptions* options);

}  // namespace onnxtrain
