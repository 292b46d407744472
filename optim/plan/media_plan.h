// Plans what files of pictures and of sound must become for a model: size, channels, layout, rate and length.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/audio/audio_options.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/data/image/array_pictures.h"
#include "frontend/data/image/image_folder.h"
#include "frontend/data/image/image_options.h"
#include "frontend/graph/model_input.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"

namespace onnxtrain {

// What files of pictures must become for a model: size, channels and layout.

// Plans for the first input that can be fed with pictures: image_size, resize and channel_order where they are
// specified, else as `before` has it, else as the input has it. `dims` are the values of named dimensions. Where that
// leaves the size open, ImageOptions::problem says so. Fails on fields that contradict the model.
absl::StatusOr<ImageOptions> PlanImages(const TrainConfig& config, const std::vector<ModelInput>& inputs,
                                        const std::map<std::string, int64_t>& dims,
                                        const std::optional<Preprocess>& before);

PicturePreprocess DescribeImages(const ImageOptions& options, int64_t size_multiple,
                                 const std::vector<FolderColumn>& folders);

// Is an input fed with files of pictures?
bool FeedsPictures(const BoundData& data);

// What files of sound must become for a model: rate, channels and length.

// Plans for the first input that can be fed with sounds, [N,T], [N,C,T] or [N,T,1]: sample_rate and audio_length where
// they are specified, else as `before` has it, else as the input and the model's metadata (`sample_rate`) have it.
// `dims` are the values of named dimensions. Fails on fields that contradict the model.
absl::StatusOr<AudioOptions> PlanAudio(const TrainConfig& config, const OnnxModel& model,
                                       const std::map<std::string, int64_t>& dims,
                                       const std::optional<Preprocess>& before);

// What the sounds were made to that feed an input; nullopt where none are fed.
std::optional<AudioPreprocess> DescribeAudio(const BoundData& data);

// `augment` for pictures in arrays.

// The columns of inputs that are changed, which have one size.
struct AugmentedArrays {
  std::vector<int> columns;
  PixelLayout layout;
};

// Makes training change the samples that the inputs are fed with, where they are pictures, and labels of their height
// and width alike. nullopt: `augment` is not asked for, or no input is fed with pictures. Fails, with `path` in front,
// on values that cannot be changed so.
absl::StatusOr<std::optional<AugmentedArrays>> AugmentBoundArrays(const TrainConfig& config, const std::string& path,
                                                                  BoundData* data);

}  // namespace onnxtrain
