#include "frontend/data/sources/foreign.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/data/sources/source.h"

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
      {"Parquet", {".parquet"}, "pandas.read_parquet(FILE).to_csv('data.csv', index=False) converts it"},
      {"Feather", {".feather"}, "pandas.read_feather(FILE).to_csv('data.csv', index=False) converts it"},
      {"Arrow", {".arrow"}, "datasets.Dataset.from_file(FILE).to_json('data.jsonl') converts it"},
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

// The kind of the first file of a folder that is none of ours; null: there is none.
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

// A table for training in a folder of tables; "": there is none.
std::string FindTrainTable(const std::string& folder) {
  for (const char* name : {"train.csv", "train.tsv", "train.jsonl", "train.json", "train.csv.gz", "data.csv"}) {
    std::string path = (std::filesystem::path(folder) / name).string();
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored)) return path;
  }
  return "";
}

}  // namespace

std::string AdviseConversion(const std::string& path) {
  if (HasFolder(path, "images") && (HasFolder(path, "labels") || HasFolder(path, "annotations")))
    return "boxes (YOLO, COCO) are not read; masks are: `input` NAME=PATH/images `label` NAME=PATH/masks";
  if (const std::string table = FindTrainTable(path); !table.empty())
    return StrCat("a folder of tables is not read; name one: `data` ", table);
  const ForeignKind* kind = FindKind(path);
  if (kind == nullptr) kind = FindForeignFile(path);
  return kind == nullptr ? "" : StrCat(kind->what, " is not read; ", kind->advice);
}

}  // namespace onnxtrain
