#include "frontend/passes/reorder.h"

#include "frontend/passes/rewrite.h"

namespace onnxtrain {

Graph ReorderNodes(const Graph& graph, const std::vector<int32_t>& order) {
  Graph result;
  Rewriter r(graph, &result);
  for (int32_t n : order) r.Copy(graph.nodes()[n]);
  r.CopyOutputs();
  return result;
}

}  // namespace onnxtrain
