// Checks whether pixels are normalized as the model expects. Produces hints only.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "optim/loop/trainer.h"
#include "optim/plan/open_data.h"
#include "optim/step/session.h"

namespace onnxtrain {

// The pixel normalization of the samples.
struct GivenPixels {
  std::string normalize;
  std::optional<bool> bgr = {};  // nullopt: the channel order cannot be chosen
  bool specified = false;        // the user chose the normalization
};

// Returns a hint if the model declares another normalization or channel order, else "". The declaration is read from
// the model's first nodes, or, if the user chose nothing, from its metadata (ONNX: Image.NominalPixelRange,
// Image.BitmapPixelFormat) or from preprocessor_config.json in its folder.
std::string DescribeDeclaredPixels(const OnnxModel& model, const ImportOptions& import, const FeedSpec& feed,
                                   const GivenPixels& given);

// Evaluates a trained classifier on a few samples with every common normalization and channel order. Returns a hint if
// one of them predicts the labels far better than that of `samples`; else "", also if the loss has no accuracy or no
// input is an image.
absl::StatusOr<std::string> FindBetterPixels(Session& session, const OpenedData& data, const TrainData& samples);

}  // namespace onnxtrain
