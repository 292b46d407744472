// Whether pixels are normalized as the model wants them. Only hints come of it.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "optim/loop/trainer.h"
#include "optim/plan/open_data.h"
#include "optim/step/session.h"

namespace onnxtrain {

// How the samples are.
struct GivenPixels {
  std::string normalize;
  std::optional<bool> bgr = {};  // nullopt: the order of the channels cannot be chosen
  bool specified = false;        // the normalization was asked for
};

// What the model declares where the normalization or the order of the channels is another one; else "". Its first nodes
// tell, or, where nothing was asked for, its metadata (ONNX: Image.NominalPixelRange,
// Image.BitmapPixelFormat) or a preprocessor_config.json beside it.
std::string DescribeDeclaredPixels(const OnnxModel& model, const ImportOptions& import, const FeedSpec& feed,
                                   const GivenPixels& given);

// Evaluates a trained classifier on a few of the samples with every usual normalization and order of channels. Returns
// a line where another one predicts the labels far better than that of `samples`; else "", also where the loss has no
// accuracy, or no input is an image.
absl::StatusOr<std::string> FindBetterPixels(Session& session, const OpenedData& data, const TrainData& samples);

}  // namespace onnxtrain
