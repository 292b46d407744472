#include "frontend/data/image/picture_dataset.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/bind/labels.h"
#include "frontend/data/bind/names.h"
#include "frontend/data/image/decode.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/source.h"
#include "frontend/data/sources/transcripts.h"

namespace onnxtrain {

bool IsPictureFile(const std::string& path) {
  if (!IsRegularFile(path)) return false;  // a FIFO would block
  uint8_t start[32] = {};
  std::ifstream in(path, std::ios::binary);
  in.read(reinterpret_cast<char*>(start), sizeof(start));
  return IsPicture({start, static_cast<size_t>(in.gcount())});
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenPictureTable(const std::string& path, const OpenTableFn& open,
                                                                const PathColumn& column,
                                                                const DatasetOptions& options) {
  ASSIGN_OR_RETURN(PathTable table, OpenPathTable(path, open, column, options));
  std::vector<PictureColumn> pictures;
  pictures.push_back(
      {.name = column.name, .options = options.images, .files = FilesInFolder(table.folder, std::move(table.paths))});
  return MakePictureDataset(path, std::move(pictures), table.table, table.column, true);
}

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

// Removes a common ending from the stems of files if the rest are the stems of `others`: "1_mask" becomes "1".
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

namespace {

namespace fs = std::filesystem;

constexpr int kMaxDepth = 16;        // symbolic links may form cycles
constexpr size_t kFirstFiles = 100;  // number of files that IsImageFolder checks

// Returns true for files that operating systems create in folders.
bool IsSystemFile(const std::string& name) {
  static const std::set<std::string> kNames = {"Thumbs.db", "ehthumbs.db", "desktop.ini", "__MACOSX"};
  return name.starts_with('.') || kNames.contains(name);
}

bool HasPictureSuffix(const std::string& name) {
  static const std::set<std::string> kSuffixes = {".jpg", ".jpeg", ".jpe",  ".jfif", ".png", ".bmp",
                                                  ".dib", ".gif",  ".webp", ".tif",  ".tiff"};
  std::string suffix = fs::path(name).extension().string();
  std::ranges::transform(suffix, suffix.begin(), [](unsigned char c) { return std::tolower(c); });
  return kSuffixes.contains(suffix);
}

struct Entry {
  std::string name;
  bool folder;
};
absl::StatusOr<std::vector<Entry>> ListEntries(const fs::path& folder) {
  std::vector<Entry> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    std::string name = it->path().filename().string();
    if (!IsSystemFile(name)) entries.push_back({std::move(name), it->is_directory(ignored)});
  }
  if (error) return Invalid(folder.string(), ": ", error.message());
  std::ranges::sort(entries, {}, &Entry::name);
  return entries;
}

class Lister {
 public:
  explicit Lister(fs::path root, size_t max_files = SIZE_MAX) : root_(std::move(root)), max_files_(max_files) {}

  absl::Status Walk(const std::string& below, int depth = 0) {
    if (depth > kMaxDepth) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::vector<Entry> entries, ListEntries(root_ / below));
    for (const Entry& entry : entries) {
      if (seen_ >= max_files_) return absl::OkStatus();
      const std::string name = below.empty() ? entry.name : StrCat(below, "/", entry.name);
      if (entry.folder) {
        RETURN_IF_ERROR(Walk(name, depth + 1));
      } else {
        ++seen_;
        Add(name);
      }
    }
    return absl::OkStatus();
  }

  std::vector<std::string> names;
  std::vector<std::string> others;  // files that are not pictures

 private:
  void Add(const std::string& name) {
    const bool picture = HasPictureSuffix(name) || IsPictureFile((root_ / name).string());
    (picture ? names : others).push_back(name);
  }

  fs::path root_;
  size_t max_files_, seen_ = 0;
};

void NoteOthers(const std::string& folder, const std::vector<std::string>& others, std::vector<std::string>* notes) {
  if (others.empty()) return;
  notes->push_back(StrCat("left out ", others.size(), others.size() == 1 ? " file" : " files", " of ", folder,
                          " that are no pictures: ", others[0], others.size() > 1 ? ", …" : ""));
}

// Returns true if the only entry is a folder "train".
bool HasOnlyTrain(const std::string& path) {
  const auto entries = ListEntries(path);
  return entries.ok() && entries->size() == 1 && (*entries)[0].folder && (*entries)[0].name == "train";
}

// Descends into folders that contain only one folder, as unpacked archives do.
std::string FindOnlyFolder(std::string path) {
  for (int depth = 0; depth < kMaxDepth; ++depth) {
    const auto entries = ListEntries(path);
    if (!entries.ok() || entries->size() != 1 || !(*entries)[0].folder) break;
    std::string below = (fs::path(path) / (*entries)[0].name).string();
    const auto inner = ListEntries(below);
    if (!inner.ok() || inner->empty() || !std::ranges::all_of(*inner, &Entry::folder)) break;
    path = std::move(below);
  }
  return path;
}

// Returns the folder of the selected part, or the folder itself if it has no parts.
absl::StatusOr<std::string> FindPart(const std::string& given, bool eval_split) {
  const std::string path = FindOnlyFolder(given);
  if (HasOnlyTrain(path)) return (fs::path(path) / "train").string();
  if (!HasEvalImages(path)) return path;
  if (!eval_split) return (fs::path(path) / "train").string();
  for (const std::string_view part : kEvalPartNames) {
    if (fs::is_directory(fs::path(path) / part)) return (fs::path(path) / part).string();
  }
  return path;
}

std::string ListClasses(const std::vector<std::string>& classes) {
  std::string text;
  for (size_t i = 0; i < classes.size() && i < 8; ++i) StrAppend(&text, i == 0 ? "" : ", ", classes[i]);
  return classes.size() > 8 ? text + ", …" : text;
}

// Returns the first of `names` that is in `usual`, ignoring case; "" if there is none.
std::string FindName(const std::set<std::string>& names, const std::set<std::string>& usual) {
  const auto it =
      std::ranges::find_if(names, [&](const std::string& name) { return usual.contains(absl::AsciiStrToLower(name)); });
  return it == names.end() ? "" : *it;
}

// Fails if the sub-folders look like pictures and their masks instead of classes.
absl::Status CheckAreClasses(const std::string& folder, const std::set<std::string>& classes) {
  const std::string pictures = FindName(classes, {"images", "image", "imgs", "jpegimages", "photos", "inputs"});
  const std::string masks = FindName(classes, {"masks", "mask", "labels", "annotations", "segmentationclass",
                                               "segmentationobject", "segmentations", "ground_truth", "gt", "targets"});
  if (pictures.empty() || masks.empty()) return absl::OkStatus();
  return Invalid(folder, ": the folders '", pictures, "' and '", masks,
                 "' are not taken for classes: `input` NAME=", pictures, " `label` NAME=", masks,
                 " pairs pictures with their masks");
}

// Makes labels from the first folder of each picture's path.
absl::StatusOr<NamedTensor> MakeLabels(const std::string& folder, const std::vector<std::string>& names,
                                       const std::vector<std::string>& wanted) {
  std::vector<std::string> of;
  for (const std::string& name : names) of.push_back(name.substr(0, name.find('/')));
  const std::set<std::string> found(of.begin(), of.end());
  RETURN_IF_ERROR(CheckAreClasses(folder, found));
  NamedTensor label{.name = "label", .classes = wanted};
  if (wanted.empty()) label.classes.assign(found.begin(), found.end());
  std::map<std::string, int64_t> index;
  for (const std::string& name : label.classes) index.emplace(name, index.size());
  std::vector<int64_t> values;
  for (const std::string& name : of) {
    const auto it = index.find(name);
    if (it == index.end())
      return Invalid(folder, ": the folder '", name, "' is none of the model's ", wanted.size(), " classes (",
                     ListClasses(wanted), ")", ClassSpellings(wanted).Suggest(name),
                     " (`num_classes` auto makes a new last layer for the classes of the data)");
    values.push_back(it->second);
  }
  label.tensor = HostTensor::FromInts(values);
  return label;
}

// Returns the table of file names and labels in a folder of pictures, as in Hugging Face's image folders; "" if none.
std::string FindMetadata(const std::string& folder) {
  for (const char* name : {"metadata.csv", "metadata.jsonl"}) {
    std::string path = (fs::path(folder) / name).string();
    if (IsRegularFile(path)) return path;
  }
  return "";
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListPictures(const std::string& folder, std::vector<std::string>* notes) {
  Lister lister(folder);
  RETURN_IF_ERROR(lister.Walk(""));
  RemoveTranscripts(lister.names, &lister.others);
  NoteOthers(folder, lister.others, notes);
  if (lister.names.empty()) return Invalid(folder, ": there are no pictures in it");
  std::ranges::sort(lister.names);
  return std::move(lister.names);
}

bool IsImageFolder(const std::string& path) {
  std::error_code ignored;
  Lister lister(path, kFirstFiles);
  if (!fs::is_directory(path, ignored) || !lister.Walk("").ok()) return false;
  RemoveTranscripts(lister.names, &lister.others);
  return lister.names.size() > lister.others.size();
}

bool HasEvalImages(const std::string& given) {
  const std::string path = FindOnlyFolder(given);
  std::error_code ignored;
  if (!fs::is_directory(fs::path(path) / "train", ignored)) return false;
  const auto exists = [&](std::string_view part) { return fs::is_directory(fs::path(path) / part, ignored); };
  return std::ranges::any_of(kEvalPartNames, exists) && IsImageFolder((fs::path(path) / "train").string());
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenImageFolder(const std::string& path, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(const std::string folder, FindPart(path, options.eval_split));
  std::vector<std::string> notes;
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListPictures(folder, &notes));
  std::shared_ptr<const Dataset> labels;
  const auto in_folder = [](const std::string& name) { return name.find('/') != std::string::npos; };
  const auto classified = std::ranges::count_if(names, in_folder);
  if (const std::string table = FindMetadata(folder); classified == 0 && !table.empty())
    return OpenDataset(table, options);
  if (options.text_labels) {
    if (const std::string table = FindTextTable(folder); !table.empty()) return OpenDataset(table, options);
    ASSIGN_OR_RETURN(labels, OpenTranscripts(folder, names));
  } else if (classified > 0) {
    const auto beside = std::ranges::find_if_not(names, in_folder);
    if (beside != names.end())
      return Invalid(folder, ": ", *beside, " lies beside the folders of the classes: it has no class");
    ASSIGN_OR_RETURN(NamedTensor label, MakeLabels(folder, names, options.folder_classes));
    std::vector<NamedTensor> columns;
    columns.push_back(std::move(label));
    ASSIGN_OR_RETURN(labels, MakeMemoryDataset(std::move(columns), [](int64_t i) { return StrCat("sample ", i); }));
  }
  std::vector<PictureColumn> pictures;
  pictures.push_back({.name = "image", .options = options.images, .files = FilesInFolder(folder, std::move(names))});
  return MakePictureDataset(path, std::move(pictures), std::move(labels), -1, false, std::move(notes));
}

}  // namespace onnxtrain
