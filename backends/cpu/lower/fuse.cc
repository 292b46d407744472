#include "backends/cpu/lower/passes.h"
#include "frontend/base/status.h"
#include "frontend/passes/dce.h"
#include "frontend/passes/pass.h"

namespace onnxtrain::cpu {
namespace {

const Pass kEpilogues = {"fuse_epilogues", [](const Graph&g) { return FuseEpilogues(g); }},
           kNorms = {"fuse_norms", FuseNorms},
           kElementwise = {"fuse_elementwise", [](const Graph&g) { return FuseElementwise(g); }};

}  // namespace

absl::StatusOr<FusedGraph> FuseKernels(const Graph& legal) {
  ValueMap epilogues, live, chains;
  ASSIGN_OR_RETURN(Graph graph, FuseEpilogues(legal, &epilogues));
  RETURN_IF_ERROR(VerifyResult(kEpilogues.name, graph));
  graph = Dce(graph, {}, &live);
  ASSIGN_OR_RETURN(graph, FuseElementwise(graph, &chains));
  RETURN_IF_ERROR(VerifyResult(kElementwise.name, graph));
  for (ValueId& v : epilogues) {
    for (const ValueMap* next : {&live, &chains}) v = v == kNoValue ? v : (*next)[v];
  }
  return FusedGraph{std::move(graph), std::move(epilogues)};
}

absl::StatusOr<Graph> FuseGraph(const Graph& legal) {
  const Pass passes[] = {kEpilogues, DcePass(), kNorms, DcePass(), kElementwise};
  return RunPasses(legal, passes);
}

}  // namespace onnxtrain::cpu
