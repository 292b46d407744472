// Exports the function that opens files, lists their columns and passes values on.
#include "frontend/data/arrow/module/files.h"

#include <arrow/util/future.h>

#include <exception>
#include <limits>
#include <nlohmann/json.hpp>

#include "frontend/data/arrow/module/values.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;
using Kind = ArrowColumn::Kind;

// Returns the class names of a label in the metadata of Hugging Face's datasets; empty if there are none.
std::vector<std::string> FindClasses(const Json& features, const std::string& name) {
  if (!features.is_object() || !features.contains(name)) return {};
  const Json& feature = features[name];
  if (!feature.is_object() || feature.value("_type", Json()) != "ClassLabel" || !feature.contains("names")) return {};
  std::vector<std::string> names;
  for (const Json& text : feature["names"]) {
    if (text.is_string()) names.push_back(text.get<std::string>());
  }
  return names;
}

Json ReadFeatures(const arrow::Schema& schema) {
  constexpr int64_t kMost = 16 << 20;
  if (schema.metadata() == nullptr) return {};
  const auto text = schema.metadata()->Get("huggingface");
  if (!text.ok() || static_cast<int64_t>(text->size()) > kMost) return {};
  const Json all = Json::parse(
      *text, [](int depth, auto, auto&) { return depth <= kMaxDepth; }, false);
  if (!all.is_object() || !all.contains("info") || !all["info"].is_object()) return {};
  return all["info"].value("features", Json());
}

// Returns true for the structs of Hugging Face's pictures and sounds.
bool HoldsFile(const arrow::DataType& type) {
  if (type.id() != arrow::Type::STRUCT || type.num_fields() != 2) return false;
  const auto& fields = static_cast<const arrow::StructType&>(type);
  return fields.GetFieldIndex("bytes") >= 0 && fields.GetFieldIndex("path") >= 0;
}

int FindDepth(const arrow::DataType& type) {
  int depth = 0;
  for (const auto& field : type.fields()) depth = std::max(depth, FindDepth(*field->type()));
  return depth + 1;
}

class ColumnLister {
 public:
  arrow::Status Add(const arrow::Field& field, const std::string& prefix, const std::vector<int>& path) {
    ColumnPath at{.column = {.name = prefix + field.name(), .type = field.type()->ToString()}, .path = path};
    if (HoldsFile(*field.type())) {
      at.column.kind = Kind::kBytes;
      at.path.push_back(static_cast<const arrow::StructType&>(*field.type()).GetFieldIndex("bytes"));
      columns.push_back(std::move(at));
      return arrow::Status::OK();
    }
    DescribeType(*field.type(), &at.column);
    at.column.is_struct = field.type()->id() == arrow::Type::STRUCT;
    const std::string inner = at.column.name + ".";
    const bool is_struct = at.column.is_struct;
    columns.push_back(std::move(at));
    if (columns.size() > kMaxColumns) return arrow::Status::Invalid("there are more than ", kMaxColumns, " columns");
    if (!is_struct) return arrow::Status::OK();
    for (int f = 0; f < field.type()->num_fields(); ++f) {
      std::vector<int> below = path;
      below.push_back(f);
      ARROW_RETURN_NOT_OK(Add(*field.type()->field(f), inner, below));
    }
    return arrow::Status::OK();
  }

  std::vector<ColumnPath> columns;
};

// Returns the array at the end of a path, which is null where one of the structs on the path is.
arrow::Result<std::shared_ptr<arrow::Array>> Follow(std::shared_ptr<arrow::Array> array, const std::vector<int>& path,
                                                    bool pruned) {
  for (size_t level = 1; level < path.size(); ++level) {
    const auto& fields = static_cast<const arrow::StructArray&>(*array);
    ARROW_ASSIGN_OR_RAISE(array, fields.GetFlattenedField(pruned ? 0 : path[level]));
  }
  return array;
}

// Reads a file only in the calling thread, since tasks of Arrow's threads would outlive the memory pool. Reads end at
// the end of the file, so that a size in a damaged header does not allocate more.
class SerialFile : public arrow::io::RandomAccessFile {
 public:
  SerialFile(Input file, int64_t size) : file_(std::move(file)), size_(size) {}
  arrow::Status Close() override { return file_->Close(); }
  bool closed() const override { return file_->closed(); }
  arrow::Result<int64_t> Tell() const override { return file_->Tell(); }
  arrow::Status Seek(int64_t position) override { return file_->Seek(position); }
  arrow::Result<int64_t> GetSize() override { return size_; }
  arrow::Result<int64_t> Read(int64_t bytes, void* out) override { return file_->Read(bytes, out); }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t bytes) override {
    ARROW_ASSIGN_OR_RAISE(const int64_t position, Tell());
    return file_->Read(Clip(position, bytes));
  }
  arrow::Result<int64_t> ReadAt(int64_t position, int64_t bytes, void* out) override {
    return file_->ReadAt(position, bytes, out);
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position, int64_t bytes) override {
    return file_->ReadAt(position, Clip(position, bytes));
  }
  using RandomAccessFile::ReadAt;
  arrow::Future<std::shared_ptr<arrow::Buffer>> ReadAsync(const arrow::io::IOContext&, int64_t position, int64_t bytes,
                                                          bool allow_short_read) override {
    return arrow::Future<std::shared_ptr<arrow::Buffer>>::MakeFinished(ReadAt(position, bytes, allow_short_read));
  }
  arrow::Future<std::shared_ptr<arrow::Buffer>> ReadAsync(const arrow::io::IOContext& context, int64_t position,
                                                          int64_t bytes) override {
    return ReadAsync(context, position, bytes, true);
  }
  arrow::Status WillNeed(const std::vector<arrow::io::ReadRange>&) override { return arrow::Status::OK(); }

 private:
  int64_t Clip(int64_t position, int64_t bytes) const {
    return position < 0 || position > size_ ? bytes : std::min(bytes, size_ - position);
  }

  Input file_;
  int64_t size_;
};

// Returns a message on one line.
std::string MakeLine(const std::string& text) { return text.substr(0, text.find('\n')); }

arrow::Result<std::unique_ptr<ArrowFile>> Open(const std::string& path, arrow::MemoryPool* pool) {
  ARROW_ASSIGN_OR_RAISE(const auto file, arrow::io::ReadableFile::Open(path, pool));
  ARROW_ASSIGN_OR_RAISE(const int64_t size, file->GetSize());
  const Input input = std::make_shared<SerialFile>(file, size);
  ARROW_ASSIGN_OR_RAISE(const auto magic, input->ReadAt(0, 4));
  const std::string_view first(*magic);
  if (first == "PAR1" || first == "PARE") return OpenParquet(input, pool);
  if (first == "FEA1")
    return arrow::Status::NotImplemented("version 1 of Feather; pyarrow.feather.write_feather writes version 2");
  return OpenIpc(input, pool);
}

// An open file and the memory pool that it allocates from.
class LimitedFile : public ArrowFile {
 public:
  explicit LimitedFile(int64_t max_bytes) : pool_(arrow::default_memory_pool(), max_bytes) {}
  arrow::Status Open(const std::string& path) { return onnxtrain::Open(path, &pool_).Value(&file_); }

  const std::vector<ArrowColumn>& columns() const override { return file_->columns(); }
  const std::vector<int64_t>& groups() const override { return file_->groups(); }
  const char* group_unit() const override { return file_->group_unit(); }
  std::string Read(int group, int column, bool as_text, const std::function<bool(const ArrowChunk&)>& take) override
      try {
    return MakeLine(file_->Read(group, column, as_text, take));
  } catch (const std::exception& e) {
    return MakeLine(e.what());
  }

 private:
  arrow::CappedMemoryPool pool_;
  std::unique_ptr<ArrowFile> file_;
};

}  // namespace

arrow::Result<std::vector<ColumnPath>> ListColumns(const arrow::Schema& schema) {
  const Json features = ReadFeatures(schema);
  ColumnLister lister;
  for (int f = 0; f < schema.num_fields(); ++f) {
    const arrow::Field& field = *schema.field(f);
    if (FindDepth(*field.type()) > kMaxDepth)
      return arrow::Status::Invalid("column '", field.name(), "': types nested more than ", kMaxDepth, " deep");
    const size_t at = lister.columns.size();
    ARROW_RETURN_NOT_OK(lister.Add(field, "", {f}));
    lister.columns[at].column.classes = FindClasses(features, field.name());
  }
  return std::move(lister.columns);
}

arrow::Status ColumnFile::SetColumns(const arrow::Schema& schema) {
  ARROW_ASSIGN_OR_RAISE(std::vector<ColumnPath> found, ListColumns(schema));
  for (ColumnPath& at : found) {
    columns_.push_back(std::move(at.column));
    paths_.push_back(std::move(at.path));
  }
  return arrow::Status::OK();
}

std::string ColumnFile::Read(int group, int column, bool as_text, const std::function<bool(const ArrowChunk&)>& take) {
  ChunkValues values;
  int64_t rows = 0;
  bool ended = false;
  const auto take_field = [&](const std::shared_ptr<arrow::Array>& field, bool* more) -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(const auto array, Follow(field, paths_[column], pruned()));
    ARROW_RETURN_NOT_OK(values.Set(*array, columns_[column], as_text));
    rows += array->length();
    if (rows > groups_[group]) return arrow::Status::Invalid("has more values than the ", groups_[group], " rows");
    *more = take(values.chunk());
    ended = !*more;
    return arrow::Status::OK();
  };
  const arrow::Status status = ReadField(group, column, take_field);
  if (!status.ok()) return status.message();
  if (ended || rows == groups_[group]) return "";
  return arrow::Status::Invalid("has ", rows, " values for ", groups_[group], " rows").message();
}

extern "C" __attribute__((visibility("default"))) ArrowFile* OnnxtrainOpenArrow(const std::string& path,
                                                                                int64_t max_bytes,
                                                                                std::string* error) try {
  auto file = std::make_unique<LimitedFile>(max_bytes);
  const arrow::Status status = file->Open(path);
  if (status.ok()) return file.release();
  *error = MakeLine(status.message());
  return nullptr;
} catch (const std::exception& e) {
  *error = MakeLine(e.what());
  return nullptr;
}

}  // namespace onnxtrain
