#include <algorithm>
#include <limits>

#include "frontend/base/status.h"
#include "frontend/data/convert.h"
#include "frontend/data/loader.h"

namespace onnxtrain {
namespace {

// Calls visit(row, value) for every value of the column as an integer. Errors are annotated with the row.
template <typename Visitor>
absl::Status ForEachLabel(const Dataset& data, int c, Visitor visit) {
  const Column& column = data.columns()[c];
  if (!column.problem.empty()) return Invalid(column.problem);
  std::vector<std::byte> raw(column.sample.bytes());
  std::vector<int64_t> labels(column.sample.elements());
  for (int64_t i = 0; i < data.size(); ++i) {
    RETURN_IF_ERROR(data.Read(i, c, raw));
    absl::Status status =
        ConvertValues(column.sample.dtype, raw, DType::kInt64, reinterpret_cast<std::byte*>(labels.data()), 1);
    for (size_t k = 0; k < labels.size() && status.ok(); ++k) status = visit(labels[k]);
    if (!status.ok()) return Annotate(status, StrCat(data.Describe(i), ", column '", column.name, "': "));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckLabels(const Dataset& data, int column, int64_t classes, int64_t ignore_index) {
  return ForEachLabel(data, column, [&](int64_t label) {
    if (label == ignore_index || (label >= 0 && label < classes)) return absl::OkStatus();
    return Invalid("label ", label, " is outside of the ", classes, " classes 0 to ", classes - 1);
  });
}

absl::StatusOr<LabelRange> ComputeLabelRange(const Dataset& data, int column, int64_t ignore_index) {
  LabelRange range{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  RETURN_IF_ERROR(ForEachLabel(data, column, [&](int64_t label) {
    if (label == ignore_index) return absl::OkStatus();
    range = {std::min(range.min, label), std::max(range.max, label)};
    return absl::OkStatus();
  }));
  if (range.min > range.max) return Invalid("column '", data.columns()[column].name, "' has no label but ignore_index");
  return range;
}

}  // namespace onnxtrain
