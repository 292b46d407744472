// Computes the initializers of a file from the weights that are trained instead.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/onnx/recover/weight_origin.h"
#include "frontend/onnx/write/lazy_tensor.h"

namespace onnxtrain {

// Returns the initializer `tie.copy`.
LazyTensor MakeCopy(const WeightTie& tie, const LazyTensor& weight);

// Replaces arguments of functions, parts of joined initializers and looked-up tables among the weights by the
// initializers that the file holds. Ties are not applied to weights that the file holds themselves. `read` returns a
// joined initializer as it is stored.
absl::Status ToStoredForms(const SharedWeights& shared,
                           const std::function<absl::StatusOr<HostTensor>(const JoinedWeight&)>& read,
                           std::map<std::string, LazyTensor>* weights);

}  // namespace onnxtrain
