#include "frontend/data/bind/class_index.h"

#include <cstring>
#include <set>
#include <unordered_map>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/bind/data_view.h"
#include "frontend/data/transform/convert.h"

namespace onnxtrain {
namespace {

class ClassIndices : public DatasetView {
 public:
  ClassIndices(std::shared_ptr<const Dataset> source, int column, const std::vector<std::string>& classes,
               int64_t ignore_index)
      : DatasetView(std::move(source)), column_(column), columns_(source_->columns()) {
    columns_[column].sample.dtype = DType::kInt64;
    columns_[column].classes = classes;
    columns_[column].bounds.reset();
    for (const int64_t number : IntegerClasses(classes)) index_.emplace(number, index_.size());
    index_.emplace(ignore_index, ignore_index);
  }
  const std::vector<Column>& columns() const override { return columns_; }

  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    if (c != column_) return source_->Read(i, c, pass, out);
    const Type& from = source_->columns()[c].sample;
    std::vector<std::byte> raw(from.bytes());
    RETURN_IF_ERROR(source_->Read(i, c, pass, raw));
    RETURN_IF_ERROR(Annotate(ConvertValues(from.dtype, raw, DType::kInt64, out.data(), 1), Place(i)));
    auto* labels = reinterpret_cast<int64_t*>(out.data());
    for (int64_t k = 0; k < from.elements(); ++k) {
      const auto found = index_.find(labels[k]);
      if (found == index_.end())
        return Invalid(Place(i), "label ", labels[k], " is not among the model's classes ",
                       absl::StrJoin(columns_[c].classes, ", "));
      labels[k] = found->second;
    }
    return absl::OkStatus();
  }

 private:
  std::string Place(int64_t i) const { return StrCat(Describe(i), ", column '", columns_[column_].name, "': "); }

  int column_;
  std::vector<Column> columns_;
  std::unordered_map<int64_t, int64_t> index_;
};

}  // namespace

std::vector<int64_t> IntegerClasses(const std::vector<std::string>& classes) {
  std::vector<int64_t> numbers;
  for (const std::string& name : classes) {
    const auto number = ParseInt(name);
    if (!number.ok()) return {};
    numbers.push_back(*number);
  }
  return numbers;
}

bool AreIndices(const std::vector<std::string>& classes) {
  const std::vector<int64_t> numbers = IntegerClasses(classes);
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] != static_cast<int64_t>(i)) return false;
  }
  return !numbers.empty();
}

std::vector<int64_t> FindDistinctLabels(const Dataset& data, int column, int64_t ignore_index, bool skip_bad) {
  constexpr size_t kMostLabels = 1 << 20;
  const Type& type = data.columns()[column].sample;
  if (type.elements() != 1) return {};
  std::set<int64_t> found;
  std::vector<std::byte> raw(type.bytes());
  for (int64_t i = 0; i < data.size(); ++i) {
    int64_t label = 0;
    absl::Status read = data.Read(i, column, raw);
    if (read.ok()) read = ConvertValues(type.dtype, raw, DType::kInt64, reinterpret_cast<std::byte*>(&label), 1);
    if (!read.ok() && !skip_bad) return {};
    if (read.ok() && label != ignore_index) found.insert(label);
    if (found.size() > kMostLabels) return {};
  }
  return {found.begin(), found.end()};
}

std::shared_ptr<const Dataset> WithClassIndices(std::shared_ptr<const Dataset> source, int column,
                                                const std::vector<std::string>& classes, int64_t ignore_index) {
  return std::make_shared<ClassIndices>(std::move(source), column, classes, ignore_index);
}

}  // namespace onnxtrain
