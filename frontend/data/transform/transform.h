// What is fitted on the training samples and applied to every other file of the model: categories as numbers, values
// for missing ones, standardized numbers.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/load/loader.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Reads values of a column as names of categories.

class CategoryReader {
 public:
  // The column holds one value per sample: names (Column::classes) or numbers, which are their own names.
  CategoryReader(const Dataset& data, int c);
  // Nullopt where the value is missing.
  absl::StatusOr<std::optional<std::string>> Read(int64_t i) const;

 private:
  const Dataset& data_;
  int c_;
};

// By number where all are integers, else by name.
void SortCategories(std::vector<std::string>* names);

// How one column of a file becomes columns of numbers.
struct ColumnTransform {
  std::string column;
  // Of a column of categories: their names in order. one_hot: a column "COLUMN=NAME" of 0 and 1 for each; else the
  // column holds the place of the name.
  std::vector<std::string> categories;
  bool one_hot = false;
  bool open = false;  // a name that is not among them, or is missing, has the place -1
  // Replaces missing values: one number for each element of a sample, or one for all. For categories a place among
  // them. Empty: none is missing.
  std::vector<double> fill;

  bool operator==(const ColumnTransform&) const = default;
};

// Which columns are transformed and how: "" for all the others that are not named.
struct TransformSpec {
  std::string encode, fill;                               // onehot, index; mean, median, most_frequent or a number
  std::map<std::string, std::string> encode_of, fill_of;  // by column
  ColumnSet encoded() const;
  ColumnSet filled() const;
};
// Parses lists of [COLUMN=]HOW; errors name the flag.
absl::StatusOr<TransformSpec> ParseTransforms(const std::vector<std::string>& encode,
                                              const std::vector<std::string>& fill);

// Fits the columns that are not in `labels` to the samples `rows`. Samples that cannot be read do not count.
absl::StatusOr<std::vector<ColumnTransform>> FitTransforms(const Dataset& data, std::span<const int64_t> rows,
                                                           const TransformSpec& spec,
                                                           const std::set<std::string>& labels);

// Returns a view of `source` with the transforms applied: one-hot columns stand where their column was. A category that
// the transform does not know is 0 in all its one-hot columns, or the place -1 where it is open, which `notes` tells;
// else the sample is unreadable. Fails on a column that `source` does not have.
absl::StatusOr<std::shared_ptr<const Dataset>> ApplyTransforms(std::shared_ptr<const Dataset> source,
                                                               const std::vector<ColumnTransform>& transforms,
                                                               std::vector<std::string>* notes);

// Returns the columns that stand for `column` in the view: itself, or its one-hot columns.
std::vector<std::string> TransformedColumns(const std::vector<ColumnTransform>& transforms, const std::string& column);

// Mean and standard deviation of every element of a feed over the data, or of all elements together where samples of
// one column have more than one axis. 0 and 1 for columns that are not measured; a divisor of 1 for constant ones.
struct Standardization {
  std::vector<double> shift, divisor;
};
// Values that are missing, not finite or unreadable do not count (one pass of Welford's method in extended precision).
absl::StatusOr<Standardization> FitStandardization(const Dataset& data, const std::vector<int>& columns);

}  // namespace onnxtrain
