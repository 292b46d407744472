// Named regions of flat device buffers: the memory that outlives a step.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

struct Region {
  BufferView view;
  Type type;
};

using Bindings = std::map<std::string, Region>;

// Where a region of a buffer on the host is.
inline std::byte* HostMemory(const Region& region) {
  return static_cast<std::byte*>(region.view.buffer->data()) + region.view.offset;
}

// A tensor that outlives a step. The bytes of all, SessionCounters and the options make up a session.
struct StateTensor {
  std::string name;  // of a weight or a running statistic: the initializer's; all other names begin with "$"
  bool of_model;     // a weight, a running statistic or the average of a weight; else a moment or a counter
  Region region;
};

// Lays out tensors contiguously, each at a multiple of 64 bytes, and allocates them as one zeroed buffer.
class Arena {
 public:
  // Returns the offset in bytes. The name must be new.
  size_t Add(const std::string& name, const Type& type);
  size_t size() const { return size_; }
  absl::Status Allocate(Backend& backend, std::string_view what);

  Buffer* buffer() const { return buffer_.get(); }
  const std::vector<std::string>& names() const { return names_; }
  bool Has(const std::string& name) const { return tensors_.contains(name); }
  // Returns the region of a tensor; call after Allocate.
  Region At(const std::string& name) const;

 private:
  struct Tensor {
    size_t offset;
    Type type;
  };
  std::map<std::string, Tensor> tensors_;
  std::vector<std::string> names_;
  size_t size_ = 0;
  std::unique_ptr<Buffer> buffer_;
};

absl::Status WriteRegion(const Region& region, const HostTensor& value);  // of the region's type
absl::StatusOr<HostTensor> ReadRegion(const Region& region);

// Parts of state tensors that ranks hold: runs of elements at equal distances.

// Elements [begin + i · stride, begin + i · stride + length) of a flat tensor, for i = 0, 1, …
struct ElementRuns {
  int64_t begin = 0, length = 0, stride = 0;

  bool operator==(const ElementRuns&) const = default;
};

// All elements of a tensor, of which there is at least one.
inline ElementRuns AllElements(int64_t elements) { return {0, elements, elements}; }

// A part by name: "w1@128:64:64" for AllElements and 128 elements later.
struct StatePart {
  std::string tensor;
  ElementRuns runs;
};

std::string PartName(std::string_view tensor, const ElementRuns& runs);
absl::StatusOr<StatePart> ParsePartName(std::string_view name);

// Writes a part, in which the runs follow each other, into the whole tensor, whose bytes must be its own. Fails where
// the elements do not lie in it, in whole runs, one behind the other.
absl::Status PutRuns(const HostTensor& part, const ElementRuns& runs, HostTensor* whole);

}  // namespace onnxtrain
