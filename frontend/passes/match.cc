#include "frontend/passes/match.h"

#include <algorithm>
#include <numeric>

#include "frontend/base/strings.h"
#include "frontend/graph/text_form.h"
#include "frontend/graph/tokens.h"
#include "frontend/ops/simplify/simplify.h"

namespace onnxtrain {

Pattern::Pattern(const Graph& graph)
    : graph_(graph),
      weight_(graph.values().size(), true),
      is_output_(graph.values().size(), false),
      uses_(graph.values().size(), 0),
      users_(ComputeUsers(graph)),
      kind_(graph.nodes().size(), -1) {
  for (const GraphInput& input : graph.inputs()) weight_[input.value] = input.kind != InputKind::kFeed;
  for (const Node& node : graph.nodes()) {
    bool weight = true;
    for (ValueId v : node.inputs) {
      if (v == kNoValue) continue;
      weight = weight && weight_[v];
      ++uses_[v];
    }
    for (ValueId v : node.outputs) weight_[v] = weight;
  }
  for (const GraphOutput& output : graph.outputs()) {
    uses_[output.value] += 2;
    is_output_[output.value] = true;
  }
}

const Node* Pattern::Producer(ValueId v, std::string_view op) const {
  const Node* node = v == kNoValue ? nullptr : graph_.producer(v);
  return node != nullptr && node->op == op ? node : nullptr;
}

const Node* Pattern::SoleUser(ValueId v, std::string_view op) const {
  if (!HasOneUse(v)) return nullptr;
  const Node& user = graph_.nodes()[users_[v][0]];
  return op.empty() || user.op == op ? &user : nullptr;
}

ValueId Pattern::BeforeCast(ValueId v, DType from, DType to) const {
  const Node* cast = Producer(v, "Cast");
  const bool matches = cast != nullptr && graph_.type(v).dtype == to && graph_.type(cast->inputs[0]).dtype == from;
  return matches ? cast->inputs[0] : kNoValue;
}

std::optional<double> Pattern::Splat(ValueId v) const {
  if (v == kNoValue) return std::nullopt;
  if (splats_.empty()) splats_.resize(graph_.values().size());
  if (!splats_[v]) splats_[v] = FindSplat(graph_, v);
  return *splats_[v];
}

int32_t Pattern::Kind(const Node& node) const {
  int32_t& kind = kind_[&node - graph_.nodes().data()];
  if (kind >= 0) return kind;
  std::string key = StrCat(node.op, Print(node.attrs));
  for (ValueId v : node.outputs) StrAppend(&key, " ", ToString(graph_.type(v)));
  for (ValueId v : node.inputs) {
    if (v == kNoValue) {
      key += " _";
      continue;
    }
    StrAppend(&key, weight_[v] ? " w" : " v", ToString(graph_.type(v)));
    if (const auto splat = Splat(v)) StrAppend(&key, "=", text::FormatDouble(*splat));
  }
  return kind = kinds_.emplace(std::move(key), static_cast<int32_t>(kinds_.size())).first->second;
}

bool IsPerHead(const Graph& graph, ValueId factor) {
  const Type& type = graph.type(factor);
  const auto last = type.shape.end();
  return type.elements() == 1 || (type.rank() >= 3 && last[-1] == 1 && last[-2] == 1);
}

Perm IdentityPerm(int rank) {
  Perm perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  return perm;
}

Perm InversePerm(const Perm& perm) {
  Perm inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[perm[i]] = static_cast<int64_t>(i);
  return inverse;
}

Perm SkipTransposes(const Pattern& pattern, ValueId* v) {
  Perm perm = IdentityPerm(pattern.graph().type(*v).rank());
  while (const Node* transpose = pattern.Producer(*v, "Transpose")) {
    const Perm outer = transpose->attrs.Ints("perm");
    for (int64_t& axis : perm) axis = outer[axis];
    *v = transpose->inputs[0];
  }
  return perm;
}

std::optional<Perm> FindUserPerm(const Pattern& pattern, ValueId v) {
  const auto users = pattern.users(v);
  if (users.empty() || pattern.IsOutput(v)) return std::nullopt;
  const auto& nodes = pattern.graph().nodes();
  const Node& first = nodes[users[0]];
  const bool same = std::ranges::all_of(users, [&](int32_t n) {
    return nodes[n].op == "Transpose" && nodes[n].attrs.Ints("perm") == first.attrs.Ints("perm");
  });
  return same ? std::optional(first.attrs.Ints("perm")) : std::nullopt;
}

MatchedRegion::MatchedRegion(const Pattern& pattern, ValueId root) : pattern_(pattern), root_(root), frontier_{root} {}

void MatchedRegion::AddOperand(ValueId v) {
  if (pattern_.Splat(v).has_value()) return;
  std::vector<ValueId>& values = pattern_.IsWeight(v) ? weights_ : frontier_;
  const auto at = std::ranges::lower_bound(values, v);
  if (at == values.end() || *at != v) values.insert(at, v);
}

bool MatchedRegion::Grow(const std::vector<bool>& allowed) {
  const Graph& graph = pattern_.graph();
  const Node* node = graph.producer(frontier_.back());
  if (node == nullptr || node->outputs.size() != 1 || !allowed[node - graph.nodes().data()]) return false;
  frontier_.pop_back();
  nodes_.push_back(node);
  for (ValueId v : node->inputs) {
    if (v != kNoValue) AddOperand(v);
  }
  return !frontier_.empty();
}

// Lists, for each node, its kind, output and operands. Values are numbered in the order of their first appearance.
std::vector<int32_t> MatchedRegion::signature() const {
  std::vector<int32_t> signature;
  std::vector<ValueId> numbering;  // searched linearly, since regions are small
  const auto add = [&](ValueId v) {
    const auto known = std::ranges::find(numbering, v);
    signature.push_back(static_cast<int32_t>(known - numbering.begin()));
    if (known == numbering.end()) numbering.push_back(v);
  };
  for (const Node* node : nodes_) {
    signature.push_back(pattern_.Kind(*node));
    add(node->outputs[0]);
    for (ValueId v : node->inputs) {
      if (v != kNoValue) add(v);
    }
  }
  return signature;
}

int MatchedRegion::Count(std::string_view op) const {
  return static_cast<int>(std::ranges::count_if(nodes_, [&](const Node* node) { return node->op == op; }));
}

std::set<ValueId> MatchedRegion::covers() const {
  std::set<ValueId> values;
  for (const Node* node : nodes_) values.insert(node->outputs[0]);
  return values;
}

}  // namespace onnxtrain
