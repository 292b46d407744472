#include "frontend/data/transform/transform.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/bind/labels.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/transform/convert.h"

namespace onnxtrain {
namespace {

// A view that replaces missing values of numeric columns.
class Filled : public DatasetView {
 public:
  Filled(std::shared_ptr<const Dataset> source, std::vector<std::vector<double>> fill)
      : DatasetView(std::move(source)), fill_(std::move(fill)) {}
  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    RETURN_IF_ERROR(source_->Read(i, c, pass, out));
    const std::vector<double>& fill = fill_[c];
    if (fill.empty()) return absl::OkStatus();
    // Wraps `out` without copying.
    HostTensor values(columns()[c].sample, nullptr, out.data());
    for (int64_t k = 0; k < values.size(); ++k) {
      if (std::isnan(values.At(k))) values.Set(k, fill[fill.size() == 1 ? 0 : k]);
    }
    return absl::OkStatus();
  }

 private:
  std::vector<std::vector<double>> fill_;  // fill values of each column; empty: unchanged
};

// A view that encodes categories as numbers.
class Encoded : public DatasetView {
 public:
  Encoded(std::shared_ptr<const Dataset> source, const std::vector<ColumnTransform>& transforms)
      : DatasetView(std::move(source)), transforms_(transforms) {
    for (int c = 0; c < static_cast<int>(source_->columns().size()); ++c) {
      const Column& column = source_->columns()[c];
      const auto t = std::ranges::find(transforms_, column.name, &ColumnTransform::column);
      if (t == transforms_.end() || t->categories.empty()) {
        Add({.source = c}, column);
      } else {
        AddEncoded(*t, c);
      }
    }
  }
  const std::vector<Column>& columns() const override { return columns_; }
  absl::StatusOr<std::string> ReadText(int64_t i, int c) const override {
    return source_->ReadText(i, places_[c].source);
  }
  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    const Place& place = places_[c];
    if (place.transform == nullptr) return source_->Read(i, place.source, pass, out);
    ASSIGN_OR_RETURN(const int64_t category, FindCategory(i, place));
    if (place.transform->one_hot) {
      *reinterpret_cast<float*>(out.data()) = category == place.category ? 1.0f : 0.0f;
    } else {
      *reinterpret_cast<int64_t*>(out.data()) = category;
    }
    return absl::OkStatus();
  }

  // Returns notes that count samples with unknown categories.
  std::vector<std::string> Notes() const {
    std::vector<std::string> notes;
    for (const Place& place : places_) {
      if (place.transform == nullptr || !TakesUnknown(*place.transform) || place.category != 0) continue;
      int64_t unknown = 0;
      for (int64_t i = 0; i < size(); ++i) {
        const auto category = FindCategory(i, place);
        unknown += category.ok() && *category < 0;
      }
      if (unknown > 0)
        notes.push_back(
            StrCat("column '", place.transform->column, "': ", unknown,
                   unknown == 1 ? " sample has a category" : " samples have categories",
                   place.transform->open ? " that the model does not know" : " that training did not have: all 0"));
    }
    return notes;
  }

 private:
  struct Place {
    int source = 0;
    const ColumnTransform* transform = nullptr;
    int64_t category = 0;                                             // category of a one-hot column
    const std::unordered_map<std::string, int64_t>* index = nullptr;  // name → category
  };

  static bool TakesUnknown(const ColumnTransform& t) { return t.one_hot || t.open; }

  void Add(Place place, Column column) {
    places_.push_back(place);
    columns_.push_back(std::move(column));
  }

  void AddEncoded(const ColumnTransform& t, int c) {
    auto& index = indices_[t.column];
    for (const std::string& name : t.categories) index.emplace(name, index.size());
    Place place{.source = c, .transform = &t, .index = &index};
    const std::string& problem = source_->columns()[c].problem;
    if (!t.one_hot) {
      Add(place, {.name = t.column, .sample = {DType::kInt64, {}}, .measured = false, .problem = problem});
      return;
    }
    for (; place.category < static_cast<int64_t>(t.categories.size()); ++place.category) {
      Add(place, {.name = StrCat(t.column, "=", t.categories[place.category]),
                  .sample = {DType::kFloat32, {}},
                  .measured = false,
                  .problem = problem});
    }
  }

  // Returns -1 for unknown categories.
  absl::StatusOr<int64_t> FindCategory(int64_t i, const Place& place) const {
    ASSIGN_OR_RETURN(std::optional<std::string> name, CategoryReader(*source_, place.source).Read(i));
    if (!name.has_value() && place.transform->open) name = "";
    const std::string where = StrCat("column '", place.transform->column, "': ");
    if (!name.has_value() && !place.transform->fill.empty()) return static_cast<int64_t>(place.transform->fill[0]);
    if (!name.has_value()) return Invalid(Describe(i), ", ", where, "missing value");
    const auto found = place.index->find(*name);
    if (found != place.index->end()) return found->second;
    if (TakesUnknown(*place.transform)) return -1;
    return Invalid(Describe(i), ", ", where, "category '", *name, "' is not among those of training");
  }

  std::vector<ColumnTransform> transforms_;
  std::map<std::string, std::unordered_map<std::string, int64_t>> indices_;
  std::vector<Place> places_;
  std::vector<Column> columns_;
};

absl::Status CheckColumn(const Column& column, const ColumnTransform& t) {
  const int64_t elements = column.sample.elements();
  const auto fills = static_cast<int64_t>(t.fill.size());
  if (!t.categories.empty() && !column.sample.shape.empty())
    return Invalid("column '", t.column, "' ", ToString(column.sample), " holds no single categories");
  if (t.categories.empty() && fills != 1 && fills != elements)
    return Invalid("column '", t.column, "' has ", elements, " values per sample, in training it had ", fills);
  return absl::OkStatus();
}

}  // namespace

CategoryReader::CategoryReader(const Dataset& data, int c) : data_(data), c_(c) {}

absl::StatusOr<std::optional<std::string>> CategoryReader::Read(int64_t i) const {
  const Column& column = data_.columns()[c_];
  if (!column.problem.empty()) return Invalid(column.problem);
  if (column.sample.elements() != 1 || IsStorage(column.sample.dtype))
    return Invalid("column '", column.name, "' ", ToString(column.sample), " holds no single categories");
  HostTensor value(column.sample);
  RETURN_IF_ERROR(data_.Read(i, c_, value.mutable_bytes()));
  if (IsFloat(column.sample.dtype)) {
    const double x = value.At(0);
    return std::isnan(x) ? std::nullopt : std::optional(StrCat(x));
  }
  const int64_t number = value.IntAt(0);
  if (column.classes.empty()) return StrCat(number);
  return number < 0 ? std::nullopt : std::optional(column.classes[number]);
}

void SortCategories(std::vector<std::string>* names) {
  if (IntegerClasses(*names).empty()) return std::sort(names->begin(), names->end());
  std::ranges::sort(*names, {}, [](const std::string& name) { return std::pair(*ParseInt(name), name); });
}

absl::StatusOr<std::shared_ptr<const Dataset>> ApplyTransforms(std::shared_ptr<const Dataset> source,
                                                               const std::vector<ColumnTransform>& transforms,
                                                               std::vector<std::string>* notes) {
  std::vector<std::vector<double>> fill(source->columns().size());
  bool encodes = false, fills = false;
  for (const ColumnTransform& t : transforms) {
    const auto column = std::ranges::find(source->columns(), t.column, &Column::name);
    // A numeric column may be missing if no input reads it; a category column is needed for the columns that replace
    // it.
    if (column == source->columns().end() && t.categories.empty()) continue;
    if (column == source->columns().end())
      return Invalid("there is no column '", t.column, "', whose categories training encoded");
    RETURN_IF_ERROR(CheckColumn(*column, t));
    encodes |= !t.categories.empty();
    if (!t.categories.empty() || !IsFloat(column->sample.dtype)) continue;
    fill[column - source->columns().begin()] = t.fill;
    fills = true;
  }
  if (fills) source = std::make_shared<Filled>(std::move(source), std::move(fill));
  if (!encodes) return source;
  const auto encoded = std::make_shared<Encoded>(std::move(source), transforms);
  for (std::string& note : encoded->Notes()) notes->push_back(std::move(note));
  return encoded;
}

std::vector<std::string> TransformedColumns(const std::vector<ColumnTransform>& transforms, const std::string& column) {
  const auto t = std::ranges::find(transforms, column, &ColumnTransform::column);
  if (t == transforms.end() || !t->one_hot || t->categories.empty()) return {column};
  std::vector<std::string> names;
  for (const std::string& name : t->categories) names.push_back(StrCat(column, "=", name));
  return names;
}

namespace {

// Mean and standard deviation in one pass (Welford, 1962). Extended precision holds the squares of all doubles.
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

// Returns the number of separate statistics of a column: one per element of a vector, one for all of an image or
// sequence.
size_t CountStatistics(const Column& column) {
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

// Returns the smallest of the most frequent values.
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

// Parses [COLUMN=]METHOD, split at the last '='.
absl::Status ParseMethods(const std::vector<std::string>& texts, const char* flag,
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
  std::vector<std::vector<double>> values(CountStatistics(reader.column()));
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

// Returns a transform without categories and fill values if the column needs none.
absl::StatusOr<ColumnTransform> FitColumn(const Dataset& data, int c, std::span<const int64_t> rows,
                                          const TransformSpec& spec) {
  const Column& column = data.columns()[c];
  const std::string fill = ChooseHow(spec.fill, spec.fill_of, column.name);
  const bool named = spec.encode_of.contains(column.name);
  if (named || (!spec.encode.empty() && !column.classes.empty()))
    return FitCategories(data, c, rows, ChooseHow(spec.encode, spec.encode_of, column.name), !fill.empty());
  if (!fill.empty() && IsFloat(column.sample.dtype)) return FitFill(data, c, rows, fill);
  // Integers of the training data may be missing in other files.
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
  RETURN_IF_ERROR(ParseMethods(encode, "encode", CheckEncoding, &spec.encode, &spec.encode_of));
  RETURN_IF_ERROR(ParseMethods(fill, "fill", CheckFill, &spec.fill, &spec.fill_of));
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
    std::vector<Moments>& of_column = moments.emplace_back(CountStatistics(reader.column()));
    if (!reader.column().measured) continue;
    for (int64_t i = 0; i < data.size(); ++i) {
      const std::span<const double> sample = reader.Read(i);
      for (size_t k = 0; k < sample.size(); ++k) of_column[k % of_column.size()].Add(sample[k]);
    }
  }
  // Interleaves the columns, since they are concatenated along the last axis.
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
