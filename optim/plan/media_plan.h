// Plans the decoding of picture and sound files for a model: size, channels, layout, sample rate and length.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/data/image/array_pictures.h"
#include "frontend/data/image/image_options.h"
#include "frontend/data/image/picture_dataset.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/graph/model_input.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"

namespace onnxtrain {

// Plans pictures for the first input that they can feed: image_size, resize and channel_order come from the
// configuration, otherwise from `before`, otherwise from the input. `dims` are the values of named dimensions. If the
// size stays open, ImageOptions::problem says so. Fails on fields that contradict the model.
absl::StatusOr<ImageOptions> PlanImages(const TrainConfig& config, const std::vector<ModelInput>& inputs,
                                        const std::map<std::string, int64_t>& dims,
                                        const std::optional<Preprocess>& before);

PicturePreprocess DescribeImages(const ImageOptions& options, int64_t size_multiple,
                                 const std::vector<FolderColumn>& folders);

// Returns true if picture files feed an input.
bool FeedsPictures(const BoundData& data);

// Plans sounds for the first input that they can feed, [N,T], [N,C,T] or [N,T,1]: sample_rate and audio_length come
// from the configuration, otherwise from `before`, otherwise from the input and the model's metadata (`sample_rate`).
// `dims` are the values of named dimensions. Fails on fields that contradict the model.
absl::StatusOr<AudioOptions> PlanAudio(const TrainConfig& config, const OnnxModel& model,
                                       const std::map<std::string, int64_t>& dims,
                                       const std::optional<Preprocess>& before);

// Describes the sounds that feed an input: sample rate, channels and length; nullopt if none do.
std::optional<AudioPreprocess> DescribeAudio(const BoundData& data);

// The columns of inputs that `augment` changes, which have one size.
struct AugmentedArrays {
  std::vector<int> columns;
  PixelLayout layout;
};

// Makes training augment the samples of inputs that are pictures in arrays, and labels of their height and width alike.
// Returns nullopt if `augment` is not set or no input is fed with pictures. Fails on values that cannot be augmented;
// the error begins with `path`.
absl::StatusOr<std::optional<AugmentedArrays>> AugmentBoundArrays(const TrainConfig& config, const std::string& path,
                                                                  BoundData* data);

}  // namespace onnxtrain
