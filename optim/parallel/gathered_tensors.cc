#include "optim/parallel/gathered_tensors.h"

#include <fcntl.h>

#include <memory>
#include <utility>

#include "backends/backend.h"
#include "frontend/base/scratch_file.h"
#include "frontend/base/status.h"
#include "frontend/onnx/read/file.h"

namespace onnxtrain {
namespace {

class FileBuffer : public Buffer {
 public:
  // Returns null if the folder has no room for `bytes` bytes and for their written copy.
  static std::unique_ptr<FileBuffer> Create(const std::string& folder, size_t bytes) {
    auto file = ScratchFile::Create(folder);
    const auto size = static_cast<int64_t>(bytes);
    if (!file.ok() || file->FreeBytes() / 2 < size || !file->Reserve(size).ok()) return nullptr;
    auto mapped = MappedFile::Map(::fcntl(file->fd(), F_DUPFD_CLOEXEC, 0));
    if (!mapped.ok()) return nullptr;
    return std::make_unique<FileBuffer>(*std::move(file), *std::move(mapped));
  }
  FileBuffer(ScratchFile file, std::shared_ptr<const MappedFile> mapped)
      : file_(std::move(file)), mapped_(std::move(mapped)) {}

  size_t size() const override { return mapped_->size(); }
  // Returns a read-only view of the written bytes; file and mapping share the page cache.
  void* data() override { return const_cast<std::byte*>(mapped_->data()); }
  absl::Status Write(size_t offset, std::span<const std::byte> bytes) override {
    return file_.WriteAt(static_cast<int64_t>(offset), bytes);
  }
  absl::Status Read(size_t offset, std::span<std::byte> bytes) const override {
    return file_.ReadAt(static_cast<int64_t>(offset), bytes);
  }

 private:
  const ScratchFile file_;
  std::shared_ptr<const MappedFile> mapped_;
};

}  // namespace

absl::Status GatheredTensors::Allocate(Backend& backend, const std::string& folder, std::string_view what) {
  if (layout_.size() == 0) return absl::OkStatus();
  if (!folder.empty()) buffer_ = FileBuffer::Create(folder, layout_.size());
  if (buffer_ != nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(buffer_, AllocateChecked(backend, layout_.size(), what));
  return absl::OkStatus();
}

Region GatheredTensors::At(const std::string& name) const {
  Region region = layout_.At(name);
  region.view.buffer = buffer_.get();
  return region;
}

HostTensor GatheredTensors::View(const std::shared_ptr<const GatheredTensors>& tensors, const std::string& name) {
  const Region region = tensors->At(name);
  return {region.type, tensors, HostMemory(region)};
}

}  // namespace onnxtrain
