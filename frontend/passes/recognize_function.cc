// Functions of one number. Exporters write them in every order of their factors and sums, so nothing is asked of the
// form: any tangle of elementwise operators that hangs on one value and has the operators that the function needs is
// proposed, and the proof decides.
#include "frontend/ops/row.h"
#include "frontend/passes/match.h"

namespace onnxtrain {
namespace {

struct Function {
  std::string_view op;
  std::string_view needs;  // an operator that every way of writing it has
  Attrs attrs;
};

// From the larger to the smaller.
const std::vector<Function>& Functions() {
  static const auto* functions = new std::vector<Function>{
      {"Gelu", "Erf", {{"approximate", "none"}}},
      {"Gelu", "Tanh", {{"approximate", "tanh"}}},
      {"Gelu", "Sigmoid", {{"approximate", "tanh"}}},  // (1 + tanh u)/2 = sigmoid 2u
      {"Mish", "Tanh", {}},
      {"HardSwish", "Clip", {}},
      {"HardSwish", "HardSigmoid", {}},
      {"HardSigmoid", "Clip", {{"alpha", 1.0 / 6}, {"beta", 0.5}}},
      {"HardSigmoid", "Clip", {{"alpha", 0.2}, {"beta", 0.5}}},
      {"Softplus", "Log", {}},
      {"Softplus", "Log1p", {}},
      {"Sigmoid", "Exp", {}},
      {"Softsign", "Abs", {}},
  };
  return *functions;
}

bool Allows(const Node& node) {
  const OpRow* row = FindOp(node.op);
  return row != nullptr && row->elementwise && node.op != "Cast" && node.op != "Where" && node.inputs.size() <= 2;
}

Proposals Propose(const MatchedRegion& region) {
  const ValueId x = *region.only_leaf();
  const Graph& graph = region.pattern().graph();
  Proposals proposals;
  if (region.nodes().size() < 2 || !region.weights().empty() || graph.type(x) != graph.type(region.root()))
    return proposals;
  for (const Function& f : Functions()) {
    if (region.Count(f.needs) == 0) continue;
    auto form = [&f](Builder& b, std::span<const Val> leaves) { return b.Op(f.op, {leaves[0]}, f.attrs); };
    proposals.push_back({region.root(), f.op, {{x, {8, 32}}}, form, region.covers()});
  }
  return proposals;
}

}  // namespace

std::span<const RegionPattern> FunctionPatterns() {
  static constexpr RegionPattern kPatterns[] = {{Allows, 14, Propose}};
  return kPatterns;
}

}  // namespace onnxtrain
