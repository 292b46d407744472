#include "frontend/data/sources/media_columns.h"

#include <utility>

#include "frontend/base/status.h"

namespace onnxtrain {

absl::StatusOr<std::shared_ptr<const Dataset>> AddMedia(const std::string& path, MediaColumns media,
                                                        std::shared_ptr<const Dataset> others,
                                                        const DatasetOptions& options, std::vector<std::string> notes) {
  const bool has_inputs = others != nullptr && others->columns().size() > 1;
  const auto leave_out = [&](const char* kind, const std::string& column) {
    notes.push_back(
        StrCat(path, ": the ", kind, " ", media.describe(column), " are left out, as the model takes none"));
  };
  if (!media.sounds.empty() && !options.audio.wanted && has_inputs) {
    leave_out("sounds", media.sounds[0].name);
  } else if (!media.sounds.empty()) {
    ASSIGN_OR_RETURN(others, MakeSoundDataset(std::move(media.sounds[0]), others, -1, options));
  }
  const bool wanted = options.images.wanted || !has_inputs;
  if (!media.pictures.empty() && wanted)
    return MakePictureDataset(path, std::move(media.pictures), others, -1, others != nullptr, std::move(notes));
  if (!media.pictures.empty()) leave_out("pictures", media.pictures[0].name);
  return WithNotes(others, std::move(notes));
}

}  // namespace onnxtrain
