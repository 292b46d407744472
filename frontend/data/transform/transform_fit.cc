#include <algorithm>
#include <cmath>
#include <map>

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/transform/convert.h"
#include "frontend/data/transform/transform.h"

namespace onnxtrain {
namespace {

// Mean and deviation in one pass (Welford, 1962). Extended precision holds the squares of all doubles.
struct Moments {
  int64_t count = 0;
  long double mean = 0, squares = 0;
  void Add(double x) {
    if (!std::isfinite(x)) return;
    const long double before = x - mean;
    mean += before / static_cast<long double>(++count);
    squares += before * (x - mean);
  }
  double deviation() const {
    return count > 0 ? static_cast<double>(std::sqrt(squares / static_cast<long double>(count))) : 0;
  }
};

// Reads samples of a column as doubles.
class NumberReader {
 public:
  NumberReader(const Dataset& data, int c)
      : data_(data), c_(c), raw_(column().sample.bytes()), values_(column().sample.elements()) {}
  const Column& column() const { return data_.columns()[c_]; }
  // Returns no values for a sample that cannot be read.
  std::span<const double> Read(int64_t i) {
    const bool readable = data_.Read(i, c_, raw_).ok() && ConvertValues(column().sample.dtype, raw_, DType::kFloat64,
                                                                        reinterpret_cast<std::byte*>(values_.data()), 1)
                                                              .ok();
    return readable ? std::span<const double>(values_) : std::span<const double>();
  }

 private:
  const Dataset& data_;
  int c_;
  std::vector<std::byte> raw_;
  std::vector<double> values_;
};

// Statistics of how many elements of a sample are kept apart: of rows of features each, of images and sequences none.
size_t KeptApart(const Column& column) {
  return column.sample.rank() <= 1 ? static_cast<size_t>(column.sample.elements()) : 1;
}

double Mean(std::vector<double>* values) {
  Moments moments;
  for (double x : *values) moments.Add(x);
  return static_cast<double>(moments.mean);
}

double Median(std::vector<double>* values) {
  const auto middle = values->begin() + static_cast<std::ptrdiff_t>(values->size() / 2);
  std::nth_element(values->begin(), middle, values->end());
  if (values->size() % 2 == 1) return *middle;
  return *middle / 2 + *std::max_element(values->begin(), middle) / 2;
}

// The least of several.
double MostFrequent(std::vector<double>* values) {
  std::map<double, int64_t> counts;
  for (double x : *values) ++counts[x];
  return std::max_element(counts.begin(), counts.end(), [](auto& a, auto& b) { return a.second < b.second; })->first;
}

struct FillRow {
  const char* name;
  double (*value)(std::vector<double>* values);
};
constexpr FillRow kFills[] = {{"mean", Mean}, {"median", Median}, {"most_frequent", MostFrequent}};

absl::Status CheckFill(const std::string& how) {
  const bool known = std::ranges::any_of(kFills, [&](const FillRow& row) { return row.name == how; });
  if (known || ParseNumber(how).ok()) return absl::OkStatus();
  return Invalid("`fill`: expected mean, median, most_frequent or a number, got '", how, "'");
}

absl::Status CheckEncoding(const std::string& how) {
  if (how == "onehot" || how == "index") return absl::OkStatus();
  return Invalid("`encode`: expected onehot or index, got '", how, "'");
}

// Parses [COLUMN=]HOW; HOW is behind the last '='.
absl::Status ParseHows(const std::vector<std::string>& texts, const char* flag,
                       absl::Status (*check)(const std::string&), std::string* all,
                       std::map<std::string, std::string>* of) {
  for (const std::string& text : texts) {
    const size_t at = text.rfind('=');
    const std::string how = at == std::string::npos ? text : text.substr(at + 1);
    RETURN_IF_ERROR(check(how));
    const bool twice =
        at == std::string::npos ? !std::exchange(*all, how).empty() : !of->emplace(text.substr(0, at), how).second;
    if (twice) return Invalid("`", flag, "` ", text, ": given twice");
  }
  return absl::OkStatus();
}

std::string ChooseHow(const std::string& all, const std::map<std::string, std::string>& of, const std::string& column) {
  const auto found = of.find(column);
  return found != of.end() ? found->second : all;
}

ColumnSet MakeSet(const std::string& all, const std::map<std::string, std::string>& of) {
  ColumnSet set{.all = !all.empty()};
  for (const auto& [column, how] : of) set.names.insert(column);
  return set;
}

absl::StatusOr<ColumnTransform> FitCategories(const Dataset& data, int c, std::span<const int64_t> rows,
                                              const std::string& how, bool fill) {
  CategoryReader reader(data, c);
  std::map<std::string, int64_t> counts;
  for (int64_t i : rows) {
    const auto name = reader.Read(i);
    if (name.ok() && name->has_value()) ++counts[**name];
  }
  const std::string& column = data.columns()[c].name;
  if (counts.empty()) return Invalid("`encode`: column '", column, "' has no category");
  ColumnTransform transform{.column = column, .one_hot = how == "onehot"};
  for (const auto& [name, count] : counts) transform.categories.push_back(name);
  SortCategories(&transform.categories);
  if (!fill) return transform;
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](auto& a, auto& b) { return a.second < b.second; });
  const auto place = std::ranges::find(transform.categories, most->first) - transform.categories.begin();
  transform.fill = {static_cast<double>(place)};
  return transform;
}

absl::StatusOr<ColumnTransform> FitFill(const Dataset& data, int c, std::span<const int64_t> rows,
                                        const std::string& how) {
  NumberReader reader(data, c);
  ColumnTransform transform{.column = reader.column().name};
  if (const auto number = ParseNumber(how); number.ok()) {
    transform.fill = {*number};
    return transform;
  }
  std::vector<std::vector<double>> values(KeptApart(reader.column()));
  for (int64_t i : rows) {
    const std::span<const double> sample = reader.Read(i);
    for (size_t k = 0; k < sample.size(); ++k) {
      if (std::isfinite(sample[k])) values[k % values.size()].push_back(sample[k]);
    }
  }
  const auto row = std::ranges::find_if(kFills, [&](const FillRow& r) { return r.name == how; });
  for (std::vector<double>& of_element : values) {
    if (of_element.empty()) return Invalid("`fill`: column '", transform.column, "' has no value to fit ", how, " to");
    transform.fill.push_back(row->value(&of_element));
  }
  return transform;
}

// Returns a transform without categories and fill where the column needs none.
absl::StatusOr<ColumnTransform> FitColumn(const Dataset& data, int c, std::span<const int64_t> rows,
                                          const TransformSpec& spec) {
  const Column& column = data.columns()[c];
  const std::string fill = ChooseHow(spec.fill, spec.fill_of, column.name);
  const bool named = spec.encode_of.contains(column.name);
  if (named || (!spec.encode.empty() && !column.classes.empty()))
    return FitCategories(data, c, rows, ChooseHow(spec.encode, spec.encode_of, column.name), !fill.empty());
  if (!fill.empty() && IsFloat(column.sample.dtype)) return FitFill(data, c, rows, fill);
  // Whole numbers of training data may be missing elsewhere.
  if (!fill.empty() && column.sample.shape.empty() && !IsStorage(column.sample.dtype))
    return FitFill(data, c, rows, fill);
  return ColumnTransform{.column = column.name};
}

absl::Status CheckNamed(const Dataset& data, const std::map<std::string, std::string>& of,
                        const std::set<std::string>& labels, const char* flag) {
  for (const auto& [name, how] : of) {
    const auto column = std::ranges::find(data.columns(), name, &Column::name);
    if (column == data.columns().end())
      return Invalid("`", flag, "` ", name, "=", how, ": there is no column '", name, "'");
    if (labels.contains(name)) return Invalid("`", flag, "` ", name, "=", how, ": '", name, "' is the label");
    if (!column->problem.empty()) return Invalid("`", flag, "` ", name, "=", how, ": ", column->problem);
  }
  return absl::OkStatus();
}

}  // namespace

ColumnSet TransformSpec::encoded() const { return MakeSet(encode, encode_of); }
ColumnSet TransformSpec::filled() const { return MakeSet(fill, fill_of); }

absl::StatusOr<TransformSpec> ParseTransforms(const std::vector<std::string>& encode,
                                              const std::vector<std::string>& fill) {
  TransformSpec spec;
  RETURN_IF_ERROR(ParseHows(encode, "encode", CheckEncoding, &spec.encode, &spec.encode_of));
  RETURN_IF_ERROR(ParseHows(fill, "fill", CheckFill, &spec.fill, &spec.fill_of));
  return spec;
}

absl::StatusOr<std::vector<ColumnTransform>> FitTransforms(const Dataset& data, std::span<const int64_t> rows,
                                                           const TransformSpec& spec,
                                                           const std::set<std::string>& labels) {
  RETURN_IF_ERROR(CheckNamed(data, spec.encode_of, labels, "encode"));
  RETURN_IF_ERROR(CheckNamed(data, spec.fill_of, labels, "fill"));
  std::vector<ColumnTransform> transforms;
  for (int c = 0; c < static_cast<int>(data.columns().size()); ++c) {
    const Column& column = data.columns()[c];
    if (!column.problem.empty() || column.image || labels.contains(column.name)) continue;
    ASSIGN_OR_RETURN(ColumnTransform transform, FitColumn(data, c, rows, spec));
    if (!transform.categories.empty() || !transform.fill.empty()) transforms.push_back(std::move(transform));
  }
  return transforms;
}

absl::StatusOr<Standardization> FitStandardization(const Dataset& data, const std::vector<int>& columns) {
  Standardization fitted;
  std::vector<std::vector<Moments>> moments;
  for (int c : columns) {
    NumberReader reader(data, c);
    if (!reader.column().problem.empty()) return Invalid(reader.column().problem);
    std::vector<Moments>& of_column = moments.emplace_back(KeptApart(reader.column()));
    if (!reader.column().measured) continue;
    for (int64_t i = 0; i < data.size(); ++i) {
      const std::span<const double> sample = reader.Read(i);
      for (size_t k = 0; k < sample.size(); ++k) of_column[k % of_column.size()].Add(sample[k]);
    }
  }
  // Several columns are concatenated along a last axis.
  for (size_t k = 0; !moments.empty() && k < moments[0].size(); ++k) {
    for (const std::vector<Moments>& of_column : moments) {
      const double deviation = of_column[k].deviation();
      fitted.shift.push_back(static_cast<double>(of_column[k].mean));
      fitted.divisor.push_back(deviation > 0 ? deviation : 1);
    }
  }
  return fitted;
}

}  // namespace onnxtrain
