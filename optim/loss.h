// Which loss is trained, on which value, with which labels.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "frontend/ops/builder.h"

namespace onnxtrain {

struct LossSpec {
  std::string name = "auto";       // auto, cross_entropy, nll, bce, mse, l1, huber, output:NAME
  std::string logits;              // name of the value to train on; "": found
  int64_t ignore_index = -100;     // label that does not count (cross_entropy, nll)
  double label_smoothing = 0;
};

// What is known of the labels before anything is built. The loss decides what tensor it wants from them.
struct LabelInfo {
  bool present = false;
  Type sample;                     // one sample's label: element type and shape, without the batch axis
  int64_t min_value = 0, max_value = 0;  // of integer labels
};

enum class LossKind : uint8_t { kCrossEntropy, kNll, kBce, kMse, kL1, kHuber, kOutput };

struct LossChoice {
  LossKind kind = LossKind::kMse;
  std::string name;                // "cross_entropy"
  std::string output;              // the model output that it trains
  ValueId value = kNoValue;        // what it is computed on, in the graph that was asked: logits, or the prediction
  std::string explanation;         // one line for people: "cross_entropy on the logits behind Softmax 'probs'"
  Type label;                      // type of one sample's label as the graph wants it
  bool classes = false;            // is accuracy meaningful?
  int64_t num_classes = 0;         // of integer labels, else 0
};

// Names of the feeds that training adds.
inline constexpr char kLabelFeed[] = "$label";          // [micro_batch, label…]
inline constexpr char kInvWeightFeed[] = "$inv_weight";  // scalar: 1/W of the whole window

// Decides by the rules of the command-line contract; anything ambiguous is an error that lists the choices.
absl::StatusOr<LossChoice> ChooseLoss(const ImportedModel& model, const LossSpec& spec, const LabelInfo& labels);

// What AttachLoss appended; all scalars of the logits' element type.
struct LossValues {
  ValueId loss_sum = kNoValue;  // over all targets of the micro-batch
  ValueId correct = kNoValue;   // predictions that hit; zero where the loss has no classes
};

// Appends the loss to the graph that `choice` was made on: a feed kLabelFeed [batch, label…], the sum of the losses and
// the number of correct predictions.
absl::StatusOr<LossValues> AttachLoss(Graph* graph, const LossChoice& choice, const LossSpec& spec, int64_t batch);

// How many targets of a window count: the W of 1/W. Samples for dense losses, labels other than ignore_index for
// cross_entropy and nll. `labels` is the whole window's label tensor.
double WindowWeight(const LossChoice& choice, const LossSpec& spec, const HostTensor& labels, int64_t samples);

}  // namespace onnxtrain
