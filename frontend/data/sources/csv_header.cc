#include "frontend/data/sources/csv_header.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "frontend/base/units.h"
#include "frontend/data/sources/csv_columns.h"

namespace onnxtrain {
namespace {

using Record = std::vector<std::string>;

// So many numbers are in order by chance, seldom, and never.
constexpr size_t kFewNumbers = 3, kSeveralNumbers = 5, kManyNumbers = 16;
constexpr double kFirstYear = 1800, kLastYear = 2100;

bool IsBlank(const std::string& field) { return TrimBlanks(field).empty(); }
bool IsInteger(const std::string& field) { return ParseInt(TrimBlanks(field)).ok(); }

bool CountFrom(double start, const std::vector<double>& numbers) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] != start + static_cast<double>(i)) return false;
  }
  return true;
}

bool AreInSteps(const std::vector<double>& numbers) { return !numbers.empty() && CountFrom(numbers[0], numbers); }

bool AreInOrder(const std::vector<double>& numbers) {
  return numbers.size() >= kFewNumbers && (std::ranges::adjacent_find(numbers, std::greater_equal()) == numbers.end() ||
                                           std::ranges::adjacent_find(numbers, std::less_equal()) == numbers.end());
}

bool AreEvenlySpaced(const std::vector<double>& numbers) {
  for (size_t i = 2; i < numbers.size(); ++i) {
    if (numbers[i] - numbers[i - 1] != numbers[1] - numbers[0]) return false;
  }
  return true;
}

bool AreYears(const std::vector<double>& numbers) {
  return std::ranges::all_of(numbers, [](double n) { return n == std::floor(n) && n >= kFirstYear && n <= kLastYear; });
}

class Rows {
 public:
  Rows(const Record& first, const Record& next, bool decimal_comma)
      : first_(first), next_(next), decimal_comma_(decimal_comma) {
    for (size_t c = 0; c < first.size(); ++c) {
      const auto number = Parse(first[c]);
      if (!number) continue;
      numbers_.push_back(*number);
      if (const auto below = c < next.size() ? Parse(next[c]) : std::nullopt) below_.push_back(*below);
    }
  }

  FirstRow Classify() const {
    if (std::ranges::all_of(first_, IsBlank)) return FirstRow::kSample;
    if (numbers_.empty()) return HasNames() ? FirstRow::kNames : FirstRow::kSample;
    if (next_.size() != first_.size()) return FirstRow::kSample;
    const bool named = numbers_.size() == first_.size() ? AreNames() : HasCorner() || AreNamesBesideOthers();
    return named ? FirstRow::kNumbers : FirstRow::kSample;
  }

 private:
  // "inf" is a name.
  std::optional<double> Parse(const std::string& field) const {
    const auto number = ParseCsvNumber(field, decimal_comma_);
    return number && std::isfinite(*number) ? number : std::nullopt;
  }
  bool IsNumber(const std::string& field) const { return Parse(field).has_value(); }

  bool HasNames() const {
    const bool plain = std::ranges::none_of(first_, IsBlank) &&
                       std::set<std::string>(first_.begin(), first_.end()).size() == first_.size();
    return plain || (next_.size() == first_.size() && std::ranges::any_of(next_, [&](auto& f) { return IsNumber(f); }));
  }

  // Years above what are none, or numbers in steps of one above others.
  bool AreSeries(size_t fewest) const {
    const bool in_order = AreInOrder(numbers_) && AreEvenlySpaced(numbers_);
    if (in_order && AreYears(numbers_) && !AreYears(below_)) return true;
    return numbers_.size() >= fewest && AreInSteps(numbers_) && !AreInSteps(below_);
  }

  bool HasCorner() const {
    return numbers_.size() == first_.size() - 1 && IsBlank(first_[0]) && !IsBlank(next_[0]) &&
           (CountFrom(0, numbers_) || AreInOrder(numbers_));
  }

  // Behind a corner, too.
  bool AreNamesBesideOthers() const {
    bool names = false, above_number = false;
    for (size_t c = 0; c < first_.size(); ++c) {
      if (IsNumber(first_[c])) continue;
      if (IsBlank(first_[c]) && (c > 0 || IsBlank(next_[c]))) return false;
      const bool name = !IsMissingValue(first_[c]);
      names |= name;
      above_number |= name && IsNumber(next_[c]);
    }
    if (above_number && numbers_.size() >= kFewNumbers && (CountFrom(0, numbers_) || CountFrom(1, numbers_)))
      return true;
    return names && AreSeries(kSeveralNumbers);
  }

  bool AreNames() const {
    const auto has_fraction = [&](const std::string& field) { return IsNumber(field) && !IsInteger(field); };
    const bool from_zero = numbers_.size() >= kFewNumbers && CountFrom(0, numbers_);
    return (from_zero && std::ranges::any_of(next_, has_fraction)) || AreSeries(kManyNumbers);
  }

  const Record &first_, &next_;
  const bool decimal_comma_;
  std::vector<double> numbers_, below_;  // of the first row; those of the next one below them
};

}  // namespace

FirstRow ClassifyFirstRow(const Record& first, const Record& next, bool decimal_comma) {
  return Rows(first, next, decimal_comma).Classify();
}

}  // namespace onnxtrain
