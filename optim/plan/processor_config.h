// preprocessor_config.json, in which transformers keeps how a model's pictures or sounds are prepared.
#pragma once

#include <cstdint>
#include <string>

namespace onnxtrain {

struct ProcessorConfig {
  std::string path;
  std::string normalize, resize;  // as in the configuration; "": not said
  int64_t height = 0, width = 0;  // of pictures; 0: not said
  int64_t sample_rate = 0;        // of sounds in Hz; 0: not said
};

// Reads the file in the folder of a model. All settings are empty if there is none, or if it is about something else.
ProcessorConfig ReadProcessorConfig(const std::string& model_path);

}  // namespace onnxtrain
