// Finds models, tokenizers and pictures in folders.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/data/image/image_folder.h"
#include "optim/config/config.h"

namespace onnxtrain {

// Models and tokenizers in folders, as Hugging Face's hub and exporters lay them out: model.onnx or onnx/model.onnx
// beside tokenizer.json.

// Returns the model in a folder: model.onnx, onnx/model.onnx, or the only .onnx file in either place. Fails where there
// are several, and lists them. Returns paths that are no folders unchanged.
absl::StatusOr<std::string> FindModelFile(const std::string& path);

inline constexpr char kTokenizerFolder[] = "tokenizer";  // in the folder of a run

// Returns the folder of a model's tokenizer files: that of the model, its folder "tokenizer", which runs write, or the
// one above a folder "onnx"; "": none has any.
std::string FindTokenizerFolder(const std::string& model);

// Inputs and labels that are folders of pictures: `input` x=images/ and `label` mask=masks/.

// Folders are relative to `data`; without it, to the working directory: sets data to "." where an input or label names
// a folder there.
TrainConfig WithFolderRoot(TrainConfig config);

// Fails where an input or label without `data` names a .npy file: arrays are columns of a folder of such files.
absl::Status CheckNamesNoArrayFile(const TrainConfig& config);

// The columns that name folders below `root`; without any, those of `before`. `want_label`: also that of the label;
// without it, `root` may itself be the folder of the pictures.
std::vector<FolderColumn> FindFolderColumns(const TrainConfig& config, const std::optional<Preprocess>& before,
                                            const std::string& root, bool want_label);

// The label as the name of a column: `label` mask=masks/ is the column mask.
TrainConfig WithLabelColumns(TrainConfig config);

}  // namespace onnxtrain
