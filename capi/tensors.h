// Converts tensors between the C interface and the library.
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

// Returns views of the caller's tensors. Errors name the tensor.
absl::StatusOr<std::vector<NamedTensorView>> ViewTensors(const OnnxtrainTensor* tensors, uint64_t count);

// Reads types and shapes of samples. Tensors that are not in `inputs` are labels.
absl::StatusOr<CallerSample> ReadSample(const OnnxtrainTensor* tensors, uint64_t count,
                                        const std::vector<std::string>& inputs);

// Returns a view of a tensor, which must outlive the view, as must `name`.
OnnxtrainTensor Describe(const std::string& name, const HostTensor& tensor);
// Returns a view without data.
OnnxtrainTensor Describe(const std::string& name, const Type& type);

// The object of an OnnxtrainTensors handle.
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
