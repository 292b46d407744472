#include "frontend/data/bind/data_view.h"

#include <cstring>

#include "frontend/base/log.h"

namespace onnxtrain {
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

class Constants : public DatasetView {
 public:
  Constants(std::shared_ptr<const Dataset> source, std::vector<ConstantColumn> constants)
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

class Joined : public DatasetView {
 public:
  Joined(std::shared_ptr<const Dataset> first, std::shared_ptr<const Dataset> second, int leave_out)
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
  std::vector<int> places_;  // of the further columns in `second_`
};

class Noted : public DatasetView {
 public:
  Noted(std::shared_ptr<const Dataset> source, std::vector<std::string> notes)
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

class Numbers : public DatasetView {
 public:
  Numbers(std::shared_ptr<const Dataset> source, const std::vector<int>& numbers)
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
  return std::make_shared<Constants>(std::move(source), std::move(constants));
}

std::shared_ptr<const Dataset> WithNotes(std::shared_ptr<const Dataset> source, std::vector<std::string> notes) {
  if (notes.empty()) return source;
  return std::make_shared<Noted>(std::move(source), std::move(notes));
}

std::shared_ptr<const Dataset> WithoutPixels(std::shared_ptr<const Dataset> source, const std::vector<int>& columns) {
  if (columns.empty()) return source;
  return std::make_shared<Numbers>(std::move(source), columns);
}

std::shared_ptr<const Dataset> JoinColumns(std::shared_ptr<const Dataset> first, std::shared_ptr<const Dataset> second,
                                           int leave_out) {
  return std::make_shared<Joined>(std::move(first), std::move(second), leave_out);
}

}  // namespace onnxtrain
