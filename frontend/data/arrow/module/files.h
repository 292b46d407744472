// Opens files of Parquet and Arrow.
#pragma once

#include <arrow/api.h>
#include <arrow/io/api.h>

#include <memory>
#include <string>
#include <vector>

#include "frontend/data/arrow/arrow_library.h"

namespace onnxtrain {

inline constexpr int64_t kMaxBatchRows = 1 << 16;  // rows that are decoded at a time
inline constexpr size_t kMaxColumns = 1 << 16;
inline constexpr int kMaxDepth = 64;  // nesting of types, as in JSON

using Input = std::shared_ptr<arrow::io::RandomAccessFile>;
using Opened = arrow::Result<std::unique_ptr<ArrowFile>>;

// A column and the path to it: the index of a field of the schema, then those of fields of structs.
struct ColumnPath {
  ArrowColumn column;
  std::vector<int> path;
};

// Lists the fields of a schema and of its structs. Structs of pictures (`bytes` and `path`) are columns of bytes. Class
// names come from the metadata that Hugging Face's datasets write.
arrow::Result<std::vector<ColumnPath>> ListColumns(const arrow::Schema& schema);

// Base of files: passes decoded batches to the caller.
class ColumnFile : public ArrowFile {
 public:
  const std::vector<ArrowColumn>& columns() const override { return columns_; }
  const std::vector<int64_t>& groups() const override { return groups_; }
  std::string Read(int group, int column, bool as_text, const std::function<bool(const ArrowChunk&)>& take) override;

 protected:
  // Receives the array in a batch of the first field of a path; sets *more to false to stop.
  using TakeField = std::function<arrow::Status(const std::shared_ptr<arrow::Array>& field, bool* more)>;
  // Reads the batches of a group. If `pruned`, arrays of structs hold only the fields on the path to the column.
  virtual arrow::Status ReadField(int group, int column, const TakeField& take) = 0;
  virtual bool pruned() const = 0;

  arrow::Status SetColumns(const arrow::Schema& schema);

  std::vector<ArrowColumn> columns_;
  std::vector<std::vector<int>> paths_;
  std::vector<int64_t> groups_;
};

Opened OpenParquet(const Input& input, arrow::MemoryPool* pool);
// Opens the file format (also Feather's version 2) or the stream format.
Opened OpenIpc(const Input& input, arrow::MemoryPool* pool);

}  // namespace onnxtrain
