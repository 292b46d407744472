// Data sets of pictures in separate files: folders with or without a folder per class, tables with paths, and folders
// that are paired by file name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/image/picture_pipeline.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/media_files.h"
#include "frontend/data/sources/path_table.h"

namespace onnxtrain {

struct PictureColumn {
  std::string name;
  PictureKind kind = PictureKind::kColors;
  ImageOptions options;
  std::shared_ptr<const MediaFiles> files;
};

// Makes a data set of the columns `pictures` and those of `table` (may be null) except `leave_out` (-1: none), which
// have the same number of samples. Describes a sample by its row in the table or by its first file. For pictures that
// keep their sizes (ImageOptions::sizes) reads all headers; samples whose pictures differ in size cannot be read.
// Fails, with prefix `name`, if the size of pictures is unknown.
absl::StatusOr<std::shared_ptr<const Dataset>> MakePictureDataset(const std::string& name,
                                                                  std::vector<PictureColumn> pictures,
                                                                  std::shared_ptr<const Dataset> table, int leave_out,
                                                                  bool describe_by_table,
                                                                  std::vector<std::string> notes = {});

// Returns true for a regular file that begins like a picture.
bool IsPictureFile(const std::string& path);

// Opens a table with a column of paths, relative to the table's folder, as a column of pictures; `open` opens the other
// columns.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenPictureTable(const std::string& path, const OpenTableFn& open,
                                                                const PathColumn& column,
                                                                const DatasetOptions& options);

struct FolderColumn {
  std::string name;    // name of the data set column
  std::string folder;  // relative to the root of the data
  PictureKind kind = PictureKind::kColors;

  bool operator==(const FolderColumn&) const = default;
};

// Opens a column of pictures for each folder below `root`, such as photographs and masks. Files of a sample have the
// same name without suffix; fails if one is missing or if a folder has two files that differ only in the suffix.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenPicturePairs(const std::string& root,
                                                                const std::vector<FolderColumn>& folders,
                                                                const ImageOptions& options);

// Lists the pictures in a folder and its sub-folders as relative paths, sorted bytewise. Files with a picture's suffix
// are not opened; others are recognized by content. Skips hidden files and those that operating systems create; `notes`
// names the first of other files.
absl::StatusOr<std::vector<std::string>> ListPictures(const std::string& folder, std::vector<std::string>* notes);

// Returns true if most of the first files in the folder and its sub-folders are pictures.
bool IsImageFolder(const std::string& path);

// Returns true if there is a folder "train" and one of "val", "valid", "validation", "test", "eval" or "dev".
bool HasEvalImages(const std::string& path);

// Opens a folder of pictures with column "image" and, if there are sub-folders, "label": indices of the sub-folders in
// DatasetOptions::folder_classes, else in their bytewise order. In a folder with parts, opens the one that
// DatasetOptions::eval_split selects, or the only one, "train". Without sub-folders, opens metadata.csv or
// metadata.jsonl, a table that names the pictures, if there is one.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenImageFolder(const std::string& path, const DatasetOptions& options);

}  // namespace onnxtrain
