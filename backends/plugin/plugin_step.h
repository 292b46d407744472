// One node of a program: a kernel of the library, a node on the host, or a copy of a view.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/plugin/host_node.h"
#include "backends/plugin/plugin_library.h"

namespace onnxtrain {

// A prepared kernel, which is released with it.
class PluginKernel {
 public:
  explicit PluginKernel(OnnxtrainKernel kernel) : kernel_(kernel) {}
  ~PluginKernel() {
    if (kernel_.release != nullptr) kernel_.release(kernel_.state);
  }
  PluginKernel(const PluginKernel&) = delete;
  PluginKernel& operator=(const PluginKernel&) = delete;

  size_t workspace() const { return kernel_.workspace; }
  absl::Status Run(void* const* inputs, void* const* outputs, void* workspace) const;

 private:
  OnnxtrainKernel kernel_;
};

// The kernel of a node; neither one: a view.
struct PreparedNode {
  std::unique_ptr<PluginKernel> kernel;
  std::unique_ptr<HostNode> host;

  // That the plan reserves: of a library with memory of its own, host nodes work elsewhere.
  size_t workspace(bool has_memory) const {
    if (host != nullptr) return has_memory ? 0 : host->workspace();
    return kernel == nullptr ? 0 : kernel->workspace();
  }
};

// By node; nothing for dead ones.
absl::StatusOr<std::vector<PreparedNode>> PrepareNodes(const PluginLibrary& library, Backend& host, const Graph& graph,
                                                       const PluginGraph& view);

}  // namespace onnxtrain
