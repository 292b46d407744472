// Tensors as they cross the C interface.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "capi/onnxtrain.h"
#include "frontend/graph/host_tensor.h"
#include "optim/plan/caller_samples.h"

namespace onnxtrain::capi {

// Views of the caller's tensors. Errors name the tensor.
absl::StatusOr<std::vector<NamedTensorView>> ViewTensors(const OnnxtrainTensor* tensors, uint64_t count);

// Types and shapes of samples: labels are those that are no input.
absl::StatusOr<CallerSample> ReadSample(const OnnxtrainTensor* tensors, uint64_t count,
                                        const std::vector<std::string>& inputs);

// A view of a tensor that outlives it.
OnnxtrainTensor Describe(const std::string& name, const HostTensor& tensor);
// The same without data.
OnnxtrainTensor Describe(const std::string& name, const Type& type);

// What a handle of tensors holds.
class TensorList {
 public:
  explicit TensorList(std::map<std::string, HostTensor> tensors) : tensors_(std::move(tensors)) {}

  uint64_t size() const { return tensors_.size(); }
  absl::StatusOr<OnnxtrainTensor> At(uint64_t index) const;
  absl::StatusOr<OnnxtrainTensor> Find(const std::string& name) const;

 private:
  const std::map<std::string, HostTensor> tensors_;
};

}  // namespace onnxtrain::capi
