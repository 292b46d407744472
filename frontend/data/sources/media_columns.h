// Adds the pictures and sounds of an archive or a table to its other columns.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/audio/sounds.h"
#include "frontend/data/image/picture_dataset.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

struct MediaColumns {
  std::vector<PictureColumn> pictures;
  std::vector<SoundColumn> sounds;                     // all but the first are ignored
  std::string (*describe)(const std::string& column);  // "(.png)": where a column is, for messages
};

// Returns a data set of the media and of the columns of `others`, which may be null if there are media. Leaves out
// pictures or sounds that the model takes none of, with a note, if `others` has columns besides the label. `notes` come
// before that note.
absl::StatusOr<std::shared_ptr<const Dataset>> AddMedia(const std::string& path, MediaColumns media,
                                                        std::shared_ptr<const Dataset> others,
                                                        const DatasetOptions& options,
                                                        std::vector<std::string> notes = {});

}  // namespace onnxtrain
