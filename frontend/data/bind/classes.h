// Lists of classes: files that give their order, classes by value, and names that a file spells differently from the
// training data.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Files that give the order of classes.

// Reads a name per line, in the order of the indices, or "name,index" on every line (the name in quotes where it has a
// comma). The indices must be 0 to n - 1. Blank lines do not count. Errors name the file and the row.
absl::StatusOr<std::vector<std::string>> ReadClassMap(const std::string& path);

// Labels that are the classes themselves, as indices into a list of classes.

// The classes as numbers; empty if one is no integer.
std::vector<int64_t> IntegerClasses(const std::vector<std::string>& classes);
// Is class i the number i?
bool AreIndices(const std::vector<std::string>& classes);

// Returns the distinct whole numbers of a label column with one value per sample, ascending, without `ignore_index`.
// Values that are no whole numbers are left out with `skip_bad`. Empty where they are not, and where there are more
// than 2^20.
std::vector<int64_t> FindDistinctLabels(const Dataset& data, int column, int64_t ignore_index, bool skip_bad);

// `source` with the numbers of a column replaced by their places in `classes`, which must be integers. Read fails on
// other numbers, with the row and the value. `ignore_index` stays.
std::shared_ptr<const Dataset> WithClassIndices(std::shared_ptr<const Dataset> source, int column,
                                                const std::vector<std::string>& classes, int64_t ignore_index);

// Names of classes that a file spells differently from the training data: "<=50K." for "<=50K", "Spam" for "spam".

class ClassSpellings {
 public:
  explicit ClassSpellings(std::vector<std::string> classes);

  // Returns the class that `name` differs from in case, in blanks or quotes around it, or in full stops at its end
  // alone. "" where no class, or more than one, is such.
  std::string Find(std::string_view name) const;

  // Returns the end of a message about a name that is no class: "; did you mean 'dog'?", or "" where none is near.
  std::string Suggest(std::string_view name) const;

 private:
  std::vector<std::string> classes_;
  std::unordered_map<std::string, std::string> by_form_;  // "" where several classes have one form
};

// Returns two of the names that differ as ClassSpellings::Find allows; empty where no two do.
std::pair<std::string, std::string> FindTwoSpellings(const std::vector<std::string>& names);

}  // namespace onnxtrain
