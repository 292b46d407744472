#include "frontend/passes/prefetch_gathers.h"

#include <optional>
#include <utility>
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
  Prefetcher(const Graph& graph, size_t most_bytes) : graph_(graph), most_bytes_(most_bytes) {
    for (const Node& node : graph.nodes()) {
      if (IsGatherOfInput(graph, node)) gathers_.push_back(&node);
    }
  }

  std::optional<std::vector<Val>> Rewrite(Rewriter& r, const Node& node) {
    if (!IsGatherOfInput(graph_, node)) return std::nullopt;
    if (!begun_) Begin(r);
    const Val own = std::exchange(begun_, Val());
    if (next_ < gathers_.size() && Bytes(node) + Bytes(*gathers_[next_]) <= most_bytes_) Begin(r);
    std::vector<Val> outputs = r.b().Ops(kAwaitGather, {own, token_}, GroupOf(node));
    token_ = outputs[1];
    return outputs;
  }

 private:
  static Attrs GroupOf(const Node& node) {
    return {{"group", node.attrs.String("group")}, {"ranks", node.attrs.Int("ranks")}};
  }

  size_t Bytes(const Node& node) const { return graph_.type(node.outputs[0]).bytes(); }

  void Begin(Rewriter& r) {
    const Node& node = *gathers_[next_++];
    Attrs attrs = node.attrs;
    attrs.Set("begins", int64_t{1});
    std::vector<Val> inputs = {r.Map(node.inputs[0])};
    if (token_) inputs.push_back(token_);
    const std::vector<Val> outputs = r.b().Ops(node.op, inputs, attrs);
    token_ = outputs[1];
    begun_ = outputs[0];
  }

  const Graph& graph_;
  const size_t most_bytes_;
  std::vector<const Node*> gathers_;
  size_t next_ = 0;  // that has not begun
  Val begun_;        // what has begun, and is not awaited
  Val token_;
};

}  // namespace

absl::StatusOr<Graph> PrefetchGathers(const Graph& graph, size_t most_bytes) {
  Prefetcher prefetcher(graph, most_bytes);
  return Rewrite(graph, [&](Rewriter& r, const Node& node) { return prefetcher.Rewrite(r, node); });
}

}  // namespace onnxtrain
