// The last layer of a regression, into which an affine function of its outputs can be folded.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

struct OutputLayer {
  // A weight or bias whose element e belongs to target (e / inner) mod targets.
  struct Part {
    std::string name;  // of the initializer
    Shape shape;       // as stored
    int64_t inner = 1;
    double offset_of = 0;  // the output grows by this times what is added to the part; 0: nothing is to be added
  };
  std::vector<Part> parts;
  int64_t targets = 1;
};

// Finds the Gemm, MatMul or Conv before `output`, with a bias and nothing else but further biases and reshapes between
// them. Fails, naming the node, where there is none or a part is read elsewhere.
absl::StatusOr<OutputLayer> FindOutputLayer(const OnnxModel& model, const std::string& output);

// y → y·scale + offset, one number for each target of the layer or one for all; and back.
struct TargetUnit {
  std::vector<double> scale, offset;
};
// Changes the parts among `weights`, all of which must be there, so that the layer's output y becomes y·scale + offset.
absl::Status FoldUnit(const OutputLayer& layer, const TargetUnit& unit, std::map<std::string, HostTensor>* weights);
// The inverse: y becomes (y - offset) / scale.
absl::Status UnfoldUnit(const OutputLayer& layer, const TargetUnit& unit, std::map<std::string, HostTensor>* weights);

}  // namespace onnxtrain
