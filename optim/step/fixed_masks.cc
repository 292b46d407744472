#include "optim/step/fixed_tables.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/ops/builder.h"
#include "frontend/passes/rewrite.h"
#include "frontend/passes/simplify.h"

namespace onnxtrain {
namespace {

constexpr size_t kMask = 3;                          // the operand of Attention
constexpr int64_t kMostElements = int64_t{1} << 24;  // 4096 queries and keys
constexpr size_t kMostNodes = 64;                    // that compute a mask

ValueId MaskOf(const Node& node) {
  return node.op == "Attention" && node.inputs.size() > kMask ? node.inputs[kMask] : kNoValue;
}

// The frozen weights and the nodes, in order, from which a value follows.
struct Origin {
  std::set<ValueId> weights;
  std::set<int32_t> nodes;
};

// Returns the origin of a value; nullopt if it depends on anything except frozen weights and constants.
std::optional<Origin> FindOrigin(const Graph& graph, ValueId value) {
  Origin origin;
  std::vector<ValueId> open = {value};
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    if (v == kNoValue) continue;
    if (graph.type(v).elements() > kMostElements) return std::nullopt;
    if (graph.IsInput(v)) {
      if (graph.inputs()[graph.value(v).index].kind != InputKind::kFrozen) return std::nullopt;
      origin.weights.insert(v);
      continue;
    }
    const int32_t n = graph.value(v).node;
    if (!origin.nodes.insert(n).second) continue;
    if (origin.nodes.size() > kMostNodes) return std::nullopt;
    const Node& node = graph.nodes()[n];
    open.insert(open.end(), node.inputs.begin(), node.inputs.end());
  }
  return origin;
}

// Returns the value, computed on the host; nullopt if the host cannot compute it, or not within its budget.
std::optional<HostTensor> Evaluate(const ImportedModel& model, const Origin& origin, ValueId value,
                                   HostBudget* budget) {
  const Graph& graph = model.graph;
  Graph part;
  Builder b(&part);
  std::map<ValueId, ValueId> map = {{kNoValue, kNoValue}};
  for (ValueId v : origin.weights) {
    const std::string& name = graph.inputs()[graph.value(v).index].name;
    const auto weight = std::ranges::find(model.weights, name, &ImportedWeight::name);
    if (weight == model.weights.end()) return std::nullopt;
    map[v] = b.Constant(weight->value).id();
  }
  for (int32_t n : origin.nodes) {
    const Node& node = graph.nodes()[n];
    ValueIds inputs;
    for (ValueId v : node.inputs) inputs.push_back(map.at(v));
    const ValueIds outputs = part.AddCopy(graph, node, std::move(inputs)).outputs;
    for (size_t i = 0; i < outputs.size(); ++i) map[node.outputs[i]] = outputs[i];
  }
  part.AddOutput("mask", map.at(value));
  const auto folded = FoldConstants(part, kMostElements * sizeof(float), budget);
  const HostTensor* mask = folded.ok() ? folded->FindConstant(folded->outputs()[0].value) : nullptr;
  return mask == nullptr ? std::nullopt : std::optional(*mask);
}

// Returns the masks to embed, by the value that they replace.
std::map<ValueId, HostTensor> FindMasks(const ImportedModel& model) {
  std::map<ValueId, HostTensor> masks;
  std::set<ValueId> seen;
  HostBudget budget;
  for (const Node& node : model.graph.nodes()) {
    const ValueId v = MaskOf(node);
    if (v == kNoValue || model.graph.FindConstant(v) != nullptr || !seen.insert(v).second) continue;
    const auto origin = FindOrigin(model.graph, v);
    if (!origin) continue;
    auto mask = Evaluate(model, *origin, v, &budget);
    if (mask && IsAttentionMask(*mask)) masks.emplace(v, *std::move(mask));
  }
  return masks;
}

}  // namespace

absl::Status EmbedFixedMasks(ImportedModel* model) {
  const std::map<ValueId, HostTensor> masks = FindMasks(*model);
  if (masks.empty()) return absl::OkStatus();
  std::map<ValueId, Val> constants;
  const auto embed = [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    const auto mask = masks.find(MaskOf(node));
    if (mask == masks.end()) return std::nullopt;
    Val& constant = constants[mask->first];
    if (!constant.valid()) constant = r.b().Constant(mask->second);
    std::vector<Val> operands = r.MapOperands(node);
    operands[kMask] = constant;
    return r.b().Ops(node.op, operands, node.attrs);
  };
  ASSIGN_OR_RETURN(model->graph, Rewrite(model->graph, embed));
  return absl::OkStatus();
}

}  // namespace onnxtrain
