#include "frontend/data/bind/labels.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/data/bind/bad_samples.h"
#include "frontend/data/bind/classes.h"
#include "frontend/data/load/loader.h"
#include "frontend/data/transform/convert.h"

namespace onnxtrain {
namespace {

// Reads the values of one column as integers. Holds the buffers that samples share.
class LabelReader {
 public:
  LabelReader(const Dataset& data, int c) : data_(data), c_(c) {}

  // Calls visit(value) for every label of sample i. Errors are annotated with the row.
  template <typename Visitor>
  absl::Status Visit(int64_t i, Visitor visit) {
    const Type type = SampleType(data_, i, c_);
    raw_.resize(type.bytes());
    labels_.resize(type.elements());
    RETURN_IF_ERROR(data_.Read(i, c_, raw_));
    absl::Status status =
        ConvertValues(column().sample.dtype, raw_, DType::kInt64, reinterpret_cast<std::byte*>(labels_.data()), 1);
    for (size_t k = 0; k < labels_.size() && status.ok(); ++k) status = visit(labels_[k]);
    if (status.ok()) return status;
    return Annotate(status, StrCat(data_.Describe(i), ", column '", column().name, "': "));
  }

 private:
  const Column& column() const { return data_.columns()[c_]; }

  const Dataset& data_;
  int c_;
  std::vector<std::byte> raw_;
  std::vector<int64_t> labels_;
};

absl::Status CheckClass(int64_t label, int64_t classes, int64_t ignore_index) {
  if (label == ignore_index || (label >= 0 && label < classes)) return absl::OkStatus();
  return Invalid("label ", label, " is outside of the ", classes, " classes 0 to ", classes - 1);
}

constexpr int64_t kVoid = 255;  // marks pixels of no class in many sets of masks

std::string HintAtNegativeLabels(const Dataset& data, int column, int64_t classes, int64_t ignore_index) {
  const auto labels = std::ssize(FindDistinctLabels(data, column, ignore_index, true));
  const std::string number =
      labels > classes ? "" : "`class_map` FILE with a line for each label numbers them from 0, and ";
  const std::string outputs = labels == 0 ? "label" : StrCat("of the ", labels, " labels");
  return StrCat(" (", number, "`num_classes` auto makes an output for each ", outputs,
                "; `ignore_index` leaves one out)");
}

// How labels outside of the model's classes can be trained.
std::string HintAtClasses(const Dataset& data, int column, int64_t classes, int64_t ignore_index) {
  const auto range = ComputeLabelRange(data, column, ignore_index, true);
  if (range.ok() && range->min == 1 && range->max == classes)
    return StrCat(" (the labels begin at 1: `class_map` FILE with a line for each of 1 to ", classes,
                  " numbers them from 0)");
  if (range.ok() && range->min < 0) return HintAtNegativeLabels(data, column, classes, ignore_index);
  const Type& sample = data.columns()[column].sample;
  if (range.ok() && range->max == kVoid && sample.dtype == DType::kUInt8 && sample.rank() >= 2)
    return " (`ignore_index` 255 if it marks pixels of no class; masks of two classes hold 0 and 1, or 0 and 255)";
  return " (`num_classes` auto fits the last layer to the labels)";
}

}  // namespace

absl::Status CheckLabel(const Dataset& data, int64_t i, const LabelCheck& check) {
  for (int c : check.columns) {
    RETURN_IF_ERROR(LabelReader(data, c).Visit(
        i, [&](int64_t label) { return CheckClass(label, check.classes, check.ignore_index); }));
  }
  return absl::OkStatus();
}

absl::Status CheckSequence(const Dataset& data, int64_t i, const SequenceCheck& check) {
  int64_t labels = 0, repeats = 0, last = check.ignore_index;
  bool ended = false;
  for (int c : check.columns) {
    RETURN_IF_ERROR(LabelReader(data, c).Visit(i, [&](int64_t label) {
      if (label == check.ignore_index) {
        ended = true;
        return absl::OkStatus();
      }
      if (ended)
        return Invalid("label ", label, " follows `ignore_index` ", check.ignore_index, ", which ends a sequence");
      if (label == check.blank)
        return Invalid("label ", label, " is the blank of ctc, which is no label (`ignore_index` ", label,
                       " where it pads; `loss` ctc:blank=N where class N is the blank)");
      ++labels;
      repeats += label == std::exchange(last, label);
      return absl::OkStatus();
    }));
  }
  const int64_t steps = check.steps(i);
  if (labels + repeats <= steps) return absl::OkStatus();
  const std::string blanks = repeats > 0 ? StrCat(" with ", repeats, " blanks between equal ones") : "";
  return absl::OutOfRangeError(StrCat(data.Describe(i), ": ", labels, " labels", blanks, " need ", labels + repeats,
                                      " steps, the model gives ", steps));
}

absl::Status CheckLabels(const Dataset& data, int column, int64_t classes, int64_t ignore_index) {
  if (const std::string& problem = data.columns()[column].problem; !problem.empty()) return Invalid(problem);
  const auto& bounds = data.columns()[column].bounds;
  if (bounds.has_value() && bounds->first >= 0 && bounds->second < classes) return absl::OkStatus();
  LabelReader reader(data, column);
  for (int64_t i = 0; i < data.size(); ++i) {
    bool is_class = false;
    const absl::Status status = reader.Visit(i, [&](int64_t label) {
      is_class = true;
      const absl::Status range = CheckClass(label, classes, ignore_index);
      return range.ok() ? range : Invalid(range.message(), HintAtClasses(data, column, classes, ignore_index));
    });
    if (!status.ok() && !is_class && IsFloat(data.columns()[column].sample.dtype))
      return Invalid(status.message(), ", as the labels of a loss on ", classes,
                     " classes are; numbers are trained with `loss` mse and a `label` column for each of the output's");
    RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::StatusOr<LabelRange> ComputeLabelRange(const Dataset& data, int column, int64_t ignore_index, bool skip_bad) {
  if (const std::string& problem = data.columns()[column].problem; !problem.empty()) return Invalid(problem);
  if (const auto& bounds = data.columns()[column].bounds) return LabelRange{bounds->first, bounds->second};
  LabelRange range{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  LabelReader reader(data, column);
  for (int64_t i = 0; i < data.size(); ++i) {
    const absl::Status status = reader.Visit(i, [&](int64_t label) {
      if (label != ignore_index) range = {std::min(range.min, label), std::max(range.max, label)};
      return absl::OkStatus();
    });
    if (!skip_bad) RETURN_IF_ERROR(status);
  }
  if (range.min > range.max) return Invalid("column '", data.columns()[column].name, "' has no label but ignore_index");
  return range;
}

}  // namespace onnxtrain
