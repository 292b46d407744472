#include "frontend/data/sources/dataset.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "frontend/base/log.h"
#include "frontend/base/philox.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/data/image/array_pictures.h"
#include "frontend/data/transform/convert.h"

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

namespace {

class Subset : public DatasetView {
 public:
  Subset(std::shared_ptr<const Dataset> source, std::vector<int64_t> rows)
      : DatasetView(std::move(source)), rows_(std::move(rows)) {}
  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    return source_->Read(rows_[i], c, pass, out);
  }
  absl::StatusOr<std::string> ReadText(int64_t i, int c) const override { return source_->ReadText(rows_[i], c); }
  int64_t Length(int64_t i) const override { return source_->Length(rows_[i]); }
  PictureExtents Extents(int64_t i) const override { return source_->Extents(rows_[i]); }
  std::string Describe(int64_t i) const override { return source_->Describe(rows_[i]); }
  std::string StableName(int64_t i) const override { return source_->StableName(rows_[i]); }

 private:
  std::vector<int64_t> rows_;
};

class ConstantsView : public DatasetView {
 public:
  ConstantsView(std::shared_ptr<const Dataset> source, std::vector<ConstantColumn> constants)
      : DatasetView(std::move(source)),
        own_(static_cast<int>(source_->columns().size())),
        constants_(std::move(constants)),
        columns_(source_->columns()) {
    for (const ConstantColumn& c : constants_)
      columns_.push_back({.name = c.name, .sample = c.sample.type(), .measured = false});
  }
  const std::vector<Column>& columns() const override { return columns_; }
  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    if (c < own_) return source_->Read(i, c, pass, out);
    const auto bytes = constants_[c - own_].sample.bytes();
    if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
    return absl::OkStatus();
  }

 private:
  int own_;
  std::vector<ConstantColumn> constants_;
  std::vector<Column> columns_;
};

class JoinedColumns : public DatasetView {
 public:
  JoinedColumns(std::shared_ptr<const Dataset> first, std::shared_ptr<const Dataset> second, int leave_out)
      : DatasetView(std::move(first)), second_(std::move(second)), columns_(source_->columns()) {
    CHECK_EQ(source_->size(), second_->size());
    for (int c = 0; c < static_cast<int>(second_->columns().size()); ++c) {
      if (c == leave_out) continue;
      columns_.push_back(second_->columns()[c]);
      places_.push_back(c);
    }
  }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string StableName(int64_t i) const override { return source_->StableName(i); }
  std::vector<std::string> notes() const override { return source_->notes(); }
  int64_t memory_bytes() const override { return source_->memory_bytes() + second_->memory_bytes(); }
  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    return IsOwn(c) ? source_->Read(i, c, pass, out) : second_->Read(i, Place(c), pass, out);
  }
  absl::StatusOr<std::string> ReadText(int64_t i, int c) const override {
    return IsOwn(c) ? source_->ReadText(i, c) : second_->ReadText(i, Place(c));
  }

 private:
  bool IsOwn(int c) const { return c < std::ssize(source_->columns()); }
  int Place(int c) const { return places_[c - source_->columns().size()]; }

  std::shared_ptr<const Dataset> second_;
  std::vector<Column> columns_;
  std::vector<int> places_;  // indices of the other columns in `second_`
};

class NotesView : public DatasetView {
 public:
  NotesView(std::shared_ptr<const Dataset> source, std::vector<std::string> notes)
      : DatasetView(std::move(source)), notes_(std::move(notes)) {}
  std::string StableName(int64_t i) const override { return source_->StableName(i); }
  std::vector<std::string> notes() const override {
    std::vector<std::string> all = notes_, own = source_->notes();
    all.insert(all.end(), own.begin(), own.end());
    return all;
  }

 private:
  std::vector<std::string> notes_;
};

class NoPixelsView : public DatasetView {
 public:
  NoPixelsView(std::shared_ptr<const Dataset> source, const std::vector<int>& numbers)
      : DatasetView(std::move(source)), columns_(source_->columns()) {
    for (const int c : numbers) columns_[c].image = false;
  }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string StableName(int64_t i) const override { return source_->StableName(i); }
  std::vector<std::string> notes() const override { return source_->notes(); }

 private:
  std::vector<Column> columns_;
};

}  // namespace

std::shared_ptr<const Dataset> SubsetDataset(std::shared_ptr<const Dataset> source, std::vector<int64_t> rows) {
  return std::make_shared<Subset>(std::move(source), std::move(rows));
}

std::shared_ptr<const Dataset> WithConstants(std::shared_ptr<const Dataset> source,
                                             std::vector<ConstantColumn> constants) {
  if (constants.empty()) return source;
  return std::make_shared<ConstantsView>(std::move(source), std::move(constants));
}

std::shared_ptr<const Dataset> WithNotes(std::shared_ptr<const Dataset> source, std::vector<std::string> notes) {
  if (notes.empty()) return source;
  return std::make_shared<NotesView>(std::move(source), std::move(notes));
}

std::shared_ptr<const Dataset> WithoutPixels(std::shared_ptr<const Dataset> source, const std::vector<int>& columns) {
  if (columns.empty()) return source;
  return std::make_shared<NoPixelsView>(std::move(source), columns);
}

std::shared_ptr<const Dataset> JoinColumns(std::shared_ptr<const Dataset> first, std::shared_ptr<const Dataset> second,
                                           int leave_out) {
  return std::make_shared<JoinedColumns>(std::move(first), std::move(second), leave_out);
}

namespace {

class Synthetic : public Dataset {
 public:
  Synthetic(std::vector<SyntheticColumn> columns, int64_t size, uint64_t seed)
      : specs_(std::move(columns)), size_(size), seed_(seed) {
    for (const SyntheticColumn& c : specs_) {
      CHECK(IsFloat(c.sample.dtype) || c.low < c.high) << c.name;
      columns_.push_back({.name = c.name, .sample = c.sample, .classes = {}});
    }
  }

  int64_t size() const override { return size_; }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string Describe(int64_t i) const override { return StrCat("synthetic sample ", i); }

  absl::Status Read(int64_t i, int c, const ReadPass&, std::span<std::byte> out) const override {
    CHECK(i >= 0 && i < size_ && out.size() == columns_[c].sample.bytes());
    const DType dtype = columns_[c].sample.dtype;
    const auto n = columns_[c].sample.elements(), size = static_cast<int64_t>(DTypeSize(dtype));
    std::array<double, kDrawn> values;
    std::array<int64_t, kDrawn> ints;
    for (int64_t at = 0; at < n; at += kDrawn) {
      const int64_t count = std::min(kDrawn, n - at);
      for (int64_t k = 0; k < count; k += 4) {
        const PhiloxBlock words = DrawBlock(i, c, (at + k) / 4);
        IsFloat(dtype) ? DrawNormals(words, &values[k]) : DrawIntegers(words, specs_[c], &ints[k]);
      }
      const auto drawn =
          IsFloat(dtype) ? std::as_bytes(std::span(values).first(count)) : std::as_bytes(std::span(ints).first(count));
      RETURN_IF_ERROR(
          ConvertValues(IsFloat(dtype) ? DType::kFloat64 : DType::kInt64, drawn, dtype, out.data() + at * size, 1));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kDrawn = 1024;  // values drawn at a time; whole blocks

  static uint32_t LowWord(uint64_t v) { return static_cast<uint32_t>(v); }
  static uint32_t HighWord(uint64_t v) { return static_cast<uint32_t>(v >> 32); }

  PhiloxBlock DrawBlock(int64_t sample, int column, int64_t block) const {
    return Philox4x32({LowWord(block), HighWord(block), LowWord(sample), HighWord(sample)},
                      {LowWord(seed_) ^ 0x73796E74u, HighWord(seed_) ^ static_cast<uint32_t>(column)});
  }
  static void DrawNormals(const PhiloxBlock& words, double* out) {
    for (int pair = 0; pair < 2; ++pair) {
      const auto normals = BoxMuller(words[2 * pair], words[2 * pair + 1]);
      out[2 * pair] = normals[0];
      out[2 * pair + 1] = normals[1];
    }
  }
  static void DrawIntegers(const PhiloxBlock& words, const SyntheticColumn& spec, int64_t* out) {
    const auto range = static_cast<uint64_t>(spec.high - spec.low);
    for (int k = 0; k < 4; ++k) {  // the bias of 2^-32 · range is negligible
      out[k] = spec.low + static_cast<int64_t>(static_cast<unsigned __int128>(words[k]) * range >> 32);
    }
  }

  std::vector<SyntheticColumn> specs_;
  std::vector<Column> columns_;
  int64_t size_;
  uint64_t seed_;
};

}  // namespace

std::shared_ptr<const Dataset> SyntheticDataset(std::vector<SyntheticColumn> columns, int64_t size, uint64_t seed) {
  return std::make_shared<Synthetic>(std::move(columns), size, seed);
}

}  // namespace onnxtrain
