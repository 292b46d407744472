#include "frontend/data/image/picture_pairs.h"

#include <filesystem>
#include <map>
#include <optional>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/image/image_folder.h"
#include "frontend/data/image/picture_dataset.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

using ByStem = std::map<std::string, std::string>;

absl::StatusOr<ByStem> ListByStem(const std::string& folder, std::vector<std::string>* notes) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListPictures(folder, notes));
  ByStem files;
  for (const std::string& name : names) {
    const auto [it, added] = files.emplace(fs::path(name).replace_extension().string(), name);
    if (!added) return Invalid(folder, ": ", it->second, " and ", name, " have the same stem");
  }
  return files;
}

// Names files by the stems of others where theirs are these with one ending more: "1_mask" for "1".
void DropCommonEnding(const ByStem& others, const std::string& folder, ByStem* files, std::vector<std::string>* notes) {
  if (others.empty() || files->contains(others.begin()->first)) return;
  const std::string& stem = others.begin()->first;
  std::optional<std::string> ending;
  for (auto it = files->lower_bound(stem); it != files->end() && it->first.starts_with(stem); ++it) {
    if (!ending.has_value() || it->first.size() - stem.size() < ending->size()) ending = it->first.substr(stem.size());
  }
  if (!ending.has_value() || std::string_view("_-. ").find((*ending)[0]) == std::string_view::npos) return;
  ByStem renamed;
  for (const auto& [name, file] : *files) {
    if (!name.ends_with(*ending)) return;
    renamed.emplace(name.substr(0, name.size() - ending->size()), file);
  }
  notes->push_back(StrCat("pictures of ", folder, " belong to those without '", *ending, "'"));
  *files = std::move(renamed);
}

absl::Status CheckCounterparts(const std::string& folder, const ByStem& files, const std::string& other_folder,
                               const ByStem& others) {
  for (const auto& [stem, name] : files) {
    if (!others.contains(stem))
      return Invalid((fs::path(folder) / name).string(), ": there is no picture ", stem, ".* in ", other_folder);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> OpenPicturePairs(const std::string& root,
                                                                const std::vector<FolderColumn>& folders,
                                                                const ImageOptions& options) {
  CHECK(!folders.empty());
  std::vector<std::string> notes;
  std::vector<PictureColumn> columns;
  ByStem first;
  std::string first_folder;
  for (const FolderColumn& column : folders) {
    const std::string folder = (fs::path(root) / column.folder).lexically_normal().string();
    ASSIGN_OR_RETURN(ByStem files, ListByStem(folder, &notes));
    if (columns.empty()) first = files, first_folder = folder;
    DropCommonEnding(first, folder, &files, &notes);
    RETURN_IF_ERROR(CheckCounterparts(first_folder, first, folder, files));
    RETURN_IF_ERROR(CheckCounterparts(folder, files, first_folder, first));
    std::vector<std::string> names;
    for (auto& [stem, name] : files) names.push_back(std::move(name));
    columns.push_back({.name = column.name,
                       .kind = column.kind,
                       .options = options,
                       .files = FilesInFolder(folder, std::move(names))});
  }
  return MakePictureDataset(root, std::move(columns), nullptr, -1, false, std::move(notes));
}

}  // namespace onnxtrain
