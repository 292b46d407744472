// Folders of pictures: a sub-folder for each class, or pictures without classes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/image/picture_pipeline.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/path_table.h"

namespace onnxtrain {

// Tables with a column of paths to pictures, relative to the folder of the table.

// Whether a regular file begins as a picture does.
bool IsPictureFile(const std::string& path);

// Opens the table with the column of paths as a column of pictures; the others are as `open` makes them.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenPictureTable(const std::string& path, const OpenTableFn& open,
                                                                const PathColumn& column,
                                                                const DatasetOptions& options);

// Pictures in several folders that belong together by the stems of their names: photographs and masks.

struct FolderColumn {
  std::string name;    // of the column
  std::string folder;  // relative to the root of the data
  PictureKind kind = PictureKind::kColors;

  bool operator==(const FolderColumn&) const = default;
};

// Opens a column of pictures for each folder below `root`. Sample i of all of them has the same name, suffixes apart;
// fails where one is missing, or where two files of a folder differ in their suffixes alone.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenPicturePairs(const std::string& root,
                                                                const std::vector<FolderColumn>& folders,
                                                                const ImageOptions& options);

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
