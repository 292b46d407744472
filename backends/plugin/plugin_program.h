// A compiled graph over the kernels of a library and planned memory.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "backends/plugin/plugin_library.h"

namespace onnxtrain {

// Does the library run the node?
bool LibraryRuns(const PluginLibrary& library, const Graph& graph, const Node& node);

// `graph` is legalized; `host`, the backend `cpu`, runs what the library does not, and must outlive the program.
absl::StatusOr<std::unique_ptr<Program>> MakePluginProgram(std::shared_ptr<PluginLibrary> library, Backend& host,
                                                           const Graph& graph, const CompileOptions& options);

// Bytes of scratch memory by node that the plan has to reserve.
absl::StatusOr<std::vector<size_t>> PluginWorkspaces(const PluginLibrary& library, Backend& host, const Graph& graph);

}  // namespace onnxtrain
