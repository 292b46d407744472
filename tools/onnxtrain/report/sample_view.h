// One sample as HTML: its text, a picture where it is an image, else its numbers.
#pragma once

#include <string>

#include "optim/trainer.h"

namespace onnxtrain::cli {

// Shows columns of text, else what feeds the first input. "" where it cannot be read or has too many numbers to be of
// use.
std::string SampleHtml(const TrainData& data, int64_t sample);

}  // namespace onnxtrain::cli
