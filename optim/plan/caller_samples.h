// Describes and checks the batches of a program that passes its own tensors instead of a data set.
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

// The default name of the labels in such batches. Terms with separate labels use the names of LossFeed::label.
inline constexpr char kCallerLabel[] = "label";

// A tensor [batch, sample…] that a session reads.
struct CallerTensor {
  std::string name;  // in the caller's batch
  std::string feed;  // in a GlobalBatch
  Type sample;
  std::optional<ValueRange> range;  // of integers and labels; nullopt: any value
  bool is_label = false;
  // Consecutive axes of the sample whose extents may be smaller than in `sample`; equal for all tensors of a batch.
  size_t varying_axis = 0, varying_axes = 0;
};

// Returns the tensors of a session with these inputs, whose ranges are set, and this loss. Skips specs of labels.
std::vector<CallerTensor> ListCallerTensors(const std::vector<FeedSpec>& inputs, const LossChoice& loss,
                                            int64_t ignore_index);

struct NamedTensorView {
  std::string name;
  HostTensor tensor;
};

// Makes global batches of the caller's tensors. Copies only tensors whose element type or alignment differs from what
// the session needs. Thread-compatible.
class CallerBatches {
 public:
  explicit CallerBatches(std::vector<CallerTensor> tensors);
  // Lets the extents of `axes` consecutive axes of the tensor's sample vary, beginning with `axis`.
  void Vary(std::string_view name, size_t axis, size_t axes);

  const std::vector<CallerTensor>& tensors() const { return tensors_; }
  // Every tensor must be passed exactly once, and no other; without `labels`, labels are optional and ignored. All have
  // the same batch size of at least 1. Integers that index tables or classes are checked. The batch refers to the views
  // until the next call. Errors name the tensor.
  absl::StatusOr<const GlobalBatch*> Fill(std::span<const NamedTensorView> views, bool labels);
  // Drops the references to the views of the last call.
  void Clear();

 private:
  absl::Status Set(size_t place, const CallerTensor& wanted, const HostTensor& given, GlobalBatch* batch);
  absl::Status CheckExtents(std::span<const NamedTensorView> views, size_t count) const;

  std::vector<CallerTensor> tensors_;  // inputs first
  size_t inputs_ = 0;
  GlobalBatch with_labels_, inputs_only_;
};

// Describes a sample of the program, without the batch axis. Anything that follows from the model may be left out.
struct CallerSample {
  std::map<std::string, Type> inputs;  // shapes of inputs with free dimensions
  std::map<std::string, Type> labels;  // by CallerTensor::name; empty: the labels that the model's loss takes
  // Axes of samples, by tensor, whose extents differ between batches: one, or two consecutive ones. The shapes have the
  // greatest extents, which are the same for all tensors.
  std::map<std::string, std::vector<size_t>> varying;
};

// Returns the columns of such samples, without a data set.
absl::StatusOr<BoundData> BindCallerSample(const TrainConfig& config, const OnnxModel& model,
                                           const CallerSample& sample);

// Returns the batches that a session on the prepared model takes. Sets in *options which extents differ between
// batches. Fails if the sample has labels that the loss does not read.
absl::StatusOr<CallerBatches> MakeCallerBatches(const PreparedModel& prepared, const CallerSample& sample,
                                                int64_t ignore_index, SessionOptions* options);

}  // namespace onnxtrain
