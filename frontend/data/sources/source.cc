#include "frontend/data/sources/source.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <ranges>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/rows.h"

namespace onnxtrain {
namespace {

struct ForeignKind {
  const char* what;
  std::vector<std::string> suffixes;
  const char* advice;
};

constexpr const char* kSaveArrays = "numpy.savez('data.npz', x=…, label=…) stores arrays";
constexpr const char* kSaveSheet = "save the sheet as CSV";

const std::vector<ForeignKind>& Kinds() {
  static const auto* kinds = new std::vector<ForeignKind>{
      {"TFRecord", {".tfrecord", ".tfrecords"}, kSaveArrays},
      {"a data base", {".sqlite", ".sqlite3", ".db", ".lmdb", ".mdb"}, "export its rows as CSV or JSON lines"},
      {"ORC", {".orc"}, "pandas.read_orc(FILE).to_csv('data.csv', index=False) converts it"},
      {"Avro", {".avro"}, "export its rows as CSV or JSON lines"},
      {"a file of Stata", {".dta"}, "pandas.read_stata(FILE).to_csv('data.csv', index=False) converts it"},
      {"a file of SPSS", {".sav"}, "pandas.read_spss(FILE).to_csv('data.csv', index=False) converts it"},
      {"a file of SAS", {".sas7bdat", ".xpt"}, "pandas.read_sas(FILE).to_csv('data.csv', index=False) converts it"},
      {"a file of R", {".rds", ".rdata", ".rda"}, "write.csv(x, 'data.csv', row.names=FALSE) writes a table in R"},
      {"a workbook", {".xlsx", ".xls", ".ods"}, kSaveSheet},
      {"a pickle", {".pkl", ".pickle", ".pt", ".pth"}, kSaveArrays},
      {"HDF5", {".h5", ".hdf5", ".hdf", ".nc"}, kSaveArrays},
      {"a file of MATLAB", {".mat"}, kSaveArrays},
      {"ARFF",
       {".arff"},
       "pandas.DataFrame(scipy.io.arff.loadarff(FILE)[0]).to_csv('data.csv', index=False) converts it"},
      {"LIBSVM's format",
       {".svm", ".libsvm", ".svmlight"},
       "x, y = sklearn.datasets.load_svmlight_file(FILE); numpy.savez('data.npz', x=x.toarray(), y=y) converts it"},
      {"a volume of DICOM or NIfTI", {".dcm", ".nii", ".nii.gz"}, kSaveArrays},
      {"a video", {".mp4", ".avi", ".mkv", ".mov", ".webm"}, "ffmpeg -i FILE pictures/%06d.png takes it apart"},
      {"MP3", {".mp3", ".m4a", ".aac"}, "ffmpeg -i FILE FILE.wav converts it"},
      {"an archive", {".zip", ".7z", ".rar"}, "unpack it"},
      {"a compressed archive",
       {".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"},
       "unpack it, or decompress it to a .tar"},
  };
  return *kinds;
}

const ForeignKind* FindKind(const std::string& path) {
  const auto kind =
      std::ranges::find_if(Kinds(), [&](const ForeignKind& k) { return HasSuffix(path, k.suffixes, false); });
  return kind == Kinds().end() ? nullptr : &*kind;
}

bool HasFolder(const std::string& path, const char* name) {
  std::error_code ignored;
  return std::filesystem::is_directory(std::filesystem::path(path) / name, ignored);
}

// Returns the kind of the first unsupported file in a folder; null if there is none.
const ForeignKind* FindForeignFile(const std::string& folder) {
  std::error_code ignored;
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator it(folder, ignored), end; it != end; it.increment(ignored))
    names.push_back(it->path().filename().string());
  std::ranges::sort(names);
  for (const std::string& name : names) {
    if (const ForeignKind* kind = FindKind(name); kind != nullptr) return kind;
  }
  return nullptr;
}

// Returns the table for training in a folder of tables; "" if there is none.
std::string FindTrainTable(const std::string& folder) {
  for (const char* name : {"train.csv", "train.tsv", "train.jsonl", "train.json", "train.csv.gz", "data.csv"}) {
    std::string path = (std::filesystem::path(folder) / name).string();
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored)) return path;
  }
  return "";
}

// Returns advice on how to convert such a file or folder; "" if its name says nothing.
std::string AdviseConversion(const std::string& path) {
  if (HasFolder(path, "images") && (HasFolder(path, "labels") || HasFolder(path, "annotations")))
    return "boxes (YOLO, COCO) are not read; masks are: `input` NAME=PATH/images `label` NAME=PATH/masks";
  if (const std::string table = FindTrainTable(path); !table.empty())
    return StrCat("a folder of tables is not read; name one: `data` ", table);
  const ForeignKind* kind = FindKind(path);
  if (kind == nullptr) kind = FindForeignFile(path);
  return kind == nullptr ? "" : StrCat(kind->what, " is not read; ", kind->advice);
}

using Row = std::shared_ptr<const Source>;

// All sources in the order in which they are asked. Thread-safe.
class Registry {
 public:
  static Registry& Get() {
    static auto* registry = new Registry;  // never destroyed, since other threads may open data at exit
    return *registry;
  }

  absl::Status Add(Source source) {
    const auto in_name = [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_'; };
    if (source.name.empty() || !std::ranges::all_of(source.name, in_name))
      return Invalid("source '", source.name, "': a name consists of letters, digits and '_'");
    if (source.open == nullptr) return Invalid("source '", source.name, "': it has no `open`");
    std::lock_guard lock(mutex_);
    if (std::ranges::any_of(rows_, [&](const Row& row) { return row->name == source.name; }))
      return absl::AlreadyExistsError(StrCat("source '", source.name, "': the name is taken"));
    rows_.insert(rows_.begin(), std::make_shared<const Source>(std::move(source)));
    return absl::OkStatus();
  }

  std::vector<Row> rows() const {
    std::lock_guard lock(mutex_);
    return rows_;
  }

 private:
  Registry() {
    for (Source& row : BuiltInSources()) rows_.push_back(std::make_shared<const Source>(std::move(row)));
  }

  mutable std::mutex mutex_;
  std::vector<Row> rows_;
};

template <typename Condition>
Row FindRow(const std::vector<Row>& rows, Condition condition) {
  const auto row = std::ranges::find_if(rows, [&](const Row& r) { return condition(*r); });
  return row == rows.end() ? nullptr : *row;
}

// Returns the source that "name:path" names. An existing file with the whole name takes precedence.
FoundSource FindNamed(const std::vector<Row>& rows, const std::string& path) {
  const size_t colon = path.find(':');
  std::error_code ignored;
  if (colon == std::string::npos || std::filesystem::exists(path, ignored)) return {};
  const std::string name = path.substr(0, colon);
  return {FindRow(rows, [&](const Source& s) { return s.name == name; }), path.substr(colon + 1)};
}

std::string ListKinds(const std::vector<Row>& rows) {
  std::vector<std::string> kinds;
  for (const Row& row : rows) {
    if (!row->what.empty()) kinds.push_back(row->what);  // sources without text are selected by name only
  }
  return absl::StrJoin(kinds, ", ");
}

}  // namespace

absl::Status RegisterSource(Source source) { return Registry::Get().Add(std::move(source)); }

absl::StatusOr<FoundSource> FindSource(const std::string& path) {
  const std::vector<Row> rows = Registry::Get().rows();
  if (FoundSource named = FindNamed(rows, path); named.source != nullptr) return named;
  Row row = FindRow(rows, [&](const Source& s) { return HasSuffix(path, s.suffixes, s.packed); });
  if (row == nullptr)
    row = FindRow(rows, [&](const Source& s) { return s.recognizes != nullptr && s.recognizes(path); });
  if (row != nullptr) return FoundSource{std::move(row), path};
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) RETURN_IF_ERROR(RegularFileSize(path).status());
  if (const std::string advice = AdviseConversion(path); !advice.empty()) return Invalid(path, ": ", advice);
  return Invalid(path, ": not a known kind of data (", ListKinds(rows), "); csv:", path,
                 " reads it as a table, whatever its name");
}

std::string SourcePath(const std::string& path) {
  FoundSource named = FindNamed(Registry::Get().rows(), path);
  return named.source == nullptr ? path : named.path;
}

bool HasSuffix(std::string_view path, const std::vector<std::string>& suffixes, bool packed) {
  const std::string lower = absl::AsciiStrToLower({path.data(), path.size()});
  std::string_view name = lower;
  for (const std::string_view packing : {".gz", ".zst"}) {
    if (packed && name.ends_with(packing)) name.remove_suffix(packing.size());
  }
  return std::ranges::any_of(suffixes, [&](const std::string& suffix) { return name.ends_with(suffix); });
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenDataset(const std::string& path, const DatasetOptions& options) {
  if (path.empty()) return Invalid("the path of the data is empty");
  ASSIGN_OR_RETURN(const FoundSource found, FindSource(path));
  return found.source->open(found.path, options);
}

}  // namespace onnxtrain
