// Decodes the rows of one or several Parquet or Arrow files, a column at a time.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/arrow/arrow_library.h"

namespace onnxtrain {

// Files with the same columns, whose rows are concatenated. Thread-safe.
class ArrowTable {
 public:
  // Opens the files. Loads libonnxtrain_arrow.so; if that is missing, the error names the command that installs it.
  // `max_bytes` limits the memory that decoding allocates.
  static absl::StatusOr<std::shared_ptr<const ArrowTable>> Open(const std::vector<std::string>& paths,
                                                                int64_t max_bytes);

  int64_t rows() const { return first_rows_.back(); }
  const std::vector<ArrowColumn>& columns() const { return files_[0]->columns(); }
  // Returns "train.parquet: row 17", counted from 0 in each file.
  std::string Describe(int64_t row) const;
  // Returns the index of a row in its file.
  int64_t RowInFile(int64_t row) const { return row - first_rows_[FindFile(row)]; }
  // Returns "train.parquet: row 17, column 'age': missing value".
  std::string DescribeValue(int64_t row, int column, const std::string& why) const;
  // Returns "train.parquet: column 'age': …".
  std::string DescribeColumn(int column, const std::string& why) const;

  // Receives values from row `first` on; returns false to stop.
  using TakeChunk = std::function<absl::StatusOr<bool>(int64_t first, const ArrowChunk& chunk)>;
  // Decodes a column from its first row on, in one thread at a time. Errors name file, column and row group.
  absl::Status ReadColumn(int column, bool as_text, const TakeChunk& take) const;
  // Decodes a column in several threads, which call `take` concurrently with the values of different groups.
  absl::Status ReadColumnInParallel(int column, const TakeChunk& take) const;

 private:
  int64_t FindFile(int64_t row) const;
  absl::Status Add(const std::string& path, std::unique_ptr<ArrowFile> file);
  struct Group {
    size_t file;
    int group;
    int64_t first;  // row
  };
  // The files as one thread opened them; null if it has not.
  using OpenFiles = std::vector<std::unique_ptr<ArrowFile>>;

  std::vector<Group> ListGroups() const;
  absl::StatusOr<bool> ReadGroup(ArrowFile* file, const Group& at, int column, bool as_text,
                                 const TakeChunk& take) const;
  absl::Status ReadGroupOf(OpenFiles* own, const Group& at, int column, const TakeChunk& take) const;

  int64_t max_bytes_ = 0;
  std::vector<std::string> paths_;
  mutable OpenFiles files_;
  std::vector<int64_t> first_rows_ = {0};  // first row of each file, then the number of all rows
  mutable std::mutex mutex_;               // guards reading
  mutable std::vector<OpenFiles> others_;  // files that further threads opened
};

}  // namespace onnxtrain
