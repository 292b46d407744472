#include "frontend/data/audio/audio_folder.h"

#include <algorithm>
#include <filesystem>

#include "frontend/base/status.h"
#include "frontend/data/audio/sound_dataset.h"
#include "frontend/data/audio/sound_file.h"
#include "frontend/data/bind/class_spelling.h"
#include "frontend/data/sources/folder.h"
#include "frontend/data/sources/memory_dataset.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

struct SoundFile {
  std::string name;  // within the folder
  int64_t label = 0;
};

// Lists the sound files of a folder, or of the folders in it.
struct Listing {
  std::vector<std::string> classes;  // empty: the files have none
  std::vector<SoundFile> files;
};

absl::StatusOr<Listing> ListSounds(const std::string& path) {
  Listing listing;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(path));
  for (const std::string& name : names) {
    std::error_code ignored;
    const fs::path folder = fs::path(path) / name;
    if (IsSoundName(name)) listing.files.push_back({name});
    if (!fs::is_directory(folder, ignored)) continue;
    ASSIGN_OR_RETURN(const std::vector<std::string> inside, ListFolder(folder.string()));
    const size_t before = listing.files.size();
    for (const std::string& file : inside) {
      if (IsSoundName(file)) listing.files.push_back({StrCat(name, "/", file), std::ssize(listing.classes)});
    }
    if (listing.files.size() > before) listing.classes.push_back(name);
  }
  const bool mixed = !listing.classes.empty() && std::ranges::any_of(listing.files, [](const SoundFile& f) {
    return f.name.find('/') == std::string::npos;
  });
  if (mixed) return Invalid(path, ": has sound files beside the folders of classes");
  if (listing.files.empty()) return Invalid(path, ": the folder holds no sound files");
  return listing;
}

// Numbers the classes as `names` has them.
absl::Status RenumberClasses(const std::string& path, const std::vector<std::string>& names, Listing* listing) {
  if (names.empty() || listing->classes.empty()) return absl::OkStatus();
  for (SoundFile& file : listing->files) {
    const std::string& name = listing->classes[file.label];
    file.label = std::ranges::find(names, name) - names.begin();
    if (file.label == std::ssize(names))
      return Invalid(path, ": '", name, "' is not among the ", names.size(), " classes",
                     ClassSpellings(names).Suggest(name), " (`class_map` FILE gives others, and their order)");
  }
  listing->classes = names;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Dataset>> MakeLabels(const Listing& listing) {
  HostTensor labels({DType::kInt64, {std::ssize(listing.files)}});
  for (int64_t i = 0; i < labels.size(); ++i) labels.SetInt(i, listing.files[i].label);
  std::vector<NamedTensor> columns;
  columns.push_back({.name = "label", .tensor = std::move(labels), .classes = listing.classes});
  return MakeMemoryDataset(std::move(columns), [](int64_t i) { return StrCat("sample ", i); });
}

}  // namespace

bool IsAudioFolder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) && ListSounds(path).ok();
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenAudioFolder(const std::string& path, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(Listing listing, ListSounds(path));
  RETURN_IF_ERROR(RenumberClasses(path, options.folder_classes, &listing));
  std::shared_ptr<const Dataset> labels;
  if (!listing.classes.empty()) {
    ASSIGN_OR_RETURN(labels, MakeLabels(listing));
  }
  SoundFiles files{.column = "audio", .root = path};
  for (SoundFile& file : listing.files) files.names.push_back(std::move(file.name));
  return MakeSoundDataset(std::move(files), std::move(labels), -1, options);
}

}  // namespace onnxtrain
