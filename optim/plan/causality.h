// Whether a language model sees the tokens that it is to predict.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "optim/loop/trainer.h"
#include "optim/step/session.h"

namespace onnxtrain {

// Fails where the predictions for the first half of a sample change with the tokens of its second half: such a model
// would read the next token, which is its label, from its input. `ids`: the input of token ids, whose samples are
// blocks of a language model. Runs the model twice on a few samples; says nothing where its trained output has no
// values for each token.
absl::Status CheckCausal(Session& session, const TrainData& data, const std::string& ids);

}  // namespace onnxtrain
