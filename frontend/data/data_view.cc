#include "frontend/data/data_view.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/epoch_order.h"

namespace onnxtrain {
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
  int64_t memory_bytes() const override { return source_->memory_bytes(); }

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
  int64_t memory_bytes() const override { return source_->memory_bytes(); }

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

namespace {

absl::StatusOr<bool> IsForEvaluation(const std::string& name) {
  static constexpr const char* kEvaluation[] = {"test", "eval", "valid", "validation", "val", "dev"};
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (std::find(std::begin(kEvaluation), std::end(kEvaluation), lower) != std::end(kEvaluation)) return true;
  if (lower == "train" || lower == "training") return false;
  return Invalid("`eval_split`: expected train, test, eval, valid, val or dev, got '", name, "'");
}

// By class of the column; for columns of numbers empty.
absl::StatusOr<std::vector<bool>> EvaluationClasses(const Column& column) {
  std::vector<bool> classes;
  for (const std::string& name : column.classes) {
    ASSIGN_OR_RETURN(const bool evaluation, IsForEvaluation(name));
    classes.push_back(evaluation);
  }
  return classes;
}

}  // namespace

absl::StatusOr<Split> SplitByColumn(const std::shared_ptr<const Dataset>& source, const std::string& path,
                                    Header header, const std::string& column) {
  const auto opened = OpenDataset(path, {.header = header, .label = {column}});
  if (!opened.ok())
    return Annotate(opened.status(), StrCat("`eval_split` ", column, " (neither a fraction nor a column?): "));
  const auto& columns = (*opened)->columns();
  const auto it = std::find_if(columns.begin(), columns.end(), [&](const Column& c) { return c.name == column; });
  if (it == columns.end())
    return Invalid("`eval_split`: expected a fraction like 0.1, last:0.1 or a column; there is no column '", column,
                   "'");
  if (!it->problem.empty() || !it->sample.shape.empty())
    return Invalid("`eval_split` ", column, ": ",
                   it->problem.empty() ? "its samples are no single values" : it->problem);
  ASSIGN_OR_RETURN(const std::vector<bool> classes, EvaluationClasses(*it));
  std::vector<int64_t> rows[2];
  HostTensor value(it->sample);
  for (int64_t i = 0; i < source->size(); ++i) {
    RETURN_IF_ERROR((*opened)->Read(i, static_cast<int>(it - columns.begin()), value.mutable_bytes()));
    rows[classes.empty() ? value.At(0) != 0 : classes[value.IntAt(0)]].push_back(i);
  }
  if (rows[0].empty() || rows[1].empty()) {
    return Invalid("`eval_split` ", column, ": puts all samples into ", rows[0].empty() ? "evaluation" : "training");
  }
  return Split{SubsetDataset(source, std::move(rows[0])), SubsetDataset(source, std::move(rows[1]))};
}

absl::StatusOr<SplitSpec> ParseSplit(std::string_view text) {
  SplitSpec spec;
  std::string_view number = text;
  if (number.starts_with("last:")) {
    spec.last = true;
    number.remove_prefix(5);
  }
  const auto fraction = ParseNumber(number);
  if (!fraction.ok() || *fraction <= 0 || *fraction >= 1) {
    return Invalid("expected a fraction between 0 and 1, like 0.1 or last:0.1, got '", text, "'");
  }
  spec.fraction = *fraction;
  return spec;
}

}  // namespace onnxtrain
