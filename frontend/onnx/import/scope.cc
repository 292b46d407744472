#include "frontend/onnx/import/scope.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

LiveGraph::LiveGraph(const ParsedGraph& graph, const std::vector<std::string>& outputs)
    : names_(outputs.begin(), outputs.end()) {
  auto is_live = [&](const std::string& name) { return !name.empty() && IsRead(name); };
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (std::ranges::any_of(node->outputs, is_live)) AddNode(*node);
  }
  for (auto& [name, users] : users_) std::ranges::reverse(users);
}

void LiveGraph::AddNode(const ParsedNode& node) {
  nodes_.insert(&node);
  for (const std::string& name : node.outputs) producers_[name] = &node;
  for (const auto* names : {&node.inputs, &node.captured}) {
    for (const std::string& name : *names) {
      if (name.empty()) continue;
      names_.insert(name);
      users_[name].push_back(&node);
    }
  }
}

const std::vector<const ParsedNode*>& LiveGraph::Users(const std::string& name) const {
  static const std::vector<const ParsedNode*> none;
  const auto it = users_.find(name);
  return it == users_.end() ? none : it->second;
}

const ParsedNode* LiveGraph::Producer(const std::string& name) const {
  const auto it = producers_.find(name);
  return it == producers_.end() ? nullptr : it->second;
}

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
