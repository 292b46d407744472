// The columns of JSON lines while they are read: values come in, line by line, and a tensor comes out.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/csv_columns.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/json.h"

namespace onnxtrain {

// The type of a column is that of its first value other than null: an array, or what a CSV column is.
class JsonColumn {
 public:
  JsonColumn(CsvColumnSpec spec, std::unique_ptr<CsvColumn> values);
  ~JsonColumn();

  // Adds the value of the line `row`; null is a missing value. Fails where the whole file is of no use.
  absl::Status Add(int64_t row, const OrderedJson& value);
  void AddUnreadable(std::string why);
  absl::StatusOr<NamedTensor> Finish();

 private:
  class Arrays;
  struct Pending {
    int64_t row;
    std::string why;  // "": a missing value
  };
  std::string WhyNotFirst(const OrderedJson& value) const;
  absl::Status RefuseFirst(int64_t row, const OrderedJson& value, const std::string& why);
  std::string Locate(int64_t row, const std::string& why) const;
  absl::Status Decide(const OrderedJson& first);
  std::string WhyNotSingle(const OrderedJson& value) const;
  absl::Status AddValue(int64_t row, const OrderedJson& value);

  CsvColumnSpec spec_;
  std::unique_ptr<CsvColumn> values_;  // of single values
  std::unique_ptr<Arrays> arrays_;     // or of arrays
  bool decided_ = false;
  std::vector<Pending> pending_;  // samples before it is decided which
  int64_t samples_ = 0;
  std::string problem_;
  std::map<int64_t, std::string> unreadable_;
};

}  // namespace onnxtrain
