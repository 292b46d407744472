// Reads Parquet, one column of a row group at a time.
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/statistics.h>

#include <algorithm>

#include "frontend/data/arrow/module/files.h"

namespace onnxtrain {
namespace {

constexpr int64_t kBatchBytes = 16 << 20;  // size of the values decoded at a time
constexpr int64_t kReadBytes = 1 << 20;    // read from the file at a time

using parquet::arrow::SchemaField;

void ListLeaves(const SchemaField& field, std::vector<int>* leaves) {
  if (field.is_leaf()) leaves->push_back(field.column_index);
  for (const SchemaField& child : field.children) ListLeaves(child, leaves);
}

bool HoldsDictionary(const arrow::DataType& type) {
  return type.id() == arrow::Type::DICTIONARY ||
         std::ranges::any_of(type.fields(), [](const auto& field) { return HoldsDictionary(*field->type()); });
}

// Validates indices of dictionaries, which the reader does not check.
arrow::Status Check(const arrow::Array& array) {
  return HoldsDictionary(*array.type()) ? array.ValidateFull() : array.Validate();
}

class ParquetFile : public ColumnFile {
 public:
  arrow::Status Open(const Input& input, arrow::MemoryPool* pool) {
    parquet::ReaderProperties properties(pool);
    properties.enable_buffered_stream();
    properties.set_buffer_size(kReadBytes);
    properties.set_page_checksum_verification(true);
    parquet::ArrowReaderProperties arrow_properties;
    arrow_properties.set_pre_buffer(false);
    arrow_properties.set_batch_size(kMaxBatchRows);
    parquet::arrow::FileReaderBuilder builder;
    ARROW_RETURN_NOT_OK(builder.Open(input, properties));
    ARROW_ASSIGN_OR_RAISE(reader_, builder.memory_pool(pool)->properties(arrow_properties)->Build());
    return Describe();
  }

  const char* group_unit() const override { return "row group"; }

 protected:
  bool pruned() const override { return true; }

  arrow::Status ReadField(int group, int column, const TakeField& take) override {
    reader_->set_batch_size(ChooseBatchRows(group, leaves_[column]));
    ARROW_ASSIGN_OR_RAISE(const auto batches, reader_->GetRecordBatchReader({group}, leaves_[column]));
    for (bool more = true; more;) {
      std::shared_ptr<arrow::RecordBatch> batch;
      ARROW_RETURN_NOT_OK(batches->ReadNext(&batch));
      if (batch == nullptr) break;
      if (batch->num_columns() != 1) return arrow::Status::Invalid("is no single field");
      ARROW_RETURN_NOT_OK(Check(*batch->column(0)));
      ARROW_RETURN_NOT_OK(take(batch->column(0), &more));
    }
    return arrow::Status::OK();
  }

 private:
  const parquet::FileMetaData& metadata() const { return *reader_->parquet_reader()->metadata(); }

  arrow::Status Describe() {
    std::shared_ptr<arrow::Schema> schema;
    ARROW_RETURN_NOT_OK(reader_->GetSchema(&schema));
    ARROW_RETURN_NOT_OK(SetColumns(*schema));
    for (int g = 0; g < metadata().num_row_groups(); ++g) {
      groups_.push_back(metadata().RowGroup(g)->num_rows());
      if (groups_.back() < 0) return arrow::Status::Invalid("row group ", g, " has ", groups_.back(), " rows");
    }
    for (size_t c = 0; c < columns_.size(); ++c) {
      leaves_.push_back(FindLeaves(paths_[c]));
      if (paths_[c].size() == 1 && leaves_[c].size() == 1) columns_[c].missing = CountNulls(leaves_[c][0]);
    }
    return arrow::Status::OK();
  }

  std::vector<int> FindLeaves(const std::vector<int>& path) const {
    const SchemaField* field = &reader_->manifest().schema_fields[path[0]];
    for (size_t level = 1; level < path.size(); ++level) field = &field->children[path[level]];
    std::vector<int> leaves;
    ListLeaves(*field, &leaves);
    return leaves;
  }

  // Returns the number of nulls in the statistics; -1 if a row group has none.
  int64_t CountNulls(int leaf) const {
    if (metadata().schema()->Column(leaf)->max_definition_level() == 0) return 0;
    int64_t nulls = 0;
    for (int g = 0; g < metadata().num_row_groups(); ++g) {
      const auto chunk = metadata().RowGroup(g)->ColumnChunk(leaf);
      const auto statistics = chunk->is_stats_set() ? chunk->statistics() : nullptr;
      if (statistics == nullptr || !statistics->HasNullCount() || statistics->null_count() < 0) return -1;
      nulls += statistics->null_count();
    }
    return nulls;
  }

  // Returns the number of rows whose values have about kBatchBytes.
  int64_t ChooseBatchRows(int group, const std::vector<int>& leaves) const {
    const auto row_group = metadata().RowGroup(group);
    int64_t bytes = 0;
    for (const int leaf : leaves)
      bytes += std::max<int64_t>(0, row_group->ColumnChunk(leaf)->total_uncompressed_size());
    const double rows = static_cast<double>(kBatchBytes) / static_cast<double>(std::max<int64_t>(bytes, 1)) *
                        static_cast<double>(groups_[group]);
    return static_cast<int64_t>(std::clamp<double>(rows, 1, kMaxBatchRows));
  }

  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::vector<std::vector<int>> leaves_;  // columns of Parquet that hold the values of each column
};

}  // namespace

Opened OpenParquet(const Input& input, arrow::MemoryPool* pool) {
  auto file = std::make_unique<ParquetFile>();
  ARROW_RETURN_NOT_OK(file->Open(input, pool));
  return file;
}

}  // namespace onnxtrain
