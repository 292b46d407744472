// Tensors that one rank gathers from all ranks to write them. They are stored in an unnamed file, not in memory.
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
  // Adds a tensor to the layout. The name must be new.
  void Add(const std::string& name, const Type& type) { layout_.Add(name, type); }
  bool Has(const std::string& name) const { return layout_.Has(name); }

  // Allocates zeroed bytes for all tensors in `folder`. Without a folder, or if it lacks room for both the tensors and
  // their written copy, allocates memory of the backend, which must outlive this object. `what` is as in
  // AllocateChecked.
  absl::Status Allocate(Backend& backend, const std::string& folder, std::string_view what);

  // Returns the region of a tensor. Must follow Allocate, as must View.
  Region At(const std::string& name) const;
  // Returns a view of a tensor in host memory. Reading it maps pages until ReleaseMappedPages.
  static HostTensor View(const std::shared_ptr<const GatheredTensors>& tensors, const std::string& name);

 private:
  Arena layout_;  // offsets only
  std::unique_ptr<Buffer> buffer_;
};

}  // namespace onnxtrain
