#include "backends/cpu/runtime/offload_area.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <utility>

#include "backends/cpu/runtime/program.h"
#include "backends/kernel_table.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

constexpr size_t kPage = 4096;

size_t WholePages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void Check(const absl::Status& status) {
  if (!status.ok()) throw KernelFailure(status);
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
  const auto offset = static_cast<int64_t>(value.offset);
  Check(file_.WriteAt(offset, Bytes(value)));
  ::sync_file_range(file_.fd(), offset, static_cast<int64_t>(value.bytes), SYNC_FILE_RANGE_WRITE);
  Drop(value);
}

void OffloadArea::Load(const Offload& value) const {
  Check(file_.ReadAt(static_cast<int64_t>(value.offset), Bytes(value)));
}

void OffloadArea::Drop(const Offload& value) const {
  ::madvise(data() + value.offset, WholePages(value.bytes), MADV_DONTNEED);
}

void OffloadArea::DropAll() const { ::madvise(data(), memory_->size(), MADV_DONTNEED); }

}  // namespace onnxtrain::cpu
