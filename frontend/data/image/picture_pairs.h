// Pictures in several folders that belong together by the stems of their names: photographs and masks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/image/picture_pipeline.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

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

}  // namespace onnxtrain
