// Finds models, tokenizers and pictures in folders.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/data/image/picture_dataset.h"
#include "optim/config/config.h"

namespace onnxtrain {

// A model in a folder.
struct FoundModel {
  std::string path;
  std::vector<std::string> others = {};  // the other models of the folder
};

// Returns the model in a folder, as laid out by the Hugging Face hub and exporters: the decoder that genai_config.json
// names, model.onnx, onnx/model.onnx, or in either place the only .onnx file, of several the one whose name tells of
// the most bits (model_fp16.onnx before model_q4.onnx), and of a decoder's the one without a cache. If there are
// several, fails and lists them. Returns a path that is no folder unchanged.
absl::StatusOr<FoundModel> FindModelFile(const std::string& path);

inline constexpr char kTokenizerFolder[] = "tokenizer";  // tokenizer folder in the folder of a run

// Returns the folder with the model's tokenizer files: the model's folder, its subfolder "tokenizer", which runs write,
// or the parent of a folder "onnx"; "" if none has any.
std::string FindTokenizerFolder(const std::string& model);

// Returns the folder that the model belongs to, which has settings of it: its own folder, or the parent of a folder
// "onnx". Returns "" if there are none.
std::string FindModelFolder(const std::string& model);

// Returns the names of the classes in the config.json (id2label) of the folder that a model belongs to. Empty if there
// are none, or only those that transformers writes by default (LABEL_0).
std::vector<std::string> ReadClassNames(const std::string& model);

// Sets `data` to "." if it is empty and an input or label names a folder of pictures (`input` x=images/, `label`
// mask=masks/) in the working directory. Such folders are relative to `data`.
TrainConfig WithFolderRoot(TrainConfig config);

// Fails if `data` is empty or a .npy file, and an input or label names a .npy file: arrays are columns of a folder of
// such files.
absl::Status CheckNamesNoArrayFile(const TrainConfig& config);

// Returns the columns that name folders below `root`; if there are none, those of `before`. `want_label`: includes the
// label's column; otherwise `root` may itself be the folder of pictures.
std::vector<FolderColumn> FindFolderColumns(const TrainConfig& config, const std::optional<Preprocess>& before,
                                            const std::string& root, bool want_label);

// Reduces the label to its column name: `label` mask=masks/ becomes mask.
TrainConfig WithLabelColumns(TrainConfig config);

}  // namespace onnxtrain
