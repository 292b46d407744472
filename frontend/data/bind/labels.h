// Labels as read from the data, before a loss is chosen, and lists of classes: files that define their order, integer
// classes, and names that differ in spelling from those of the training data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/graph/type.h"

namespace onnxtrain {

// Type and range of the labels of a data set; `present` is false if it has none.
struct LabelInfo {
  bool present = false;
  Type sample;                           // element type and shape of one sample's label
  int64_t min_value = 0, max_value = 0;  // range of integer labels without the ignore index
};

// Reads the order of classes from a file: one name per line, or "name,index" on every line (names with commas in
// quotes). The indices must be 0 to n - 1. Skips blank lines. Errors name the file and the row.
absl::StatusOr<std::vector<std::string>> ReadClassMap(const std::string& path);

// Parses class names as integers; empty if one is no integer.
std::vector<int64_t> IntegerClasses(const std::vector<std::string>& classes);
// Returns true if every class i is named "i".
bool AreIndices(const std::vector<std::string>& classes);

// Returns the distinct integers of a label column with one value per sample, ascending, without `ignore_index`. Returns
// an empty vector if there are more than 2^20, or if a value is no integer and `skip_bad` is false.
std::vector<int64_t> FindDistinctLabels(const Dataset& data, int column, int64_t ignore_index, bool skip_bad);

// Returns a view of `source` with the integers of a column replaced by their indices in `classes`. Read fails, with row
// and value, on other numbers. `ignore_index` stays.
std::shared_ptr<const Dataset> WithClassIndices(std::shared_ptr<const Dataset> source, int column,
                                                const std::vector<std::string>& classes, int64_t ignore_index);

// Matches class names of a file with those of the training data: "<=50K." with "<=50K", "Spam" with "spam".
class ClassSpellings {
 public:
  explicit ClassSpellings(std::vector<std::string> classes);

  // Returns the class that equals `name` up to case, surrounding blanks or quotes, and trailing full stops. "" if there
  // is none or more than one.
  std::string Find(std::string_view name) const;

  // Returns the end of an error message about an unknown class: "; did you mean 'dog'?", or "" if none is similar.
  std::string Suggest(std::string_view name) const;

 private:
  std::vector<std::string> classes_;
  std::unordered_map<std::string, std::string> by_form_;  // "" if several classes have the same form
};

// Returns two names that ClassSpellings::Find considers equal; empty strings if there are none.
std::pair<std::string, std::string> FindTwoSpellings(const std::vector<std::string>& names);

}  // namespace onnxtrain
