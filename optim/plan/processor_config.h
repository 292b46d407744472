// How a model's pictures and sounds are prepared, where it does not say so itself: preprocessor_config.json or
// processor_config.json, in which transformers keeps it, and the usual heights of lines of text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "frontend/data/audio/spectrogram.h"
#include "frontend/data/image/image.h"
#include "optim/config/config.h"

namespace onnxtrain {

struct ProcessorConfig {
  std::string path;
  std::string normalize, resize;   // as in the configuration; "": not said
  int64_t height = 0, width = 0;   // of pictures; 0: not said
  std::optional<Filter> filter;    // that resizes pictures
  int64_t sample_rate = 0;         // of sounds in Hz; 0: not said
  bool standardize = false;        // sounds are scaled to zero mean and unit variance
  double padding = 0;              // value of the frames after the end of a sound
  SpectrogramOptions spectrogram;  // that the model takes in place of sounds, if it has a style
  int64_t frames = 0;              // of a spectrogram; 0: any number
};

// Reads the file in the folder of a model. All settings are empty if there is none, or if it is about something else.
ProcessorConfig ReadProcessorConfig(const std::string& model_path);

// Returns the heights that lines of text may have where a model leaves it open: that of `image_size`, else `known`, if
// it is not 0, and the usual ones.
std::vector<int64_t> ListLineHeights(const TrainConfig& config, int64_t known);

}  // namespace onnxtrain
