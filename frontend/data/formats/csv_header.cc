#include "frontend/data/formats/csv_header.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>

#include "frontend/base/units.h"
#include "frontend/data/formats/csv_columns.h"

namespace onnxtrain {
namespace {

using Record = std::vector<std::string>;

constexpr size_t kFewNumbers = 3, kManyNumbers = 16;  // that are in order by chance, and never

bool IsBlank(const std::string& field) { return TrimBlanks(field).empty(); }
bool IsInteger(const std::string& field) { return ParseInt(TrimBlanks(field)).ok(); }

class Rows {
 public:
  Rows(const Record& first, const Record& next, bool decimal_comma)
      : first_(first), next_(next), decimal_comma_(decimal_comma) {
    for (const std::string& field : first) {
      if (const auto number = ParseCsvNumber(field, decimal_comma)) numbers_.push_back(*number);
    }
  }

  FirstRow Classify() const {
    if (std::ranges::all_of(first_, IsBlank)) return FirstRow::kSample;
    if (numbers_.empty()) return HasNames() ? FirstRow::kNames : FirstRow::kSample;
    if (next_.size() != first_.size()) return FirstRow::kSample;
    const bool named = HasCorner() || NamesSomeNumbers() || NumbersColumns();
    return named ? FirstRow::kNumbers : FirstRow::kSample;
  }

 private:
  bool IsNumber(const std::string& field) const { return IsCsvNumber(field, decimal_comma_); }

  bool HasNames() const {
    const bool plain = std::ranges::none_of(first_, IsBlank) &&
                       std::set<std::string>(first_.begin(), first_.end()).size() == first_.size();
    return plain || (next_.size() == first_.size() && std::ranges::any_of(next_, [&](auto& f) { return IsNumber(f); }));
  }

  bool CountFrom(double start) const {
    for (size_t i = 0; i < numbers_.size(); ++i) {
      if (numbers_[i] != start + static_cast<double>(i)) return false;
    }
    return true;
  }

  bool AreInOrder() const {
    return numbers_.size() >= kFewNumbers &&
           (std::ranges::adjacent_find(numbers_, std::greater_equal()) == numbers_.end() ||
            std::ranges::adjacent_find(numbers_, std::less_equal()) == numbers_.end());
  }

  bool HasCorner() const {
    return numbers_.size() == first_.size() - 1 && IsBlank(first_[0]) && !IsBlank(next_[0]) &&
           (CountFrom(0) || AreInOrder());
  }

  // Behind a corner, too.
  bool NamesSomeNumbers() const {
    bool names = false;
    for (size_t c = 0; c < first_.size(); ++c) {
      if (IsNumber(first_[c])) continue;
      if (IsBlank(first_[c]) && (c > 0 || IsBlank(next_[c]))) return false;
      names |= !IsBlank(first_[c]) && !IsMissingValue(first_[c]) && IsNumber(next_[c]);
    }
    return names && numbers_.size() >= kFewNumbers && (CountFrom(0) || CountFrom(1));
  }

  bool NumbersColumns() const {
    const size_t count = numbers_.size();
    if (count != first_.size() || count < 2 || !CountFrom(0)) return false;
    const auto has_fraction = [&](const std::string& field) { return IsNumber(field) && !IsInteger(field); };
    if (count < kFewNumbers) return std::ranges::all_of(next_, has_fraction);
    return std::ranges::any_of(next_, has_fraction) || (count >= kManyNumbers && !GoesOn());
  }

  // Is the next row in steps of one, too?
  bool GoesOn() const {
    const auto in_steps = [&](const std::string& a, const std::string& b) {
      const auto from = ParseCsvNumber(a, decimal_comma_), to = ParseCsvNumber(b, decimal_comma_);
      return from && to && *to == *from + 1;
    };
    return std::ranges::adjacent_find(next_, std::not_fn(in_steps)) == next_.end();
  }

  const Record &first_, &next_;
  const bool decimal_comma_;
  std::vector<double> numbers_;  // of the first row
};

}  // namespace

FirstRow ClassifyFirstRow(const Record& first, const Record& next, bool decimal_comma) {
  return Rows(first, next, decimal_comma).Classify();
}

}  // namespace onnxtrain
