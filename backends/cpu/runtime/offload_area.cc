#include "backends/cpu/runtime/offload_area.h"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "backends/cpu/runtime/parallel.h"
#include "backends/cpu/runtime/program.h"
#include "backends/kernel_table.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

constexpr size_t kPage = 4096;

size_t WholePages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Calls move(offset, bytes) for parts of a value, in several threads: the system copies them.
template <typename Move>
void MoveParts(size_t offset, std::span<std::byte> bytes, const Move& move) {
  constexpr size_t kPart = size_t{1} << 20;
  const size_t parts = (bytes.size() + kPart - 1) / kPart;
  std::mutex mutex;
  absl::Status failure;
  Parallel(static_cast<int64_t>(parts), kGrain, [&](int64_t begin, int64_t end) {
    for (size_t at = begin * kPart; at < std::min(end * kPart, bytes.size()); at += kPart) {
      const size_t size = std::min(kPart, bytes.size() - at);
      const absl::Status status = move(static_cast<int64_t>(offset + at), bytes.subspan(at, size));
      if (status.ok()) continue;
      const std::lock_guard lock(mutex);
      failure = status;
    }
  });
  if (!failure.ok()) throw KernelFailure(failure);
}

}  // namespace

absl::StatusOr<std::unique_ptr<OffloadArea>> OffloadArea::Create(size_t bytes, const std::string& folder) {
  ASSIGN_OR_RETURN(auto memory, AllocateBuffer(bytes));
  ::madvise(memory->data(), bytes, MADV_NOHUGEPAGE);  // a huge page would take the memory of neighbors, too
  ASSIGN_OR_RETURN(ScratchFile file, ScratchFile::Create(folder));
  RETURN_IF_ERROR(Annotate(file.Reserve(static_cast<int64_t>(bytes)), "activations that memory has no room for: "));
  return std::unique_ptr<OffloadArea>(new OffloadArea(std::move(memory), std::move(file)));
}

void OffloadArea::Store(const Offload& value) const {
  MoveParts(value.offset, Bytes(value),
            [&](int64_t at, std::span<const std::byte> part) { return file_.WriteAt(at, part); });
  Drop(value);
}

void OffloadArea::Load(const Offload& value) const {
  MoveParts(value.offset, Bytes(value), [&](int64_t at, std::span<std::byte> part) { return file_.ReadAt(at, part); });
}

void OffloadArea::Drop(const Offload& value) const {
  ::madvise(data() + value.offset, WholePages(value.bytes), MADV_DONTNEED);
}

void OffloadArea::DropAll() const { ::madvise(data(), memory_->size(), MADV_DONTNEED); }

}  // namespace onnxtrain::cpu
