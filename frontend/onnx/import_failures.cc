#include "frontend/onnx/import_failures.h"

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"

namespace onnxtrain {
namespace {

constexpr char kPayload[] = "onnxtrain/import_failures";

std::vector<int64_t> ParseExtents(const std::string& text) {
  std::vector<int64_t> extents;
  for (const std::string& extent : std::vector<std::string>(absl::StrSplit(text, ' ', absl::SkipEmpty())))
    extents.push_back(ParseInt(extent).value_or(0));
  return extents;
}

}  // namespace

// The payload has three lines for each failure: operator, extents, message.
absl::Status WithImportFailures(absl::Status status, const std::vector<NodeFailure>& failures) {
  std::vector<std::string> lines;
  for (const NodeFailure& failure : failures) {
    lines.push_back(failure.unsupported_op);
    lines.push_back(absl::StrJoin(failure.extents, " "));
    lines.push_back(PrintableLine(failure.message));
  }
  if (!lines.empty()) status.SetPayload(kPayload, absl::Cord(absl::StrJoin(lines, "\n")));
  return status;
}

std::vector<NodeFailure> GetImportFailures(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayload);
  if (!payload) return {};
  const std::vector<std::string> lines = absl::StrSplit(std::string(*payload), '\n');
  std::vector<NodeFailure> failures;
  for (size_t i = 0; i + 2 < lines.size(); i += 3)
    failures.push_back({.message = lines[i + 2], .unsupported_op = lines[i], .extents = ParseExtents(lines[i + 1])});
  return failures;
}

}  // namespace onnxtrain
