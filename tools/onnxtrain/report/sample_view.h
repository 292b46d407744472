// One sample as HTML: its text, a picture where it is an image, else its numbers.
#pragma once

#include <string>

#include "optim/loop/trainer.h"
#include "tools/onnxtrain/report/quality.h"
#include "tools/onnxtrain/report/token_text.h"

namespace onnxtrain::cli {

// Shows columns of text, else what feeds the first input; token ids as text where `tokens` has their names. "" where it
// cannot be read or has too many numbers to be of use.
std::string SampleHtml(const TrainData& data, int64_t sample, const TokenText* tokens);

// The classes of labels and predictions at the positions of a sample, as two pictures, where the labels are one:
// [height, width] or [1, height, width] is `labels`. Else "".
std::string ClassMapsHtml(const SampleResult& result, const Shape& labels);

}  // namespace onnxtrain::cli
