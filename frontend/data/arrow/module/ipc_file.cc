// Reads Arrow's files and streams, one record batch at a time.
#include <arrow/ipc/api.h>

#include "frontend/data/arrow/module/files.h"

namespace onnxtrain {
namespace {

arrow::ipc::IpcReadOptions MakeOptions(arrow::MemoryPool* pool, int field) {
  auto options = arrow::ipc::IpcReadOptions::Defaults();
  options.memory_pool = pool;
  options.use_threads = false;
  options.max_recursion_depth = kMaxDepth;
  if (field >= 0) options.included_fields = {field};
  return options;
}

class IpcFile : public ColumnFile {
 public:
  const char* group_unit() const override { return "batch"; }

 protected:
  bool pruned() const override { return false; }

  // Validates and passes on a batch that was read with one field: files may differ from their headers.
  static arrow::Status Take(const arrow::RecordBatch& batch, const TakeField& take, bool* more) {
    ARROW_RETURN_NOT_OK(batch.ValidateFull());
    if (batch.num_columns() != 1) return arrow::Status::Invalid("is no single field");
    return take(batch.column(0), more);
  }
};

// Reads the file format, whose batches are groups.
class BatchFile : public IpcFile {
 public:
  arrow::Status Open(const Input& input, arrow::MemoryPool* pool) {
    input_ = input;
    pool_ = pool;
    ARROW_RETURN_NOT_OK(SelectField(-1));
    ARROW_RETURN_NOT_OK(SetColumns(*reader_->schema()));
    if (columns_.empty()) return arrow::Status::OK();
    ARROW_RETURN_NOT_OK(SelectField(0));
    for (int g = 0; g < reader_->num_record_batches(); ++g) {
      ARROW_ASSIGN_OR_RAISE(const auto batch, reader_->ReadRecordBatch(g));
      groups_.push_back(batch->num_rows());
    }
    return arrow::Status::OK();
  }

 protected:
  arrow::Status ReadField(int group, int column, const TakeField& take) override {
    ARROW_RETURN_NOT_OK(SelectField(paths_[column][0]));
    ARROW_ASSIGN_OR_RAISE(const auto batch, reader_->ReadRecordBatch(group));
    bool more = true;
    return Take(*batch, take, &more);
  }

 private:
  arrow::Status SelectField(int field) {
    if (reader_ != nullptr && field == field_) return arrow::Status::OK();
    field_ = field;
    return arrow::ipc::RecordBatchFileReader::Open(input_, MakeOptions(pool_, field)).Value(&reader_);
  }

  Input input_;
  arrow::MemoryPool* pool_ = nullptr;
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader_;
  int field_ = -1;  // field that reader_ reads; -1: all
};

// Reads the stream format, which is one group, since its batches are not indexed.
class StreamFile : public IpcFile {
 public:
  arrow::Status Open(const Input& input, arrow::MemoryPool* pool) {
    input_ = input;
    pool_ = pool;
    std::shared_ptr<arrow::Schema> schema;
    ARROW_RETURN_NOT_OK(Begin(-1).Value(&reader_));
    ARROW_RETURN_NOT_OK(SetColumns(*reader_->schema()));
    groups_ = {0};
    if (columns_.empty()) return arrow::Status::OK();
    ARROW_RETURN_NOT_OK(Begin(0).Value(&reader_));
    while (true) {
      ARROW_ASSIGN_OR_RAISE(const auto batch, Next());
      if (batch == nullptr) return arrow::Status::OK();
      groups_[0] += batch->num_rows();
    }
  }

 protected:
  arrow::Status ReadField(int, int column, const TakeField& take) override {
    ARROW_RETURN_NOT_OK(Begin(paths_[column][0]).Value(&reader_));
    for (bool more = true; more;) {
      ARROW_ASSIGN_OR_RAISE(const auto batch, Next());
      if (batch == nullptr) break;
      ARROW_RETURN_NOT_OK(Take(*batch, take, &more));
    }
    return arrow::Status::OK();
  }

 private:
  using Reader = std::shared_ptr<arrow::ipc::RecordBatchStreamReader>;

  arrow::Result<Reader> Begin(int field) {
    ARROW_RETURN_NOT_OK(input_->Seek(0));
    return arrow::ipc::RecordBatchStreamReader::Open(input_, MakeOptions(pool_, field));
  }
  arrow::Result<std::shared_ptr<arrow::RecordBatch>> Next() {
    std::shared_ptr<arrow::RecordBatch> batch;
    ARROW_RETURN_NOT_OK(reader_->ReadNext(&batch));
    return batch;
  }

  Input input_;
  arrow::MemoryPool* pool_ = nullptr;
  Reader reader_;
};

template <typename File>
Opened OpenAs(const Input& input, arrow::MemoryPool* pool) {
  auto file = std::make_unique<File>();
  ARROW_RETURN_NOT_OK(file->Open(input, pool));
  return file;
}

}  // namespace

Opened OpenIpc(const Input& input, arrow::MemoryPool* pool) {
  ARROW_ASSIGN_OR_RAISE(const auto magic, input->ReadAt(0, 6));
  return std::string_view(*magic) == "ARROW1" ? OpenAs<BatchFile>(input, pool) : OpenAs<StreamFile>(input, pool);
}

}  // namespace onnxtrain
