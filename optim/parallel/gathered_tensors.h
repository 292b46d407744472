// Tensors that one rank gathers from all, to write them: in a file without a name, so that they take no memory.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "backends/backend.h"
#include "frontend/graph/host_tensor.h"
#include "optim/step/state.h"

namespace onnxtrain {

class GatheredTensors {
 public:
  // The name must be new.
  void Add(const std::string& name, const Type& type) { layout_.Add(name, type); }
  bool Has(const std::string& name) const { return layout_.Has(name); }

  // Allocates zeroed bytes for all of them in `folder`. Without a folder, or where it has no room for them and for what
  // is written of them, in memory of the backend, which must outlive this object; `what` as in AllocateChecked.
  absl::Status Allocate(Backend& backend, const std::string& folder, std::string_view what);

  // Call after Allocate, as the following.
  Region At(const std::string& name) const;
  // Returns a view. Releases no pages that it reads: ReleaseMappedPages does. On the host only.
  static HostTensor View(const std::shared_ptr<const GatheredTensors>& tensors, const std::string& name);

 private:
  Arena layout_;  // offsets only
  std::unique_ptr<Buffer> buffer_;
};

}  // namespace onnxtrain
