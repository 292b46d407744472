// Checks the names of a parsed graph, sorts its nodes and rejects cycles.
#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_set>

#include "frontend/base/status.h"
#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {
namespace {

std::string Tag(const ParsedNode& node) { return NodeTag(Printable(node.op_type), Printable(node.source)); }

// Origin of inputs and initializers; the origin of other names is a node index.
constexpr int kFromOutside = -1;

class Sorter {
 public:
  Sorter(ParsedGraph* graph, const Sorter* outer) : graph_(*graph), outer_(outer) {}

  absl::Status Run() {
    DropRepeatedConstants();
    NameNodes();
    RETURN_IF_ERROR(DefineNames());
    for (ParsedNode& node : graph_.nodes) RETURN_IF_ERROR(CheckSubgraphs(&node));
    RETURN_IF_ERROR(ConnectNodes());
    RETURN_IF_ERROR(SortNodes());
    return CheckOutputs();
  }

 private:
  // Removes Constant nodes that redefine a name with the same value; some converters write one per user.
  void DropRepeatedConstants() {
    std::unordered_map<std::string, HostTensor> known;
    std::erase_if(graph_.nodes, [&](const ParsedNode& node) {
      const bool constant = node.domain.empty() && node.op_type == "Constant" && node.outputs.size() == 1;
      const HostTensor* value = constant ? node.attrs.Tensor("value") : nullptr;
      if (value == nullptr) return false;
      const auto initializer = graph_.initializers.find(node.outputs[0]);
      if (initializer != graph_.initializers.end()) return initializer->second.SameBytes(*value);
      const auto [it, added] = known.emplace(node.outputs[0], *value);
      return !added && it->second.SameBytes(*value);
    });
  }

  void NameNodes() {
    std::unordered_set<std::string> taken;
    for (const ParsedNode& node : graph_.nodes) taken.insert(node.name);
    std::unordered_set<std::string> used;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      ParsedNode& node = graph_.nodes[i];
      node.source = node.name;
      if (!node.name.empty() && used.insert(node.name).second) continue;
      node.source = StrCat(node.name.empty() ? node.op_type : node.name, "_", i);
      while (taken.count(node.source) > 0 || !used.insert(node.source).second) node.source += "_";
    }
  }

  absl::Status DefineNames() {
    for (const ParsedValue& input : graph_.inputs) {
      if (input.name.empty()) return Invalid("a graph input has no name");
      if (!origin_.emplace(input.name, kFromOutside).second)
        return Invalid("two graph inputs are named '", Printable(input.name), "'");
    }
    for (const std::string& name : graph_.initializer_order) origin_.emplace(name, kFromOutside);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const std::string& name : graph_.nodes[i].outputs) {
        if (name.empty()) continue;
        auto [it, added] = origin_.emplace(name, static_cast<int>(i));
        if (!added)
          return Invalid(Tag(graph_.nodes[i]), "defines '", Printable(name), "', which ", DescribeOrigin(it->second),
                         " defines already");
      }
    }
    return absl::OkStatus();
  }

  std::string DescribeOrigin(int origin) const {
    return origin < 0 ? "a graph input or initializer" : StrCat("node '", Printable(graph_.nodes[origin].source), "'");
  }

  // Checks the node's subgraphs, which see every name of this graph, and collects the names of this graph that they
  // read.
  absl::Status CheckSubgraphs(ParsedNode* node) {
    std::unordered_set<std::string> seen;
    for (const auto& [name, graph] : node->graphs) {
      RETURN_IF_ERROR(Annotate(Sorter(graph.get(), this).Run(), StrCat(Tag(*node), Printable(name), ": ")));
      for (std::string& free : FreeNames(*graph)) {
        if (seen.insert(free).second) node->captured.push_back(std::move(free));
      }
    }
    if (IsGradientNode(*node)) CaptureNamed(node);
    return absl::OkStatus();
  }

  // A Gradient node captures the values that its attributes name.
  static void CaptureNamed(ParsedNode* node) {
    node->captured.push_back(node->attrs.String("y"));
    for (const char* list : {"xs", "zs"}) {
      if (auto it = node->strings.find(list); it != node->strings.end()) {
        node->captured.insert(node->captured.end(), it->second.begin(), it->second.end());
      }
    }
  }

  bool DefinedOutside(const std::string& name) const {
    return outer_ != nullptr && (outer_->origin_.count(name) > 0 || outer_->DefinedOutside(name));
  }

  absl::Status ConnectNodes() {
    users_.resize(graph_.nodes.size());
    waits_.resize(graph_.nodes.size(), 0);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const auto* names : {&graph_.nodes[i].inputs, &graph_.nodes[i].captured}) {
        for (const std::string& name : *names) RETURN_IF_ERROR(AddEdge(name, i));
      }
    }
    return absl::OkStatus();
  }

  absl::Status AddEdge(const std::string& name, size_t reader) {
    if (name.empty()) return absl::OkStatus();
    auto it = origin_.find(name);
    if (it == origin_.end()) {
      if (DefinedOutside(name)) return absl::OkStatus();
      return Invalid(Tag(graph_.nodes[reader]), "reads '", Printable(name), "', which nothing defines");
    }
    if (it->second == kFromOutside) return absl::OkStatus();
    if (it->second == static_cast<int>(reader)) {
      return Invalid(Tag(graph_.nodes[reader]), "reads its own output '", Printable(name), "'");
    }
    users_[it->second].push_back(static_cast<int>(reader));
    ++waits_[reader];
    return absl::OkStatus();
  }

  // Sorts by Kahn's algorithm. Takes the earliest ready node of the file first, so that a sorted file keeps its order.
  absl::Status SortNodes() {
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    for (size_t i = 0; i < waits_.size(); ++i) {
      if (waits_[i] == 0) ready.push(static_cast<int>(i));
    }
    std::vector<ParsedNode> sorted;
    sorted.reserve(graph_.nodes.size());
    while (!ready.empty()) {
      const int i = ready.top();
      ready.pop();
      for (int reader : users_[i]) {
        if (--waits_[reader] == 0) ready.push(reader);
      }
      sorted.push_back(std::move(graph_.nodes[i]));
    }
    if (sorted.size() < graph_.nodes.size()) return DescribeCycle();
    graph_.nodes = std::move(sorted);
    return absl::OkStatus();
  }

  // Describes a cycle: walks from a waiting node to one that it waits for until a node repeats.
  absl::Status DescribeCycle() const {
    std::vector<int> waits_for(waits_.size(), -1);
    for (size_t i = 0; i < users_.size(); ++i) {
      for (int reader : users_[i]) {
        if (waits_[i] > 0) waits_for[reader] = static_cast<int>(i);
      }
    }
    int at = static_cast<int>(std::find_if(waits_.begin(), waits_.end(), [](int w) { return w > 0; }) - waits_.begin());
    std::vector<bool> seen(waits_.size(), false);
    for (; !seen[at]; at = waits_for[at]) seen[at] = true;
    std::string path = StrCat("'", Printable(graph_.nodes[at].source), "'");
    int shown = 1;
    for (int next = waits_for[at]; next != at && shown < 8; next = waits_for[next], ++shown) {
      path = StrCat("'", Printable(graph_.nodes[next].source), "' → ", path);
    }
    return Invalid("the nodes form a cycle: ", path, shown == 8 ? " …" : "");
  }

  absl::Status CheckOutputs() const {
    std::unordered_set<std::string> seen;
    for (const ParsedValue& output : graph_.outputs) {
      if (output.name.empty()) return Invalid("a graph output has no name");
      if (!seen.insert(output.name).second)
        return Invalid("two graph outputs are named '", Printable(output.name), "'");
      if (origin_.count(output.name) == 0 && !DefinedOutside(output.name)) {
        return Invalid("nothing defines the graph output '", Printable(output.name), "'");
      }
    }
    return absl::OkStatus();
  }

  ParsedGraph& graph_;
  const Sorter* outer_;
  std::unordered_map<std::string, int> origin_;
  std::vector<std::vector<int>> users_;
  std::vector<int> waits_;
};

using FunctionKey = std::pair<std::string, std::string>;

// Visits the calls depth-first; `state` is 1 while a function is being visited and 2 afterwards.
absl::Status VisitFunction(const OnnxModel::Parsed& model, const FunctionKey& key, std::map<FunctionKey, int>* state,
                           int depth);

absl::Status VisitCalls(const OnnxModel::Parsed& model, const std::vector<ParsedNode>& nodes,
                        std::map<FunctionKey, int>* state, int depth) {
  for (const ParsedNode& node : nodes) {
    const FunctionKey key{node.domain, node.op_type};
    if (model.functions.count(key) > 0) RETURN_IF_ERROR(VisitFunction(model, key, state, depth + 1));
    for (const auto& [name, graph] : node.graphs) RETURN_IF_ERROR(VisitCalls(model, graph->nodes, state, depth));
  }
  return absl::OkStatus();
}

absl::Status VisitFunction(const OnnxModel::Parsed& model, const FunctionKey& key, std::map<FunctionKey, int>* state,
                           int depth) {
  int& mine = (*state)[key];
  if (mine == 2) return absl::OkStatus();
  if (mine == 1) return Invalid("function '", Printable(key.second), "' calls itself");
  if (depth > 64) return Invalid("functions call each other more than 64 deep");
  mine = 1;
  RETURN_IF_ERROR(VisitCalls(model, model.functions.at(key).graph.nodes, state, depth));
  (*state)[key] = 2;
  return absl::OkStatus();
}

}  // namespace

const OnnxTraits& GetOnnxTraits(const ParsedNode& node) {
  static const OnnxTraits kNone;
  const OnnxOp* op = FindOnnxOp(node.domain, node.op_type);
  return op == nullptr || LacksOperands(node) ? kNone : op->traits;
}

bool LacksOperands(const ParsedNode& node) {
  const OnnxOp* op = FindOnnxOp(node.domain, node.op_type);
  return op != nullptr && (node.outputs.empty() || node.inputs.size() < static_cast<size_t>(op->min_inputs));
}

bool IsGradientNode(const ParsedNode& node) {
  return node.domain == "ai.onnx.preview.training" && node.op_type == "Gradient";
}

std::vector<std::string> FreeNames(const ParsedGraph& graph) {
  std::unordered_set<std::string> known;
  for (const ParsedValue& input : graph.inputs) known.insert(input.name);
  for (const std::string& name : graph.initializer_order) known.insert(name);
  for (const ParsedNode& node : graph.nodes) known.insert(node.outputs.begin(), node.outputs.end());
  std::vector<std::string> free;
  auto read = [&](const std::string& name) {
    if (!name.empty() && known.insert(name).second) free.push_back(name);
  };
  for (const ParsedNode& node : graph.nodes) {
    for (const std::string& name : node.inputs) read(name);
    for (const std::string& name : node.captured) read(name);
  }
  for (const ParsedValue& output : graph.outputs) read(output.name);
  return free;
}

absl::Status CheckAndSort(ParsedGraph* graph) { return Sorter(graph, nullptr).Run(); }

absl::Status CheckFunctionCalls(const OnnxModel::Parsed& model) {
  std::map<FunctionKey, int> state;
  for (const auto& [key, function] : model.functions) RETURN_IF_ERROR(VisitFunction(model, key, &state, 0));
  return absl::OkStatus();
}

}  // namespace onnxtrain
