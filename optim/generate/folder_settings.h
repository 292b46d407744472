// Settings for writing text in the folder of a model: generation_config.json, genai_config.json and config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "frontend/data/sources/json.h"
#include "optim/config/config.h"
#include "optim/generate/write_text.h"

namespace onnxtrain {

// Returns a value of a file of settings, at the top or in its "model"; null if there is none.
OrderedJson FindSetting(const std::filesystem::path& path, const char* name);

// Returns the most tokens of a text that the model takes; 0: not known.
int64_t FindGreatestLength(const std::filesystem::path& folder);

// Samples as generation_config.json says (do_sample, temperature, top_p, top_k), unless `temperature` is specified.
// Returns a line about it, or "".
std::string TakeFolderSampling(const TrainConfig& config, SamplingSpec* sampling);

}  // namespace onnxtrain
