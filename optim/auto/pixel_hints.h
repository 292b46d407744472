// Whether pixels are normalized as the model wants them. Only hints come of it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "optim/auto/open_data.h"
#include "optim/session.h"
#include "optim/trainer.h"

namespace onnxtrain {

// What the model declares, in its metadata (ONNX: Image.NominalPixelRange, Image.BitmapPixelFormat) or in a
// preprocessor_config.json beside it, where the normalization or the order of the channels is another one; else "".
std::string DescribeDeclaredPixels(const OnnxModel& model, const std::string& normalize, bool bgr);

// Evaluates a trained classifier on a few of the samples with every usual normalization and order of channels. Returns
// a line where another one predicts the labels far better than that of `samples`; else "", also where the loss has no
// accuracy, or no input is an image.
absl::StatusOr<std::string> FindBetterPixels(Session& session, const OpenedData& data, const TrainData& samples);

}  // namespace onnxtrain
