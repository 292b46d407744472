#include "frontend/data/sources/dataset.h"

#include <algorithm>
#include <cstring>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/bind/data_view.h"
#include "frontend/data/image/array_pictures.h"

namespace onnxtrain {

absl::StatusOr<std::string> Dataset::ReadText(int64_t i, int c) const {
  return Invalid(Describe(i), ", column '", columns()[c].name, "': no text");
}

Type SampleType(const Dataset& data, int64_t i, int c) {
  const Column& column = data.columns()[c];
  Type type = column.sample;
  if (column.height_axis < 0) return type;
  const PictureExtents extents = data.Extents(i);
  type.shape[column.height_axis] = extents.height;
  type.shape[column.height_axis + 1] = extents.width;
  return type;
}

int FindHeightAxis(const Column& column, const Shape& sample) {
  if (column.height_axis < 0) return -1;
  if (sample == column.sample.shape) return column.height_axis;
  const auto extents = column.sample.shape.begin() + column.height_axis;
  const auto found = std::search(sample.begin(), sample.end(), extents, extents + 2);
  return found == sample.end() ? -1 : static_cast<int>(found - sample.begin());
}

absl::Status Dataset::ReadRange(int64_t first, int64_t count, int c, std::span<std::byte> out) const {
  for (int64_t i = 0; i < count; ++i) {
    const size_t bytes = SampleType(*this, first + i, c).bytes();
    RETURN_IF_ERROR(Read(first + i, c, out.first(bytes)));
    out = out.subspan(bytes);
  }
  return absl::OkStatus();
}

namespace {

class MemoryDataset : public Dataset {
 public:
  MemoryDataset(std::vector<Column> columns, std::vector<NamedTensor> contents,
                std::function<std::string(int64_t)> describe)
      : columns_(std::move(columns)), contents_(std::move(contents)), describe_(std::move(describe)) {}

  int64_t size() const override { return contents_[0].tensor.shape()[0]; }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string Describe(int64_t i) const override { return describe_(i); }
  std::vector<std::string> notes() const override {
    std::vector<std::string> notes;
    for (const NamedTensor& content : contents_) {
      if (!content.note.empty()) notes.push_back(content.note);
    }
    return notes;
  }
  int64_t memory_bytes() const override {
    int64_t bytes = 0;
    for (const NamedTensor& content : contents_) bytes += static_cast<int64_t>(content.tensor.bytes().size());
    return bytes;
  }

  absl::Status Read(int64_t i, int c, const ReadPass&, std::span<std::byte> out) const override {
    CHECK(i >= 0 && i < size() && c >= 0 && c < static_cast<int>(columns_.size()));
    if (!columns_[c].problem.empty()) return Invalid(columns_[c].problem);
    RETURN_IF_ERROR(CheckReadable(i, c));
    CHECK_EQ(out.size(), columns_[c].sample.bytes());
    if (!out.empty()) std::memcpy(out.data(), contents_[c].tensor.bytes().data() + i * out.size(), out.size());
    return absl::OkStatus();
  }
  absl::Status ReadRange(int64_t first, int64_t count, int c, std::span<std::byte> out) const override {
    if (!columns_[c].problem.empty() || !contents_[c].unreadable.empty())
      return Dataset::ReadRange(first, count, c, out);
    const size_t width = columns_[c].sample.bytes();
    CHECK(first >= 0 && first + count <= size() && out.size() == count * width);
    if (!out.empty()) std::memcpy(out.data(), contents_[c].tensor.bytes().data() + first * width, out.size());
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> ReadText(int64_t i, int c) const override {
    if (!columns_[c].text) return Dataset::ReadText(i, c);
    RETURN_IF_ERROR(CheckReadable(i, c));
    return contents_[c].texts[i];
  }

 private:
  absl::Status CheckReadable(int64_t i, int c) const {
    const auto bad = contents_[c].unreadable.find(i);
    return bad == contents_[c].unreadable.end() ? absl::OkStatus() : Invalid(bad->second);
  }

  std::vector<Column> columns_;
  std::vector<NamedTensor> contents_;
  std::function<std::string(int64_t)> describe_;
};

class Slice : public DatasetView {
 public:
  Slice(std::shared_ptr<const Dataset> source, int64_t begin, int64_t end)
      : DatasetView(std::move(source)), begin_(begin), size_(end - begin) {
    CHECK(begin >= 0 && begin <= end && end <= source_->size());
  }
  int64_t size() const override { return size_; }
  std::string Describe(int64_t i) const override { return source_->Describe(begin_ + i); }
  absl::StatusOr<std::string> ReadText(int64_t i, int c) const override { return source_->ReadText(begin_ + i, c); }
  int64_t Length(int64_t i) const override { return source_->Length(begin_ + i); }
  PictureExtents Extents(int64_t i) const override { return source_->Extents(begin_ + i); }
  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    CHECK(i >= 0 && i < size_);
    return source_->Read(begin_ + i, c, pass, out);
  }

 private:
  int64_t begin_, size_;
};

}  // namespace

absl::StatusOr<Column> MakeColumn(std::string name, const Type& type) {
  if (type.shape.empty()) return Invalid("'", name, "' is a single value, not an array of samples");
  if (type.shape[0] == 0) return Invalid("'", name, "' ", ToString(type), " holds no samples");
  Type sample{type.dtype, Shape(type.shape.begin() + 1, type.shape.end())};
  const bool image = HoldsPixels(sample);
  return Column{.name = std::move(name), .sample = std::move(sample), .classes = {}, .image = image};
}

absl::StatusOr<std::shared_ptr<const Dataset>> MakeMemoryDataset(std::vector<NamedTensor> columns,
                                                                 std::function<std::string(int64_t)> describe) {
  if (columns.empty()) return Invalid("there are no arrays");
  std::vector<Column> made;
  for (const NamedTensor& c : columns) {
    ASSIGN_OR_RETURN(Column column, MakeColumn(c.name, c.tensor.type()));
    const int64_t n = c.tensor.shape()[0], first = columns[0].tensor.shape()[0];
    if (n != first) return Invalid("'", columns[0].name, "' has ", first, " samples, '", c.name, "' has ", n);
    column.classes = c.classes;
    column.problem = c.problem;
    column.text = !c.texts.empty();
    made.push_back(std::move(column));
  }
  return std::make_shared<MemoryDataset>(std::move(made), std::move(columns), std::move(describe));
}

absl::StatusOr<std::shared_ptr<const Dataset>> InMemoryDataset(const std::string& name,
                                                               std::vector<std::string> columns,
                                                               std::vector<HostTensor> tensors) {
  CHECK_EQ(columns.size(), tensors.size());
  std::vector<NamedTensor> named;
  for (size_t c = 0; c < columns.size(); ++c) named.push_back({std::move(columns[c]), std::move(tensors[c])});
  auto dataset = MakeMemoryDataset(std::move(named), [name](int64_t i) { return StrCat(name, ": sample ", i); });
  if (!dataset.ok()) return Annotate(dataset.status(), StrCat(name, ": "));
  return dataset;
}

std::shared_ptr<const Dataset> SliceDataset(std::shared_ptr<const Dataset> source, int64_t begin, int64_t end) {
  return std::make_shared<Slice>(std::move(source), begin, end);
}

}  // namespace onnxtrain
