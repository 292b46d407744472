#include "backends/plugin/plugin_step.h"

#include "backends/dataflow.h"
#include "backends/plugin/plugin_program.h"
#include "frontend/base/cancellation.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "frontend/plugin/plugin_message.h"

namespace onnxtrain {
namespace {

// Which outputs of a node anyone reads.
class ReadOutputs {
 public:
  explicit ReadOutputs(const Graph& graph) : users_(ComputeUsers(graph)), is_output_(graph.values().size()) {
    for (const GraphOutput& output : graph.outputs()) is_output_[output.value] = true;
  }
  std::vector<bool> Get(const Node& node) const {
    std::vector<bool> read;
    for (const ValueId v : node.outputs) read.push_back(is_output_[v] || !users_[v].empty());
    return read;
  }

 private:
  const Users users_;
  std::vector<bool> is_output_;
};

}  // namespace

absl::Status PluginKernel::Run(void* const* inputs, void* const* outputs, void* workspace) const {
  const OnnxtrainKernelArgs args{.inputs = inputs, .outputs = outputs, .workspace = workspace};
  PluginMessage message;
  const int code = kernel_.run(kernel_.state, &args, message.get());
  return code == 0 ? absl::OkStatus() : message.ToStatus(code, "the backend failed");
}

absl::StatusOr<std::vector<PreparedNode>> PrepareNodes(const PluginLibrary& library, Backend& host, const Graph& graph,
                                                       const PluginGraph& view) {
  const std::vector<bool> running = FindLiveNodes(graph);
  const ReadOutputs read(graph);
  std::vector<PreparedNode> prepared(graph.nodes().size());
  for (size_t n = 0; n < prepared.size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (!running[n] || FindOp(node.op)->view) continue;
    RETURN_IF_ERROR(CheckCancelled());
    if (LibraryRuns(library, graph, node)) {
      auto kernel = library.Prepare(*view.get(), n);
      if (!kernel.ok()) return Annotate(kernel.status(), NodeTag(node));
      prepared[n].kernel = std::make_unique<PluginKernel>(*kernel);
    } else {
      auto on_host = HostNode::Make(host, graph, node, read.Get(node));
      if (!on_host.ok()) return Annotate(on_host.status(), NodeTag(node));
      prepared[n].host = *std::move(on_host);
    }
  }
  return prepared;
}

}  // namespace onnxtrain
