// What fine-tuning needs done to a model's structure: another number of classes, or a head for an encoder that has none.
// Only plans: the result is edits (edits.h) that OnnxModel::Load and Export apply. New weights are zero; whoever asked
// draws them (optim/initialize.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/edits.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

struct SurgeryPlan {
  ModelEdits edits;
  std::vector<std::string> fresh;  // the weights that are new
  std::string output;              // the model output that now has the classes
  int64_t old_classes = 0;         // 0: there was no classifier
};

// Gives the last Gemm, MatMul, Conv or ai.onnx.ml.LinearClassifier before `output` ("": the one output that has such an
// end) `classes` outputs. It must reach the output through bias, Softmax, LogSoftmax, Sigmoid and what only moves numbers
// (Reshape, Flatten, Squeeze, Transpose, …); where probabilities say that these are classes, before them through
// activations, BatchNormalization (widened with it) and pooling over other axes too. Anything else is an error that names it.
// So are weights that other nodes read as well. Shape constants, lists of labels and declared shapes that carry the number
// of classes follow. No name changes.
absl::StatusOr<SurgeryPlan> PlanClasses(const OnnxModel& model, const std::string& output, int64_t classes);

enum class Pooling : uint8_t { kCls, kMean, kMax };

struct HeadSpec {
  Pooling pooling = Pooling::kMean;
  int64_t classes = 0;
  std::string value;  // what the head reads; "": the one output of shape [B,S,H], else [B,H]
};

// Appends pooling over the sequence axis and a Gemm (head.weight [classes, H], head.bias) whose output 'logits' takes the
// place of the model's outputs. Padding, as an input [B,S] with "mask" in its name tells it, does not count for kMean and
// kMax. A value of shape [B,H] is pooled already. `import` must fix all input shapes but the batch.
absl::StatusOr<SurgeryPlan> PlanHead(const OnnxModel& model, const HeadSpec& spec, const ImportOptions& import);

}  // namespace onnxtrain
