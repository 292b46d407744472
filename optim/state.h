// The device memory that outlives a step: named regions of a few flat buffers.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"

namespace onnxtrain {

struct Region {
  BufferView view;
  Type type;
};

using Bindings = std::map<std::string, Region>;

// Lays tensors out one after the other, each at a multiple of 64 bytes, then allocates them as one zeroed buffer.
class Arena {
 public:
  // Returns the offset.
  size_t Add(const std::string& name, const Type& type);
  size_t size() const { return size_; }
  absl::Status Allocate(Backend& backend, std::string_view what);

  Buffer* buffer() const { return buffer_.get(); }
  const std::vector<std::string>& names() const { return names_; }
  bool Has(const std::string& name) const { return tensors_.contains(name); }
  // Of a name that was added, after Allocate.
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

absl::Status WriteRegion(const Region& region, const HostTensor& value);  // of the slice's type
absl::StatusOr<HostTensor> ReadRegion(const Region& region);

}  // namespace onnxtrain
