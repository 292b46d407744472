#include "backends/rank_groups.h"

#include "frontend/base/status.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

bool NeedsRanks(const Node& node) { return FindOp(node.op)->collective && node.attrs.Int("ranks") > 1; }

absl::Status RankGroups::Bind(const Graph& graph, std::string_view name, Collectives* ranks) {
  for (const Node& node : graph.nodes()) {
    if (!FindOp(node.op)->collective || node.attrs.String("group") != name) continue;
    if (const int64_t size = node.attrs.Int("ranks"); size != ranks->size())
      return Invalid(NodeTag(node), "is of ", size, " ranks, group '", name, "' has ", ranks->size());
  }
  groups_[std::string(name)] = ranks;
  return absl::OkStatus();
}

Collectives* RankGroups::Find(const Node& node) const {
  if (groups_.empty() || !FindOp(node.op)->collective) return nullptr;
  const auto found = groups_.find(node.attrs.String("group"));
  return found != groups_.end() ? found->second : nullptr;
}

absl::Status RankGroups::CheckAllBound(const Graph& graph) const {
  for (const Node& node : graph.nodes()) {
    if (NeedsRanks(node) && Find(node) == nullptr)
      return absl::FailedPreconditionError(
          StrCat(NodeTag(node), "no group '", node.attrs.String("group"), "' of ranks is bound"));
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
