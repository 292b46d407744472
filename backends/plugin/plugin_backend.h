// A backend that a plugin provides through the C interface of frontend/plugin/onnxtrain_plugin.h: its function table,
// handle and device memory.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/plugin/plugin_node.h"

namespace onnxtrain {

// A backend of a plugin. Shared by the Backend, its programs and its buffers, which may outlive the Backend.
class PluginLibrary {
 public:
  static absl::StatusOr<std::shared_ptr<PluginLibrary>> Create(const OnnxtrainBackendApi& api,
                                                               const OnnxtrainBackendOptions& options);
  ~PluginLibrary() { api_.destroy(backend_); }
  PluginLibrary(const PluginLibrary&) = delete;
  PluginLibrary& operator=(const PluginLibrary&) = delete;

  const OnnxtrainBackendApi& api() const { return api_; }
  bool has_memory() const { return api_.allocate != nullptr; }  // false: kernels work on host memory
  std::string Describe() const;
  bool Supports(const OnnxtrainNode& node) const { return api_.supports(backend_, &node) != 0; }
  absl::StatusOr<OnnxtrainKernel> Prepare(const OnnxtrainGraph& graph, size_t node) const;

  // Allocates zeroed device memory as a Buffer, which keeps `self`. Requires has_memory(), as the functions below do.
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(std::shared_ptr<PluginLibrary> self, size_t bytes) const;
  absl::Status Copy(void* to, const void* from, size_t bytes, OnnxtrainCopy direction) const;
  absl::Status Synchronize() const;
  size_t FreeMemory() const { return api_.free_memory(backend_); }
  void Deallocate(void* address) const { api_.deallocate(backend_, address); }

 private:
  PluginLibrary(const OnnxtrainBackendApi& api, void* backend) : api_(api), backend_(backend) {}

  const OnnxtrainBackendApi& api_;
  void* backend_;
};

// Loads the plugin at `path` and creates its backend. `host` is the backend `cpu`, for buffers in host memory and for
// nodes for which the plugin has no kernel. Messages start with the path.
absl::StatusOr<std::unique_ptr<Backend>> CreatePluginBackend(const std::string& path, const BackendOptions& options,
                                                             std::unique_ptr<Backend> host);

}  // namespace onnxtrain
