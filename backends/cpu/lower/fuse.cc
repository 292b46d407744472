#include "backends/cpu/lower/passes.h"
#include "backends/dataflow.h"
#include "frontend/base/status.h"
#include "frontend/passes/dce.h"
#include "frontend/passes/pass.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain::cpu {
namespace {

FusedGraph RemoveDeadNodes(const Graph& graph) {
  FusedGraph live;
  Rewriter r(graph, &live.graph);
  const std::vector<bool> is_live = FindLiveNodes(graph);
  for (size_t n = 0; n < is_live.size(); ++n) {
    if (is_live[n] || graph.nodes()[n].op == "Constant") r.Copy(graph.nodes()[n]);
  }
  r.CopyOutputs();
  live.values = r.values();
  return live;
}

void Append(FusedGraph next, FusedGraph* fused) {
  for (ValueId& v : fused->values) v = v == kNoValue ? v : next.values[v];
  fused->graph = std::move(next.graph);
}

}  // namespace

absl::StatusOr<FusedGraph> FuseKernels(const Graph& legal) {
  ASSIGN_OR_RETURN(FusedGraph fused, FuseEpilogues(legal));
  RETURN_IF_ERROR(VerifyResult("fuse_epilogues", fused.graph));
  Append(RemoveDeadNodes(fused.graph), &fused);
  ASSIGN_OR_RETURN(FusedGraph chains, FuseElementwise(fused.graph));
  Append(std::move(chains), &fused);
  RETURN_IF_ERROR(VerifyResult("fuse_elementwise", fused.graph));
  return fused;
}

absl::StatusOr<Graph> FuseGraph(const Graph& legal) {
  const Pass passes[] = {{"fuse_epilogues", WithoutValues<FuseEpilogues>},
                         DcePass(),
                         {"fuse_norms", FuseNorms},
                         DcePass(),
                         {"fuse_elementwise", WithoutValues<FuseElementwise>}};
  return RunPasses(legal, passes);
}

absl::StatusOr<FusedGraph> RewriteNodes(const Graph& graph, const RewriteRule& rule) {
  FusedGraph result;
  Rewriter r(graph, &result.graph);
  for (const Node& node : graph.nodes()) {
    if (!node.outputs.empty() && std::ranges::all_of(node.outputs, [&](ValueId v) { return r.IsSet(v); })) continue;
    r.b().set_source(node.source);
    const auto outputs = rule(r, node);
    RETURN_IF_ERROR(r.b().status());
    if (!outputs) r.Copy(node);
    for (size_t i = 0; outputs && i < outputs->size(); ++i) {
      if ((*outputs)[i]) r.Set(node.outputs[i], (*outputs)[i]);
    }
  }
  for (size_t v = 0; v < graph.values().size(); ++v) {
    const ValueId now = r.values()[v];
    if (now != kNoValue && result.graph.value(now).name.empty())
      result.graph.SetValueName(now, graph.value(static_cast<ValueId>(v)).name);
  }
  r.CopyOutputs();
  result.values = r.values();
  return result;
}

}  // namespace onnxtrain::cpu
