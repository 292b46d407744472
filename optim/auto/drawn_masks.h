// Masks of two classes that are drawn in black and white: 0 and 255, where losses take 0 and 1.
#pragma once

#include <string>

#include "frontend/data/dataset.h"
#include "optim/loss.h"
#include "optim/trainer.h"

namespace onnxtrain {

// Are all values of the first samples with something in them 0 or 255? Only columns of bytes with a height and a width
// are looked at, and no streams. Samples that cannot be read are passed over.
bool IsBlackAndWhite(const Dataset& data, int column);

// Divides the labels of such a column by 255, if their loss takes probabilities of elements.
void ScaleDrawnMask(const Dataset& data, const LossChoice& loss, FeedSpec* label);

// Tells people of it: a line, or "".
std::string DescribeDrawnMasks(const TrainData& data, const LossChoice& loss);

}  // namespace onnxtrain
