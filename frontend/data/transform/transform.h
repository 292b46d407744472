// Transforms that are fitted on the training samples and applied to all data of the model: encoding of categories,
// values for missing entries, standardization.
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

// Reads the values of a column as category names.
class CategoryReader {
 public:
  // Requires a column with one value per sample: names (Column::classes), or numbers, whose decimal text is their name.
  CategoryReader(const Dataset& data, int c);
  // Returns nullopt if the value is missing.
  absl::StatusOr<std::optional<std::string>> Read(int64_t i) const;

 private:
  const Dataset& data_;
  int c_;
};

// Sorts numerically if all names are integers, else alphabetically.
void SortCategories(std::vector<std::string>* names);

// How one column of a file becomes numeric columns.
struct ColumnTransform {
  std::string column;
  // Category names in order; empty for numeric columns. With one_hot, each becomes a column "COLUMN=NAME" of 0 and 1;
  // else the column holds the index of the category.
  std::vector<std::string> categories;
  bool one_hot = false;
  bool open = false;  // unknown and missing categories have index -1
  // Replaces missing values: one number per element of a sample, or one for all; for categories, an index. Empty: no
  // value is missing.
  std::vector<double> fill;

  bool operator==(const ColumnTransform&) const = default;
};

// Selects the columns to transform and how. `encode` and `fill` apply to columns that are not named.
struct TransformSpec {
  std::string encode, fill;  // encode: onehot, index; fill: mean, median, most_frequent or a number; "": none
  std::map<std::string, std::string> encode_of, fill_of;  // column name → method
  ColumnSet encoded() const;
  ColumnSet filled() const;
};
// Parses lists of [COLUMN=]METHOD. Errors name the flag.
absl::StatusOr<TransformSpec> ParseTransforms(const std::vector<std::string>& encode,
                                              const std::vector<std::string>& fill);

// Fits the columns that are not in `labels` to the samples `rows`. Ignores samples that cannot be read.
absl::StatusOr<std::vector<ColumnTransform>> FitTransforms(const Dataset& data, std::span<const int64_t> rows,
                                                           const TransformSpec& spec,
                                                           const std::set<std::string>& labels);

// Returns a view of `source` with the transforms applied; one-hot columns replace their column. An unknown category is
// 0 in all its one-hot columns, or index -1 if the transform is open, which is reported in `notes`; otherwise the
// sample is unreadable. Fails if a column is missing in `source`.
absl::StatusOr<std::shared_ptr<const Dataset>> ApplyTransforms(std::shared_ptr<const Dataset> source,
                                                               const std::vector<ColumnTransform>& transforms,
                                                               std::vector<std::string>* notes);

// Returns the columns that replace `column` in the view: itself, or its one-hot columns.
std::vector<std::string> TransformedColumns(const std::vector<ColumnTransform>& transforms, const std::string& column);

// Mean and standard deviation of each element of a feed, or of all elements together if samples of a column have more
// than one axis. 0 and 1 for columns that are not measured; the divisor is 1 for constant ones.
struct Standardization {
  std::vector<double> shift, divisor;
};
// Ignores values that are missing, not finite or unreadable. One pass of Welford's method in extended precision.
absl::StatusOr<Standardization> FitStandardization(const Dataset& data, const std::vector<int>& columns);

}  // namespace onnxtrain
