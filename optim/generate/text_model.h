// The model of a command that writes text, and its decoder.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"
#include "optim/generate/prompts.h"
#include "optim/generate/text_decoder.h"
#include "optim/step/loss.h"

namespace onnxtrain {

struct TextModel {
  std::shared_ptr<const OnnxModel> model;  // with the adapters of the configuration
  LossSpec loss;
};
absl::StatusOr<TextModel> OpenTextModel(const TrainConfig& config, const std::optional<Preprocess>& before);

struct DecoderRequest {
  std::shared_ptr<const OnnxModel> model;
  LossSpec loss;
  Backend* backend = nullptr;
  const Session* session = nullptr;  // as in TextDecoder::Create
  int64_t rows = 1, capacity = 0;    // as in DecoderOptions
  DType compute = DType::kFloat32;
};
// Fails on a model that is no language model.
absl::StatusOr<std::unique_ptr<TextDecoder>> MakeDecoder(const TrainConfig& config, const Prompts& prompts,
                                                         const DecoderRequest& request);

}  // namespace onnxtrain
