#include "tools/onnxtrain/report/operator_support.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_join.h"
#include "backends/registry.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "tools/onnxtrain/environment.h"

namespace onnxtrain::cli {
namespace {

constexpr const char* kGradientNames[] = {"formula", "zero", "decomposition", "none"};  // by GradStatus

std::string GetWorse(const std::string& a, const std::string& b) {
  constexpr const char* kWorst[] = {"missing", "decomposed", "kernel"};
  for (const char* word : kWorst) {
    if (a == word || b == word) return word;
  }
  return b;
}

std::string DescribeExecution(const Backend& backend, const Graph& graph, const Node& node) {
  if (backend.Supports(graph, node)) return "kernel";
  const OpRow* row = FindOp(node.op);
  return row != nullptr && (row->decompose != nullptr || row->view) ? "decomposed" : "missing";
}

// Finds a node of the file by its source. Nodes of inlined functions and branches are prefixed by the caller's name.
struct Index {
  std::map<std::string, std::string> op_of;

  explicit Index(const OnnxModel& file) {
    for (const OnnxModel::Node& node : file.nodes()) op_of.emplace(node.source, node.op);
  }
  const std::string* Find(std::string source) const {
    while (true) {
      if (auto it = op_of.find(source); it != op_of.end()) return &it->second;
      const size_t slash = source.rfind('/');
      if (slash == std::string::npos || slash == 0) return nullptr;
      source.resize(slash);
    }
  }
};

void LookAtNode(const Graph& graph, const Node& node, const std::vector<InstalledBackend>& backends,
                OperatorSupport* support, std::set<std::string>* gradients) {
  for (const InstalledBackend& b : backends) {
    if (b.backend == nullptr) continue;
    std::string& how = support->backends[b.name];
    how = GetWorse(how, DescribeExecution(*b.backend, graph, node));
  }
  if (const OpRow* row = FindOp(node.op)) gradients->insert(kGradientNames[static_cast<size_t>(row->grad_status)]);
}

}  // namespace

InstalledBackend LoadInstalledBackend(const std::string& name) {
  const int threads = ChooseThreads(0);
  SetEnvironment(threads);
  InstalledBackend b{.name = name};
  const std::vector<std::string> installed = BackendNames();
  const bool there = std::find(installed.begin(), installed.end(), name) != installed.end();
  auto backend = there ? CreateBackend(name, {.device = "cpu", .threads = threads})
                       : absl::StatusOr<std::unique_ptr<Backend>>(absl::NotFoundError("not installed"));
  if (backend.ok()) {
    b.backend = *std::move(backend);
  } else {
    b.problem = std::string(ToStd(backend.status().message()));
  }
  return b;
}

std::vector<OperatorSupport> GetOperatorSupport(const OnnxModel& file, const ImportedModel* model,
                                                const std::vector<NodeFailure>& failures,
                                                const std::vector<InstalledBackend>& backends) {
  std::map<std::string, OperatorSupport> by_op;
  for (const auto& [op, count] : file.op_histogram()) {
    const bool known = std::ranges::find(failures, op, &NodeFailure::unsupported_op) == failures.end();
    by_op[op] = {.op = op, .count = count, .known = known};
    for (const InstalledBackend& b : backends) {
      if (b.backend == nullptr) by_op[op].backends[b.name] = "absent";
    }
  }
  std::map<std::string, std::set<std::string>> gradients;
  if (model != nullptr) {
    const Index index(file);
    for (const Node& node : model->graph.nodes()) {
      const std::string* op = node.op == "Constant" ? nullptr : index.Find(node.source);
      if (op != nullptr) LookAtNode(model->graph, node, backends, &by_op[*op], &gradients[*op]);
    }
  }
  std::vector<OperatorSupport> list;
  for (auto& [op, support] : by_op) {
    support.gradient = absl::StrJoin(gradients[op], ", ");
    list.push_back(std::move(support));
  }
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.count > b.count; });
  return list;
}

// A rewritten node has the source of the node that it replaces. That of a composite in the file has its operator, or
// one without a row.
std::map<std::string, int> CountRecognized(const OnnxModel& file, const Graph& graph) {
  const Index index(file);
  std::map<std::string, int> counts;
  for (const Node& node : graph.nodes()) {
    const OpRow* row = FindOp(node.op);
    const bool composite = row != nullptr && !row->is_gradient &&
                           (row->decompose != nullptr || row->probabilities || !row->written_as.empty());
    const std::string* written = composite ? index.Find(node.source) : nullptr;
    if (written != nullptr && *written != node.op && FindOp(*written) != nullptr) ++counts[node.op];
  }
  return counts;
}

}  // namespace onnxtrain::cli
