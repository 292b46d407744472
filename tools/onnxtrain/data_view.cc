#include "tools/onnxtrain/data_view.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "frontend/data/order.h"

namespace onnxtrain::cli {
namespace {

class Subset : public Dataset {
 public:
  Subset(std::shared_ptr<const Dataset> source, std::vector<int64_t> rows)
      : source_(std::move(source)), rows_(std::move(rows)) {}
  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  const std::vector<Column>& columns() const override { return source_->columns(); }
  absl::Status Read(int64_t i, int c, std::span<std::byte> out) const override {
    return source_->Read(rows_[i], c, out);
  }
  std::string Describe(int64_t i) const override { return source_->Describe(rows_[i]); }

 private:
  std::shared_ptr<const Dataset> source_;
  std::vector<int64_t> rows_;
};

class Constants : public Dataset {
 public:
  Constants(std::shared_ptr<const Dataset> source, std::vector<ConstantColumn> constants)
      : source_(std::move(source)),
        own_(static_cast<int>(source_->columns().size())),
        constants_(std::move(constants)),
        columns_(source_->columns()) {
    for (const ConstantColumn& c : constants_) columns_.push_back({.name = c.name, .sample = c.sample.type()});
  }
  int64_t size() const override { return source_->size(); }
  const std::vector<Column>& columns() const override { return columns_; }
  absl::Status Read(int64_t i, int c, std::span<std::byte> out) const override {
    if (c < own_) return source_->Read(i, c, out);
    const auto bytes = constants_[c - own_].sample.bytes();
    if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  std::string Describe(int64_t i) const override { return source_->Describe(i); }

 private:
  std::shared_ptr<const Dataset> source_;
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

Split SplitDataset(const std::shared_ptr<const Dataset>& source, double fraction, bool last, uint64_t seed) {
  const int64_t n = source->size();
  const int64_t carved = std::clamp<int64_t>(std::llround(fraction * static_cast<double>(n)), 1, n - 1);
  // Epoch 0 and up belong to training: the split draws its own permutation.
  std::vector<int64_t> order = EpochOrder(n, seed, -1, !last);
  const auto middle = order.begin() + (n - carved);
  std::sort(order.begin(), middle);
  std::sort(middle, order.end());
  return {SubsetDataset(source, {order.begin(), middle}), SubsetDataset(source, {middle, order.end()})};
}

}  // namespace onnxtrain::cli
