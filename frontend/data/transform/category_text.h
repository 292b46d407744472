// Reads values of a column as names of categories.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

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

}  // namespace onnxtrain
