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

// Returns the address of a region of a host buffer.
inline std::byte* HostMemory(const Region& region) {
  return static_cast<std::byte*>(region.view.buffer->data()) + region.view.offset;
}

// A tensor that outlives a step. All of them, SessionCounters and the options define the state of a session.
struct StateTensor {
  std::string name;  // of a weight or a running statistic: the initializer's; all other names begin with "$"
  bool of_model;     // a weight, a running statistic or the average of a weight; else a moment or a counter
  Region region;
};

// Lays out tensors one after the other, each at a multiple of 64 bytes, and allocates them as one zeroed buffer.
class Arena {
 public:
  // Adds a tensor and returns its offset in bytes. The name must be new.
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

// A part of a state tensor that a rank holds: elements [begin + i · stride, begin + i · stride + length) of the flat
// tensor, for i = 0, 1, …
struct ElementRuns {
  int64_t begin = 0, length = 0, stride = 0;

  bool operator==(const ElementRuns&) const = default;
};

// Returns the runs that cover a tensor of at least one element.
inline ElementRuns AllElements(int64_t elements) { return {0, elements, elements}; }

// The parsed name of a part: "w1@128:64:64" is AllElements(64), shifted by 128 elements, of w1.
struct StatePart {
  std::string tensor;
  ElementRuns runs;
};

std::string PartName(std::string_view tensor, const ElementRuns& runs);
absl::StatusOr<StatePart> ParsePartName(std::string_view name);

// Copies a part, which holds its runs contiguously, into the whole tensor, which must own its bytes. Fails if the runs
// overlap, are incomplete or exceed the tensor.
absl::Status PutRuns(const HostTensor& part, const ElementRuns& runs, HostTensor* whole);

}  // namespace onnxtrain
