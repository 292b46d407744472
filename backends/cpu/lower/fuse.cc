#include "backends/cpu/lower/fuse.h"

#include "backends/cpu/lower/fuse_elementwise.h"
#include "backends/cpu/lower/fuse_norm.h"
#include "frontend/base/status.h"
#include "frontend/passes/dce.h"
#include "frontend/passes/pass.h"

namespace onnxtrain::cpu {

absl::StatusOr<Graph> FuseGraph(const Graph& legal) {
  const auto fuse_elementwise = [](const Graph& graph) -> absl::StatusOr<Graph> {
    ASSIGN_OR_RETURN(FusedGraph fused, FuseElementwise(graph));
    return std::move(fused.graph);
  };
  const Pass passes[] = {{"fuse_norms", FuseNorms}, DcePass(), {"fuse_elementwise", fuse_elementwise}};
  return RunPasses(legal, passes);
}

}  // namespace onnxtrain::cpu
