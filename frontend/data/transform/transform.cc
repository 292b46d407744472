#include "frontend/data/transform/transform.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/bind/classes.h"
#include "frontend/data/bind/data_view.h"

namespace onnxtrain {
namespace {

// Replaces missing values of a column of numbers.
class Filled : public DatasetView {
 public:
  Filled(std::shared_ptr<const Dataset> source, std::vector<std::vector<double>> fill)
      : DatasetView(std::move(source)), fill_(std::move(fill)) {}
  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    RETURN_IF_ERROR(source_->Read(i, c, pass, out));
    const std::vector<double>& fill = fill_[c];
    if (fill.empty()) return absl::OkStatus();
    // A view: writes go to `out`.
    HostTensor values(columns()[c].sample, nullptr, out.data());
    for (int64_t k = 0; k < values.size(); ++k) {
      if (std::isnan(values.At(k))) values.Set(k, fill[fill.size() == 1 ? 0 : k]);
    }
    return absl::OkStatus();
  }

 private:
  std::vector<std::vector<double>> fill_;  // by column; empty: stays
};

// Columns of categories as numbers.
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

  // Counts the samples whose category is not known.
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
    int64_t category = 0;                                             // of a one-hot column
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

  // -1: not known.
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
    // Numbers that no input reads may be missing; a category stands for columns that one reads.
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

}  // namespace onnxtrain
