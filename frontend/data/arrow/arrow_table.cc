#include "frontend/data/arrow/arrow_table.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 40;
constexpr size_t kMostThreads = 8;  // to decode a column

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
  table->max_bytes_ = max_bytes;
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

std::vector<ArrowTable::Group> ArrowTable::ListGroups() const {
  std::vector<Group> groups;
  int64_t first = 0;
  for (size_t file = 0; file < files_.size(); ++file) {
    for (const int64_t rows : files_[file]->groups()) {
      groups.push_back({file, groups.empty() || groups.back().file != file ? 0 : groups.back().group + 1, first});
      first += rows;
    }
  }
  return groups;
}

absl::StatusOr<bool> ArrowTable::ReadGroup(ArrowFile* file, const Group& at, int column, bool as_text,
                                           const TakeChunk& take) const {
  absl::StatusOr<bool> more = true;
  int64_t first = at.first;
  const std::string error = file->Read(at.group, column, as_text, [&](const ArrowChunk& chunk) {
    more = take(first, chunk);
    first += chunk.rows;
    return more.ok() && *more;
  });
  if (error.empty() && more.ok()) return more;
  const std::string why = error.empty() ? std::string(ToStd(more.status().message())) : PrintableLine(error);
  return Invalid(paths_[at.file], ": column '", Printable(columns()[column].name), "', ", file->group_unit(), " ",
                 at.group, ": ", why);
}

absl::Status ArrowTable::ReadColumn(int column, bool as_text, const TakeChunk& take) const {
  std::lock_guard lock(mutex_);
  for (const Group& at : ListGroups()) {
    ASSIGN_OR_RETURN(const bool more, ReadGroup(files_[at.file].get(), at, column, as_text, take));
    if (!more) break;
  }
  return absl::OkStatus();
}

absl::Status ArrowTable::ReadGroupOf(OpenFiles* own, const Group& at, int column, const TakeChunk& take) const {
  std::unique_ptr<ArrowFile>& file = (*own)[at.file];
  if (file == nullptr) {
    ASSIGN_OR_RETURN(file, OpenFile(paths_[at.file], max_bytes_ / kMostThreads));
    if (file->groups() != files_[at.file]->groups()) return Invalid(paths_[at.file], ": the file has changed");
  }
  return ReadGroup(file.get(), at, column, false, take).status();
}

absl::Status ArrowTable::ReadColumnInParallel(int column, const TakeChunk& take) const {
  std::lock_guard lock(mutex_);
  const std::vector<Group> groups = ListGroups();
  const size_t threads = std::min({kMostThreads, size_t{std::thread::hardware_concurrency()}, groups.size()});
  while (others_.size() + 1 < threads) others_.emplace_back(files_.size());
  std::vector<absl::Status> results(groups.size());
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  const auto work = [&](OpenFiles* own) {
    for (size_t i = next++; i < groups.size() && !failed; i = next++) {
      results[i] = ReadGroupOf(own, groups[i], column, take);
      if (!results[i].ok()) failed = true;
    }
  };
  std::vector<std::thread> started;
  for (size_t t = 1; t < threads; ++t) started.emplace_back(work, &others_[t - 1]);
  work(&files_);
  for (std::thread& thread : started) thread.join();
  for (const absl::Status& result : results) RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

}  // namespace onnxtrain
