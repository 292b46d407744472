#include "frontend/passes/prefetch_gathers.h"

#include <optional>
#include <vector>

#include "frontend/ops/collective.h"
#include "frontend/ops/row.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain {
namespace {

bool IsGatherOfInput(const Graph& graph, const Node& node) {
  return node.op == "AllGather" && graph.IsInput(node.inputs[0]);
}

class Prefetcher {
 public:
  explicit Prefetcher(const Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes()) {
      if (IsGatherOfInput(graph, node)) gathers_.push_back(&node);
    }
  }

  std::optional<std::vector<Val>> Rewrite(Rewriter& r, const Node& node) {
    if (!IsGatherOfInput(graph_, node)) return std::nullopt;
    if (next_ == 0) begun_ = Begin(r, *gathers_[next_++]);
    const Val own = begun_;
    if (next_ < gathers_.size()) begun_ = Begin(r, *gathers_[next_++]);
    std::vector<Val> outputs = r.b().Ops(kAwaitGather, {own, token_}, GroupOf(node));
    token_ = outputs[1];
    return outputs;
  }

 private:
  static Attrs GroupOf(const Node& node) {
    return {{"group", node.attrs.String("group")}, {"ranks", node.attrs.Int("ranks")}};
  }

  Val Begin(Rewriter& r, const Node& node) {
    Attrs attrs = node.attrs;
    attrs.Set("begins", int64_t{1});
    std::vector<Val> inputs = {r.Map(node.inputs[0])};
    if (token_) inputs.push_back(token_);
    const std::vector<Val> outputs = r.b().Ops(node.op, inputs, attrs);
    token_ = outputs[1];
    return outputs[0];
  }

  const Graph& graph_;
  std::vector<const Node*> gathers_;
  size_t next_ = 0;  // that has not begun
  Val begun_;        // the last one
  Val token_;
};

}  // namespace

absl::StatusOr<Graph> PrefetchGathers(const Graph& graph) {
  Prefetcher prefetcher(graph);
  return Rewrite(graph, [&](Rewriter& r, const Node& node) { return prefetcher.Rewrite(r, node); });
}

}  // namespace onnxtrain
