#include "frontend/passes/hoist.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/graph/text_form.h"
#include "frontend/passes/eliminate.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain {
namespace {

// Computes the 64-bit FNV-1a hash, which is equal on every machine and in every version, since names may be stored.
uint64_t Fingerprint(std::string_view s) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : s) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

class Hoister {
 public:
  Hoister(const Graph& graph, const std::function<bool(const Graph&, const Node&)>& should_hoist)
      : graph_(graph), weight_(FindWeightValues(graph)) {
    MarkHoisted(should_hoist);
  }

  absl::StatusOr<Hoisted> Split() {
    Hoisted result;
    result.derive = graph_;
    result.derive.ClearOutputs();
    std::map<std::string, Val> inputs;  // derived inputs of main, by name
    auto input = [&](Rewriter& r, ValueId v) {
      if (!read_[v]) return Val();
      const std::string name = Name(v);
      Val& found = inputs[name];
      if (!found) {
        found = r.b().Input(InputKind::kDerived, name, graph_.type(v));
        result.derive.AddOutput(name, v);
      }
      return found;
    };
    auto rule = [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
      if (!hoisted_[node.outputs[0]]) return std::nullopt;
      std::vector<Val> outputs;
      for (ValueId v : node.outputs) outputs.push_back(input(r, v));
      return outputs;
    };
    ASSIGN_OR_RETURN(result.main, Rewrite(graph_, rule));
    result.main = Dce(result.main);  // removes the hoisted nodes and those that only they read
    result.derive = Dce(result.derive, {.drop_unused_weights = true, .drop_unused_feeds = true});
    return result;
  }

 private:
  // Marks, from the end of the graph to its start, the values that the main program reads, and stops at hoisted nodes.
  void MarkHoisted(const std::function<bool(const Graph&, const Node&)>& should_hoist) {
    read_.assign(graph_.values().size(), false);
    hoisted_.assign(graph_.values().size(), false);
    for (const GraphOutput& output : graph_.outputs()) read_[output.value] = true;
    for (size_t n = graph_.nodes().size(); n-- > 0;) {
      const Node& node = graph_.nodes()[n];
      bool read = false;
      for (ValueId v : node.outputs) read |= read_[v];
      if (!read) continue;
      const bool hoisted = weight_[node.outputs[0]] && should_hoist(graph_, node);
      for (ValueId v : node.outputs) hoisted_[v] = hoisted;
      for (ValueId v : node.inputs) {
        if (v != kNoValue && !hoisted) read_[v] = true;
      }
    }
  }

  // Returns a key that identifies the value in any graph: the name of an input, or the computation of any other value.
  const std::string& Key(ValueId v) {
    std::string& key = keys_[v];
    if (!key.empty()) return key;
    const Node* node = graph_.producer(v);
    if (node == nullptr) return key = graph_.inputs()[graph_.value(v).index].name;
    std::vector<std::string> inputs;
    for (ValueId input : node->inputs) inputs.push_back(input == kNoValue ? "_" : Key(input));
    const std::string all =
        StrCat(node->op, "(", absl::StrJoin(inputs, ", "), ")", Print(node->attrs), ".", graph_.value(v).index);
    return keys_[v] = absl::StrFormat("%s#%016x", node->op, Fingerprint(all));
  }

  // Returns a name like "Transpose(fc.weight)#5e0c…".
  std::string Name(ValueId v) {
    const Node& node = *graph_.producer(v);
    constexpr size_t kMaxShown = 80;
    std::vector<std::string> inputs;
    for (ValueId input : node.inputs) inputs.push_back(input == kNoValue ? "_" : Key(input).substr(0, kMaxShown));
    return StrCat(node.op, "(", absl::StrJoin(inputs, ", "), ")", Key(v).substr(node.op.size()));
  }

  const Graph& graph_;
  const std::vector<bool> weight_;
  std::vector<bool> read_, hoisted_;
  std::map<ValueId, std::string> keys_;
};

}  // namespace

std::vector<bool> FindWeightValues(const Graph& graph) {
  std::vector<bool> weight(graph.values().size(), false), constant(weight);
  for (const GraphInput& input : graph.inputs()) {
    weight[input.value] = input.kind == InputKind::kParameter || input.kind == InputKind::kFrozen;
  }
  for (const GraphOutput& output : graph.outputs()) {
    if (output.into != kNoValue) weight[output.into] = false;
  }
  for (const Node& node : graph.nodes()) {
    bool all = true, any = false;
    for (ValueId v : node.inputs) {
      if (v == kNoValue) continue;
      all &= weight[v] || constant[v];
      any |= weight[v];
    }
    for (ValueId v : node.outputs) {
      weight[v] = all && any;
      constant[v] = all && !any;
    }
  }
  return weight;
}

std::vector<bool> FindFrozenValues(const Graph& graph) {
  std::vector<bool> frozen(graph.values().size(), false);
  for (const GraphInput& input : graph.inputs()) frozen[input.value] = input.kind == InputKind::kFrozen;
  for (const Node& node : graph.nodes()) {
    const bool all = std::ranges::all_of(node.inputs, [&](ValueId v) { return v == kNoValue || frozen[v]; });
    for (ValueId v : node.outputs) frozen[v] = all;
  }
  return frozen;
}

absl::StatusOr<Hoisted> Hoist(const Graph& graph, const std::function<bool(const Graph&, const Node&)>& should_hoist) {
  return Hoister(graph, should_hoist).Split();
}

}  // namespace onnxtrain
