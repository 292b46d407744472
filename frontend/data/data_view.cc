#include "frontend/data/data_view.h"

#include <cstring>

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
  std::string Describe(int64_t i) const override { return source_->Describe(rows_[i]); }

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

}  // namespace

std::shared_ptr<const Dataset> SubsetDataset(std::shared_ptr<const Dataset> source, std::vector<int64_t> rows) {
  return std::make_shared<Subset>(std::move(source), std::move(rows));
}

std::shared_ptr<const Dataset> WithConstants(std::shared_ptr<const Dataset> source,
                                             std::vector<ConstantColumn> constants) {
  if (constants.empty()) return source;
  return std::make_shared<Constants>(std::move(source), std::move(constants));
}

}  // namespace onnxtrain
