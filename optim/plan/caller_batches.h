// Batches that a program hands over as tensors by name: checked, converted where they must be, and fed to a session.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/load/loader.h"
#include "optim/step/global_batch.h"
#include "optim/step/loss.h"

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

}  // namespace onnxtrain
