#include "frontend/data/sources/jsonl.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/data/sources/json.h"

namespace onnxtrain {
namespace {

using Json = OrderedJson;

constexpr size_t kMaxRank = 8;

// Returns the shape of nested arrays, taken from their first elements.
Shape GetShape(const Json& value) {
  Shape shape;
  for (const Json* at = &value; at->is_array() && shape.size() <= kMaxRank; at = &at->front()) {
    shape.push_back(static_cast<int64_t>(at->size()));
    if (at->empty()) break;
  }
  return shape;
}

// Returns true if all nested arrays have the lengths of `shape`.
bool HasShape(const Json& value, std::span<const int64_t> shape) {
  if (shape.empty()) return !value.is_array();
  return value.is_array() && static_cast<int64_t>(value.size()) == shape[0] &&
         std::ranges::all_of(value, [&](const Json& element) { return HasShape(element, shape.subspan(1)); });
}

std::string FieldText(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  return value.is_string() ? value.get<std::string>() : WriteJson(value);
}

}  // namespace

// Collects arrays of one shape.
class JsonColumn::Arrays {
 public:
  explicit Arrays(Shape shape) : shape_(std::move(shape)), elements_(NumElements(shape_)) {}

  // Appends a value and returns "", or appends zeros and returns why the value does not fit.
  std::string Add(const Json& value) {
    const size_t begin = numbers_.size();
    std::string why = value.is_null() ? "missing value" : AddLevel(value, 0);
    numbers_.resize(begin + elements_);
    return why;
  }

  HostTensor Tensor(int64_t samples) const {
    Shape shape = shape_;
    shape.insert(shape.begin(), samples);
    HostTensor tensor({integral_ ? DType::kInt64 : DType::kFloat64, shape});
    for (int64_t i = 0; i < tensor.size(); ++i)
      integral_ ? tensor.SetInt(i, static_cast<int64_t>(numbers_[i])) : tensor.Set(i, numbers_[i]);
    return tensor;
  }

 private:
  std::string AddLevel(const Json& value, size_t axis) {
    if (axis == shape_.size()) return AddNumber(value);
    if (!value.is_array() || static_cast<int64_t>(value.size()) != shape_[axis])
      return StrCat("its shape ", ToString(GetShape(value)), " is not the ", ToString(shape_), " of the first line");
    for (const Json& element : value) {
      if (std::string why = AddLevel(element, axis + 1); !why.empty()) return why;
    }
    return "";
  }
  std::string AddNumber(const Json& value) {
    if (!value.is_number() && !value.is_boolean())
      return StrCat("an array holds ", value.type_name(), ", not a number");
    const double number = value.is_boolean() ? value.get<bool>() : value.get<double>();
    // Doubles represent integers up to 2^53.
    integral_ &= !value.is_number_float() && std::abs(number) <= 9007199254740992.0;
    numbers_.push_back(number);
    return "";
  }

  Shape shape_;
  int64_t elements_;
  bool integral_ = true;
  std::vector<double> numbers_;
};

JsonColumn::JsonColumn(CsvColumnSpec spec, std::unique_ptr<CsvColumn> values, bool is_text)
    : spec_(std::move(spec)), values_(std::move(values)), is_text_(is_text), decided_(is_text) {}
JsonColumn::~JsonColumn() = default;

// Returns why the first value cannot define the column's shape: all of its nested arrays must have that shape.
std::string JsonColumn::WhyNotFirst(const Json& value) const {
  if (!value.is_array()) return "";
  const Shape shape = GetShape(value);
  if (shape.size() > kMaxRank) return StrCat("arrays are nested in more than ", kMaxRank, " levels");
  return HasShape(value, shape) ? "" : "arrays nested in it are of different lengths";
}

absl::Status JsonColumn::Decide(const Json& first) {
  decided_ = true;
  if (first.is_array()) arrays_ = std::make_unique<Arrays>(GetShape(first));
  for (const auto& [row, why] : std::exchange(pending_, {})) {
    if (why.empty()) RETURN_IF_ERROR(AddValue(row, Json()));
    if (!why.empty()) AddUnreadable(why);
  }
  return absl::OkStatus();
}

absl::Status JsonColumn::RefuseFirst(int64_t row, const Json& value, const std::string& why) {
  const std::string text = Locate(row, why);
  if (spec_.skip_bad) return AddUnreadable(text), absl::OkStatus();
  problem_ = text;
  RETURN_IF_ERROR(Decide(Json::array()));
  return AddValue(row, value);
}

std::string JsonColumn::Locate(int64_t row, const std::string& why) const {
  return StrCat(spec_.path, ": row ", row, ", column '", spec_.name, "': ", why);
}

absl::Status JsonColumn::Add(int64_t row, const Json& value) {
  if (!decided_ && value.is_null()) return pending_.push_back({row, ""}), absl::OkStatus();
  if (!decided_) {
    if (const std::string why = WhyNotFirst(value); !why.empty()) return RefuseFirst(row, value, why);
    RETURN_IF_ERROR(Decide(value));
  }
  return AddValue(row, value);
}

absl::Status JsonColumn::AddText(int64_t row, const std::string& json) {
  ++samples_;
  return values_->Add(row, json);
}

std::string JsonColumn::WhyNotSingle(const Json& value) const {
  if (samples_ == 1 && value.is_object()) return "an object without keys is no value";
  return StrCat(value.type_name(), " where others have a single value");
}

absl::Status JsonColumn::AddValue(int64_t row, const Json& value) {
  const int64_t sample = samples_++;
  if (is_text_ || (arrays_ == nullptr && !value.is_structured())) return values_->Add(row, FieldText(value));
  const std::string why = arrays_ != nullptr ? arrays_->Add(value) : WhyNotSingle(value);
  if (why.empty()) return absl::OkStatus();
  const std::string text = Locate(row, why);
  if (arrays_ == nullptr) values_->AddUnreadable(text);
  if (spec_.skip_bad) unreadable_.emplace(sample, text);
  if (!spec_.skip_bad && problem_.empty()) problem_ = text;
  return absl::OkStatus();
}

void JsonColumn::AddUnreadable(std::string why) {
  if (!decided_) return pending_.push_back({0, std::move(why)});
  ++samples_;
  if (arrays_ == nullptr) return values_->AddUnreadable(std::move(why));
  arrays_->Add(Json());
  unreadable_.emplace(samples_ - 1, std::move(why));
}

absl::StatusOr<NamedTensor> JsonColumn::Finish() {
  if (!decided_) RETURN_IF_ERROR(Decide(Json()));
  NamedTensor column = arrays_ == nullptr ? values_->Finish() : NamedTensor{spec_.name, arrays_->Tensor(samples_)};
  if (column.problem.empty()) column.problem = problem_;
  column.unreadable.merge(unreadable_);
  return column;
}

}  // namespace onnxtrain
