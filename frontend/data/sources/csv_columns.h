// The columns of a CSV file while it is read: fields come in, row by row, and a column of numbers or classes comes out.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

std::string_view TrimBlanks(std::string_view s);
// Parses a number with blanks around it; nullopt for NaN, which denotes a missing value. 1,234.5, 12% and $5 are
// numbers; with `decimal_comma` 1,5 and 1.234,5 are, instead of 1,234.5.
std::optional<double> ParseCsvNumber(std::string_view s, bool decimal_comma = false);
bool IsCsvNumber(std::string_view s, bool decimal_comma = false);
// Is it empty, NA, NaN, null, none, ?, - or . in one of their spellings, blanks around it apart?
bool IsMissingValue(std::string_view s);

struct CsvColumnSpec {
  std::string path, name;
  const char* unit = "row";  // that samples are counted in, for people
  enum class Text : uint8_t { kProblem, kCategories, kAlwaysCategories } text = Text::kProblem;
  bool keep_missing = false, skip_bad = false;  // DatasetOptions has what they mean
  bool decimal_comma = false;
  bool trim_classes = false;              // names of classes have no blanks around them
  std::vector<std::string> classes = {};  // of a label column: their order; empty: sorted
};

class CsvColumn {
 public:
  virtual ~CsvColumn() = default;
  // Rows are numbered as in a spreadsheet. Fails only where the whole file is of no use.
  virtual absl::Status Add(int64_t row, const std::string& field) = 0;
  // Adds a sample whose row cannot be read.
  virtual void AddUnreadable(std::string why) = 0;
  virtual NamedTensor Finish() = 0;
  // How fields that are not plain numbers were read, for people; empty: all are plain.
  virtual std::string note() const { return ""; }
};

// Numbers, or categories where the specification allows them.
std::unique_ptr<CsvColumn> MakeFeatureColumn(CsvColumnSpec spec);
// Text as it is.
std::unique_ptr<CsvColumn> MakeTextColumn(CsvColumnSpec spec);
// Numbers, or names that become indices into the sorted or given classes.
std::unique_ptr<CsvColumn> MakeLabelColumn(CsvColumnSpec spec);

// The column as DatasetOptions has it, which sets what the specification leaves open.
std::unique_ptr<CsvColumn> MakeCsvColumn(CsvColumnSpec spec, bool is_label, const DatasetOptions& options);

}  // namespace onnxtrain
