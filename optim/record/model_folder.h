// The folder of a model as the Hugging Face hub, optimum and onnxruntime-genai lay it out: the model, the settings of
// its tokenizer, its preprocessing and its generation.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/data/text/tokenizer.h"

namespace onnxtrain {

inline constexpr char kModelFolder[] = "model";  // in the folder of a run

// A model that replaces that of a folder.
struct TrainedModel {
  std::string original;                  // path of the model that was trained
  std::string file;                      // path of the result
  Preprocess preprocess;                 // of the run
  const Tokenizer* tokenizer = nullptr;  // of the run; null: none
};

// Writes a folder with the layout of the original model's, which FindModelFolder (optim/plan/folders.h) must find:
// copies of its settings, the result under the name of the original, and preprocess.json. Shares the result's bytes
// where the file system can. Classes of the run replace those of config.json.
absl::Status WriteModelFolder(const TrainedModel& trained, const std::string& folder);

// Removes what WriteModelFolder wrote, and the folder if nothing else is in it.
absl::Status RemoveModelFolder(const std::string& folder);

}  // namespace onnxtrain
