#include "frontend/data/arrow/arrow_table.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 40;

// Runtimes of sanitizers do not support deep binding.
#ifdef ONNXTRAIN_SANITIZER
constexpr int kBinding = 0;
#else
constexpr int kBinding = RTLD_DEEPBIND;
#endif

// Returns the path of the library. Test programs are in a sibling of the folder of libraries.
std::filesystem::path FindLibrary() {
  const std::filesystem::path name = "libonnxtrain_arrow.so", beside = LibraryFolder() / name;
  std::error_code ignored;
  return std::filesystem::exists(beside, ignored) ? beside : LibraryFolder() / ".." / "lib" / name;
}

// Loads the library, which is never closed. It prefers its own symbols to those of this process, since Arrow contains
// other versions of some libraries.
absl::StatusOr<OpenArrowFn> LoadLibrary() {
  const std::filesystem::path path = FindLibrary();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    return absl::UnavailableError(
        "Parquet and Arrow need the component libonnxtrain_arrow.so, which is not installed: tools/setup_arrow.sh "
        "FOLDER brings Apache Arrow and prints how to build it");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | kBinding);
  void* open = library == nullptr ? nullptr : dlsym(library, "OnnxtrainOpenArrow");
  if (open == nullptr) return absl::UnavailableError(StrCat(path.string(), " cannot be loaded: ", dlerror()));
  return reinterpret_cast<OpenArrowFn>(open);
}

absl::StatusOr<std::unique_ptr<ArrowFile>> OpenFile(const std::string& path, int64_t max_bytes) {
  static const auto* const library = new absl::StatusOr<OpenArrowFn>(LoadLibrary());
  RETURN_IF_ERROR(library->status());
  std::string error;
  std::unique_ptr<ArrowFile> file((**library)(path, max_bytes, &error));
  if (file == nullptr) return Invalid(PrintableLine(error));
  return file;
}

bool SameType(const ArrowColumn& a, const ArrowColumn& b) {
  return a.name == b.name && a.kind == b.kind && a.dtype == b.dtype && a.rank == b.rank;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ArrowTable>> ArrowTable::Open(const std::vector<std::string>& paths,
                                                                   int64_t max_bytes) {
  auto table = std::make_shared<ArrowTable>();
  for (const std::string& path : paths) {
    RETURN_IF_ERROR(RegularFileSize(path).status());
    auto file = OpenFile(path, max_bytes);
    if (!file.ok()) return Annotate(file.status(), StrCat(path, ": "));
    RETURN_IF_ERROR(Annotate(table->Add(path, *std::move(file)), StrCat(path, ": ")));
  }
  if (table->rows() == 0) return Invalid(paths[0], ": there are no rows");
  return std::shared_ptr<const ArrowTable>(std::move(table));
}

absl::Status ArrowTable::Add(const std::string& path, std::unique_ptr<ArrowFile> file) {
  if (file->columns().empty()) return Invalid("there are no columns");
  if (!files_.empty() && !std::ranges::equal(columns(), file->columns(), SameType))
    return Invalid("its columns differ from those of ", paths_[0]);
  int64_t rows = 0;
  for (const int64_t group : file->groups()) {
    rows += std::min(group, kMostRows);
    if (rows + first_rows_.back() > kMostRows) return Invalid("more than ", kMostRows, " rows are refused");
  }
  first_rows_.push_back(first_rows_.back() + rows);
  files_.push_back(std::move(file));
  paths_.push_back(path);
  return absl::OkStatus();
}

int64_t ArrowTable::FindFile(int64_t row) const {
  return std::upper_bound(first_rows_.begin(), first_rows_.end() - 1, row) - first_rows_.begin() - 1;
}

std::string ArrowTable::Describe(int64_t row) const { return StrCat(paths_[FindFile(row)], ": row ", RowInFile(row)); }

std::string ArrowTable::DescribeValue(int64_t row, int column, const std::string& why) const {
  return StrCat(Describe(row), ", column '", Printable(columns()[column].name), "': ", why);
}

std::string ArrowTable::DescribeColumn(int column, const std::string& why) const {
  return StrCat(paths_[0], ": column '", Printable(columns()[column].name), "' ", why);
}

absl::StatusOr<bool> ArrowTable::ReadGroup(size_t file, int group, int64_t first, int column, bool as_text,
                                           const TakeChunk& take) const {
  absl::StatusOr<bool> more = true;
  const std::string error = files_[file]->Read(group, column, as_text, [&](const ArrowChunk& chunk) {
    more = take(first, chunk);
    first += chunk.rows;
    return more.ok() && *more;
  });
  if (error.empty() && more.ok()) return more;
  const std::string why = error.empty() ? std::string(ToStd(more.status().message())) : PrintableLine(error);
  return Invalid(paths_[file], ": column '", Printable(columns()[column].name), "', ", files_[file]->group_unit(), " ",
                 group, ": ", why);
}

absl::Status ArrowTable::ReadColumn(int column, bool as_text, const TakeChunk& take) const {
  std::lock_guard lock(mutex_);
  for (size_t file = 0; file < files_.size(); ++file) {
    int64_t first = first_rows_[file];
    const std::vector<int64_t>& groups = files_[file]->groups();
    for (int group = 0; group < static_cast<int>(groups.size()); ++group) {
      ASSIGN_OR_RETURN(const bool more, ReadGroup(file, group, first, column, as_text, take));
      if (!more) return absl::OkStatus();
      first += groups[group];
    }
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
