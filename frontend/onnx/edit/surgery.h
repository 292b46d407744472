// Plans structural changes for fine-tuning: another number of classes, or a head for an encoder without one. The plans
// are edits (model_edits.h) that OnnxModel::Load and Export apply. New weights are zero;
// optim/step/weight_initializer.h initializes them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/edit/model_edits.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

struct SurgeryPlan {
  ModelEdits edits;
  std::vector<std::string> fresh;  // names of the new weights
  std::string output;              // the model output with the classes
  int64_t old_classes = 0;         // 0: the model had no classifier
};

// Changes the number of outputs of the classifier, the last Gemm, MatMul, Conv or ai.onnx.ml.LinearClassifier before
// `output` ("": the one output with a classifier), to `classes`. Between classifier and output there may be bias,
// Softmax, LogSoftmax, Sigmoid and data movement (Reshape, Flatten, Squeeze, Transpose, …), and, before probabilities,
// activations, BatchNormalization (widened with it) and pooling over other axes. Fails, naming the node, on others and
// on weights that other nodes read as well. Adapts shape constants, declared shapes and lists of labels to the number
// of classes: the latter hold `labels` or, if that is empty, 0 to classes - 1. Keeps all names.
absl::StatusOr<SurgeryPlan> PlanClasses(const OnnxModel& model, const std::string& output, int64_t classes,
                                        const std::vector<int64_t>& labels = {});

enum class Pooling : uint8_t { kCls, kMean, kMax };

struct HeadSpec {
  Pooling pooling = Pooling::kMean;
  int64_t classes = 0;
  std::string value;  // the value the head reads; "": the one output of shape [B,S,H], else [B,H]
};

// Appends pooling over the sequence axis and a Gemm (head.weight [classes, H], head.bias) whose output 'logits'
// replaces the model's outputs. kMean and kMax skip padding if an input [B,S] with "mask" in its name marks it. A value
// of shape [B,H] needs no pooling. `import` must fix all input shapes but the batch.
absl::StatusOr<SurgeryPlan> PlanHead(const OnnxModel& model, const HeadSpec& spec, const ImportOptions& import);

}  // namespace onnxtrain
