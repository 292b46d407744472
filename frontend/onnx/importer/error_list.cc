#include "frontend/onnx/importer/error_list.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {
namespace {

constexpr size_t kMaxShown = 20;

}  // namespace

void ErrorList::Add(const ParsedNode& node, const absl::Status& status) {
  if (code_ == absl::StatusCode::kOk) code_ = status.code();
  const std::string_view message = ToStd(status.message());
  // The builder's own errors bear the canonical operator's tag, with the same source.
  messages_.push_back(StrCat(message.starts_with("[") ? "" : NodeTag(node.op_type, node.source), message));
}

absl::Status ErrorList::Summary() const {
  if (messages_.empty()) return absl::OkStatus();
  const size_t count = std::min(messages_.size(), kMaxShown);
  std::vector<std::string> shown(messages_.begin(), messages_.begin() + static_cast<int64_t>(count));
  if (messages_.size() > count) shown.push_back(StrCat("and ", messages_.size() - count, " more"));
  return absl::Status(code_, absl::StrJoin(shown, "; "));
}

absl::Status AlreadyReported() { return absl::CancelledError("a node of its body failed"); }

}  // namespace onnxtrain
