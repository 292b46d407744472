// Finds the classifier of a model and the nodes between it and the outputs.
#pragma once

#include <string>
#include <vector>

#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {

// Whether the node is one of these operators of ai.onnx.ml.
bool IsMlOp(const ParsedNode& node, std::initializer_list<std::string_view> ops);

struct ClassifierPath {
  const ParsedNode* classifier = nullptr;  // Gemm, MatMul, Conv or ai.onnx.ml.LinearClassifier
  std::vector<const ParsedNode*> nodes;    // between it and the outputs that it reaches
  std::string output;                      // an output that it reaches
};

// Finds the one classifier that reaches `output`, or any output if that is empty. PlanClasses says what may lie between
// them; anything else is an error.
absl::StatusOr<ClassifierPath> FindClassifier(const WeightTracer& tracer, const std::string& output);

// Finds the axis of a Reshape's input of shape `before` that an axis of its output stands for.
absl::StatusOr<size_t> AxisBeforeReshape(const ParsedNode& node, const Shape& before, const Shape& after, size_t axis);

}  // namespace onnxtrain
