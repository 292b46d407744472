// What files of sound must become for a model: rate, channels and length.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/audio/audio_options.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"

namespace onnxtrain {

// Plans for the first input that can be fed with sounds, [N,T], [N,C,T] or [N,T,1]: sample_rate and audio_length where
// they are specified, else as `before` has it, else as the input and the model's metadata (`sample_rate`) have it.
// `dims` are the values of named dimensions. Fails on fields that contradict the model.
absl::StatusOr<AudioOptions> PlanAudio(const TrainConfig& config, const OnnxModel& model,
                                       const std::map<std::string, int64_t>& dims,
                                       const std::optional<Preprocess>& before);

// What the sounds were made to that feed an input; nullopt where none are fed.
std::optional<AudioPreprocess> DescribeAudio(const BoundData& data);

// Fails where a field for sounds is specified and no input is fed with some.
absl::Status CheckAudioFields(const TrainConfig& config, const std::string& path, bool feeds_sounds);

}  // namespace onnxtrain
