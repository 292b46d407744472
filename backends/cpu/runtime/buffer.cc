#include "backends/cpu/runtime/program.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "backends/cpu/runtime/parallel.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

// Anonymous pages: zeroed by the system, aligned to 4096.
class HostBuffer : public Buffer {
 public:
  HostBuffer(void* data, size_t size, size_t mapped)
      : data_(static_cast<std::byte*>(data)), size_(size), mapped_(mapped) {}
  ~HostBuffer() override { munmap(data_, mapped_); }

  size_t size() const override { return size_; }
  void* data() override { return data_; }
  absl::Status Write(size_t offset, std::span<const std::byte> bytes) override {
    RETURN_IF_ERROR(CheckRange(offset, bytes.size()));
    // In parallel: touching new pages takes longer than filling them.
    constexpr int64_t kBlock = int64_t{1} << 20;
    const auto size = static_cast<int64_t>(bytes.size());
    Parallel((size + kBlock - 1) / kBlock, kGrain, [&](int64_t begin, int64_t end) {
      std::memcpy(data_ + offset + begin * kBlock, bytes.data() + begin * kBlock,
                  std::min(size, end * kBlock) - begin * kBlock);
    });
    return absl::OkStatus();
  }
  absl::Status Read(size_t offset, std::span<std::byte> bytes) const override {
    RETURN_IF_ERROR(CheckRange(offset, bytes.size()));
    if (!bytes.empty()) std::memcpy(bytes.data(), data_ + offset, bytes.size());
    return absl::OkStatus();
  }

 private:
  absl::Status CheckRange(size_t offset, size_t bytes) const {
    if (offset <= size_ && bytes <= size_ - offset) return absl::OkStatus();
    return absl::OutOfRangeError(StrCat("bytes ", offset, " to ", offset + bytes, " of a buffer of ", size_));
  }

  std::byte* data_;
  size_t size_, mapped_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Buffer>> AllocateBuffer(size_t bytes) {
  const size_t mapped = bytes == 0 ? 1 : bytes;
  void* data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return absl::ResourceExhaustedError(StrCat("no memory for a buffer of ", bytes, " bytes"));
  return std::make_unique<HostBuffer>(data, bytes, mapped);
}

void AdviseHugePages(void* begin, size_t bytes) {
  constexpr size_t kWorthwhile = size_t{4} << 20;
  if (bytes >= kWorthwhile) madvise(begin, bytes, MADV_HUGEPAGE);
}

void PrefaultPages(void* begin, size_t bytes) {
  constexpr size_t kPage = 4096;
  auto* first = static_cast<unsigned char*>(begin);
  Parallel(static_cast<int64_t>((bytes + kPage - 1) / kPage), kGrain, [&](int64_t page, int64_t end) {
    for (; page < end; ++page) std::atomic_ref(first[page * kPage]).fetch_or(0, std::memory_order_relaxed);
  });
}

}  // namespace onnxtrain::cpu
