// Shows predictions for evaluation samples as HTML: tables by class, and single samples.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "frontend/data/text/token_text.h"
#include "optim/loop/trainer.h"
#include "optim/record/quality.h"

namespace onnxtrain::cli {

// Returns accuracy and calibration before (may be null) and after training, results by class, and the confusion matrix,
// or the most confused pairs if there are many classes.
std::string QualityHtml(const Quality* before, const Quality& after, const std::vector<std::string>& names);

// Shows the columns of text of a sample, or else the value of the first input: images as pictures, token ids as text if
// `tokens` names them, other values as numbers. Returns "" for unreadable or overly long values.
std::string SampleHtml(const TrainData& data, int64_t sample, const TokenText* tokens);

// Shows the classes of labels and predictions as two pictures if the shape `labels` is [height, width] or
// [1, height, width]; otherwise returns "".
std::string ClassMapsHtml(const SampleResult& result, const Shape& labels);

}  // namespace onnxtrain::cli
