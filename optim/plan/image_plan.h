// What files of pictures must become for a model: size, channels and layout.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/data/image/image_options.h"
#include "frontend/data/image/picture_pairs.h"
#include "frontend/graph/model_input.h"
#include "optim/config/config.h"

namespace onnxtrain {

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

// Fails where a field for files of pictures is specified and no input is fed with some.
absl::Status CheckPictureFields(const TrainConfig& config, const std::string& path, bool feeds_pictures);

}  // namespace onnxtrain
