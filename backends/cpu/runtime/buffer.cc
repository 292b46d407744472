#include "backends/cpu/runtime/program.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "backends/cpu/runtime/parallel.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

absl::Status CheckRange(size_t offset, size_t bytes, size_t size) {
  if (offset <= size && bytes <= size - offset) return absl::OkStatus();
  return absl::OutOfRangeError(StrCat("bytes ", offset, " to ", offset + bytes, " of a buffer of ", size));
}

// Owns anonymous pages, which the system zeroes and aligns to 4096 bytes.
class HostBuffer : public Buffer {
 public:
  HostBuffer(void* data, size_t size, size_t mapped)
      : data_(static_cast<std::byte*>(data)), size_(size), mapped_(mapped) {}
  ~HostBuffer() override { munmap(data_, mapped_); }

  size_t size() const override { return size_; }
  void* data() override { return data_; }
  absl::Status Write(size_t offset, std::span<const std::byte> bytes) override {
    RETURN_IF_ERROR(CheckRange(offset, bytes.size(), size_));
    // Copies in parallel, since faulting in new pages takes longer than filling them.
    constexpr int64_t kBlock = int64_t{1} << 20;
    const auto size = static_cast<int64_t>(bytes.size());
    Parallel((size + kBlock - 1) / kBlock, kGrain, [&](int64_t begin, int64_t end) {
      std::memcpy(data_ + offset + begin * kBlock, bytes.data() + begin * kBlock,
                  std::min(size, end * kBlock) - begin * kBlock);
    });
    return absl::OkStatus();
  }
  absl::Status Read(size_t offset, std::span<std::byte> bytes) const override {
    RETURN_IF_ERROR(CheckRange(offset, bytes.size(), size_));
    if (!bytes.empty()) std::memcpy(bytes.data(), data_ + offset, bytes.size());
    return absl::OkStatus();
  }

 private:
  std::byte* data_;
  size_t size_, mapped_;
};

// Shares the memory of a tensor, which may be a read-only mapping of a file: writing through data() may raise SIGSEGV.
class BorrowedBuffer : public Buffer {
 public:
  explicit BorrowedBuffer(HostTensor tensor) : tensor_(std::move(tensor)) {}

  size_t size() const override { return tensor_.bytes().size(); }
  void* data() override { return const_cast<std::byte*>(tensor_.bytes().data()); }
  absl::Status Write(size_t, std::span<const std::byte>) override {
    return absl::FailedPreconditionError("borrowed memory is read-only");
  }
  absl::Status Read(size_t offset, std::span<std::byte> bytes) const override {
    RETURN_IF_ERROR(CheckRange(offset, bytes.size(), size()));
    std::ranges::copy(tensor_.bytes().subspan(offset, bytes.size()), bytes.begin());
    return absl::OkStatus();
  }

 private:
  const HostTensor tensor_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Buffer>> AllocateBuffer(size_t bytes) {
  const size_t mapped = bytes == 0 ? 1 : bytes;
  void* data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return absl::ResourceExhaustedError(StrCat("no memory for a buffer of ", bytes, " bytes"));
  return std::make_unique<HostBuffer>(data, bytes, mapped);
}

std::unique_ptr<Buffer> BorrowTensor(const HostTensor& tensor) {
  const auto address = reinterpret_cast<uintptr_t>(tensor.bytes().data());
  if (tensor.bytes().empty() || address % DTypeSize(tensor.dtype()) != 0) return nullptr;
  return std::make_unique<BorrowedBuffer>(tensor);
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
