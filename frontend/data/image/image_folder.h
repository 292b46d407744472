// Folders of pictures: a sub-folder for each class, or pictures without classes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Names of the pictures in a folder and in all folders below it, relative to it, sorted bytewise. What has the suffix
// of a picture counts as one, whatever it holds; other files are looked into. Hidden files and those that operating
// systems leave behind are passed over; the first of all other files is named in `notes`.
absl::StatusOr<std::vector<std::string>> ListPictures(const std::string& folder, std::vector<std::string>* notes);

// Does the folder hold pictures, also in folders below it? Most of its first files must be some.
bool IsImageFolder(const std::string& path);

// Is there a part for training and one for evaluation: folders "train" and "val", "valid", "validation", "test", "eval"
// or "dev"?
bool HasEvalImages(const std::string& path);

// Opens a folder of pictures with columns "image" and, where it has sub-folders, "label": indices of the sub-folders as
// DatasetOptions::folder_classes has them, else sorted bytewise. A folder with parts is one of them, as
// DatasetOptions::eval_split says; one that holds a folder "train" alone is that. Without sub-folders, a table
// metadata.csv or metadata.jsonl is opened, which names the pictures.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenImageFolder(const std::string& path, const DatasetOptions& options);

}  // namespace onnxtrain
