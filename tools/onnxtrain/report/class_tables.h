// Tables of how well each class is predicted, as HTML.
#pragma once

#include <string>
#include <vector>

#include "optim/record/quality.h"

namespace onnxtrain::cli {

// Accuracy and calibration before (may be null) and after training, results by class, the confusion matrix where it is
// small, else the pairs of classes that are confused most.
std::string QualityHtml(const Quality* before, const Quality& after, const std::vector<std::string>& names);

}  // namespace onnxtrain::cli
