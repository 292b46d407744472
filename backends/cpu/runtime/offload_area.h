// The memory of values that a file holds between two uses (MemoryPlan::offloads).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "backends/memory_plan.h"
#include "frontend/base/scratch_file.h"

namespace onnxtrain::cpu {

// Pages take memory from the first write to Store, and from Load to Drop. The system keeps stored bytes in its page
// cache, and writes them to the disk where other memory is needed, or after some time; bytes that the next update
// replaces before then never reach the disk.
class OffloadArea {
 public:
  // Reserves address space, and a file in `folder`, of `bytes` bytes.
  static absl::StatusOr<std::unique_ptr<OffloadArea>> Create(size_t bytes, const std::string& folder);

  std::byte* data() const { return static_cast<std::byte*>(memory_->data()); }
  // Throw KernelFailure if the file cannot be written or read.
  void Store(const Offload& value) const;
  void Load(const Offload& value) const;
  void Drop(const Offload& value) const;
  void DropAll() const;

 private:
  OffloadArea(std::unique_ptr<Buffer> memory, ScratchFile file) : memory_(std::move(memory)), file_(std::move(file)) {}
  std::span<std::byte> Bytes(const Offload& value) const { return {data() + value.offset, value.bytes}; }

  std::unique_ptr<Buffer> memory_;
  ScratchFile file_;
};

}  // namespace onnxtrain::cpu
