// Language models: decoders that predict the next token at every position.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "optim/config/config.h"
#include "optim/plan/token_inputs.h"
#include "optim/step/loss.h"

namespace onnxtrain {

// What a language model takes.
struct LanguageModel {
  LengthLimit limit;
  std::string ids;             // the input of token ids
  int64_t rows = 0;            // of their embedding table; 0: unknown
  std::string label_input;     // an input of labels, from which the model computes its own loss; "": none
  std::string own_loss;        // the output that is this loss, where there are no logits
  bool shifts_labels = false;  // it compares position k with label k + 1: its labels are the ids themselves
  std::string positions;       // the input of positions, which begin at 0 in each document; "": none
  std::string pair_mask;       // the mask of pairs of tokens, which keeps documents apart; "": none
};

// nullopt unless the model has one input of token ids, and an output [batch, length, tokens] to train on and none of
// [batch, classes], or labels of its own and a scalar output.
absl::StatusOr<std::optional<LanguageModel>> FindLanguageModel(const TrainConfig& config, const OnnxModel& model,
                                                               const LossSpec& loss);

}  // namespace onnxtrain
