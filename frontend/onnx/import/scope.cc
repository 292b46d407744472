#include "frontend/onnx/import/scope.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {
namespace {

constexpr size_t kMaxShown = 20;

}  // namespace

void ErrorList::Add(const ParsedNode& node, const absl::Status& status, std::vector<int64_t> extents) {
  if (code_ == absl::StatusCode::kOk) code_ = status.code();
  const std::string_view message = ToStd(status.message());
  // Errors of the builder begin with the tag of the canonical operator, which has the same source.
  failures_.push_back({.message = StrCat(message.starts_with("[") ? "" : NodeTag(node.op_type, node.source), message),
                       .extents = std::move(extents)});
}

absl::Status ErrorList::Summary() const {
  if (failures_.empty()) return absl::OkStatus();
  std::vector<std::string> shown;
  for (const NodeFailure& failure : std::span(failures_).first(std::min(failures_.size(), kMaxShown)))
    shown.push_back(failure.message);
  if (failures_.size() > kMaxShown) shown.push_back(StrCat("and ", failures_.size() - kMaxShown, " more"));
  return WithImportFailures(absl::Status(code_, absl::StrJoin(shown, "; ")), failures_);
}

absl::Status AlreadyReported() { return absl::CancelledError("a node of its body failed"); }

absl::StatusOr<Val> RequireTensor(const ImportValue& value, std::string_view what) {
  if (value.tensor.valid()) return value.tensor;
  return Invalid(what, value.list != nullptr ? " is a sequence or optional, not a tensor" : " is missing");
}

absl::StatusOr<Attrs> ResolveAttrs(const ImportScope& scope, const ParsedNode& node) {
  Attrs attrs = node.attrs;
  for (const auto& [name, outer] : node.refs) {
    if (scope.call == nullptr)
      return Invalid("attribute '", Printable(name), "' refers to a function's attribute outside a function");
    for (const auto& [key, value] : *scope.call) {
      if (key == outer) attrs.Set(name, value);
    }
  }
  return attrs;
}

}  // namespace onnxtrain
