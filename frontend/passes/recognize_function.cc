// Elementwise functions of one value. Exporters vary the order of factors and sums, so the patterns do not fix a form:
// every region of elementwise operators over one leaf that has the operator `needs` of a row's written form is
// proposed, and the proof decides.
#include <algorithm>
#include <iterator>

#include "frontend/ops/row.h"
#include "frontend/passes/match.h"

namespace onnxtrain {
namespace {

// Returns the rows with written forms, in table order.
const std::vector<const OpRow*>& WrittenOps() {
  static const auto* written = [] {
    auto* rows = new std::vector<const OpRow*>;
    std::ranges::copy_if(AllOps(), std::back_inserter(*rows),
                         [](const OpRow* row) { return !row->written_as.empty(); });
    return rows;
  }();
  return *written;
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
  for (const OpRow* row : WrittenOps()) {
    for (const WrittenForm& form : row->written_as) {
      if (region.Count(form.needs) == 0) continue;
      auto build = [row, &form](Builder& b, std::span<const Val> leaves) {
        return b.Op(row->name, {leaves[0]}, form.attrs);
      };
      proposals.push_back({region.root(), row->name, {{x, {8, 32}}}, build, region.covers()});
    }
  }
  return proposals;
}

}  // namespace

std::span<const RegionPattern> FunctionPatterns() {
  static constexpr RegionPattern kPatterns[] = {{Allows, 14, Propose}};
  return kPatterns;
}

}  // namespace onnxtrain
