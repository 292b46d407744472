#include "backends/cpu/lower/passes.h"
#include "frontend/base/status.h"
#include "frontend/passes/eliminate.h"
#include "frontend/passes/pass.h"

namespace onnxtrain::cpu {

absl::StatusOr<FusedGraph> FuseKernels(const Graph& legal) {
  ValueMap epilogues, live, chains;
  const Pass passes[] = {
      {"fuse_epilogues", [&](const Graph& g) { return FuseEpilogues(g, &epilogues); }},
      {"dce", [&](const Graph& g) { return Dce(g, {}, &live); }},
      {"fuse_elementwise", [&](const Graph& g) { return FuseElementwise(g, &chains); }},
  };
  ASSIGN_OR_RETURN(Graph graph, RunPasses(legal, passes));
  for (ValueId& v : epilogues) {
    for (const ValueMap* next : {&live, &chains}) v = v == kNoValue ? v : (*next)[v];
  }
  return FusedGraph{std::move(graph), std::move(epilogues)};
}

absl::StatusOr<Graph> FuseGraph(const Graph& legal) {
  const Pass passes[] = {
      {"fuse_epilogues", [](const Graph& g) { return FuseEpilogues(g); }},
      DcePass(),
      {"fuse_norms", FuseNorms},
      DcePass(),
      {"fuse_elementwise", [](const Graph& g) { return FuseElementwise(g); }},
  };
  return RunPasses(legal, passes);
}

}  // namespace onnxtrain::cpu
