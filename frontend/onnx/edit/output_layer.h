// Finds the classifier of a model, and folds affine functions of the outputs into the last layer of a regression.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {

// Returns true if the node is one of these operators of ai.onnx.ml.
bool IsMlOp(const ParsedNode& node, std::initializer_list<std::string_view> ops);

struct ClassifierPath {
  const ParsedNode* classifier = nullptr;  // Gemm, MatMul, Conv or ai.onnx.ml.LinearClassifier
  std::vector<const ParsedNode*> nodes;    // between it and the outputs that it reaches
  std::string output;                      // an output that it reaches
};

// Finds the one classifier that reaches `output`, or any output if that is empty. PlanClasses (surgery.h) lists the
// nodes that may be between them; others are errors.
absl::StatusOr<ClassifierPath> FindClassifier(const WeightTracer& tracer, const std::string& output);

// Returns the axis of a Reshape's input of shape `before` that corresponds to an axis of its output of shape `after`.
absl::StatusOr<size_t> AxisBeforeReshape(const ParsedNode& node, const Shape& before, const Shape& after, size_t axis);

struct OutputLayer {
  // A weight or bias whose element e belongs to target (e / inner) mod targets.
  struct Part {
    std::string name;  // the initializer
    Shape shape;       // stored shape
    int64_t inner = 1;
    double offset_of = 0;  // change of the output per change of the part; 0: nothing is added to it
  };
  std::vector<Part> parts;
  int64_t targets = 1;
};

// Finds the Gemm, MatMul or Conv before `output`, with a bias and only further biases and reshapes between them. Fails,
// naming the node, if there is none or if other nodes read a part.
absl::StatusOr<OutputLayer> FindOutputLayer(const OnnxModel& model, const std::string& output);

// The scale and offset of y → y·scale + offset: one number for each target of the layer, or one for all.
struct TargetUnit {
  std::vector<double> scale, offset;
};
// Changes the parts among `weights`, all of which must be there, so that the layer's output y becomes y·scale + offset.
absl::Status FoldUnit(const OutputLayer& layer, const TargetUnit& unit, std::map<std::string, HostTensor>* weights);
// Inverts FoldUnit: y becomes (y - offset) / scale.
absl::Status UnfoldUnit(const OutputLayer& layer, const TargetUnit& unit, std::map<std::string, HostTensor>* weights);

}  // namespace onnxtrain
