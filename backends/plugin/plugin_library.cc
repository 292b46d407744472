#include "backends/plugin/plugin_backend.h"

#include "frontend/base/status.h"
#include "frontend/plugin/library.h"

namespace onnxtrain {
namespace {

class PluginBuffer : public Buffer {
 public:
  PluginBuffer(std::shared_ptr<PluginLibrary> library, void* address, size_t size)
      : library_(std::move(library)), address_(static_cast<std::byte*>(address)), size_(size) {}
  ~PluginBuffer() override { library_->Deallocate(address_); }
  PluginBuffer(const PluginBuffer&) = delete;
  PluginBuffer& operator=(const PluginBuffer&) = delete;

  size_t size() const override { return size_; }
  void* data() override { return address_; }
  absl::Status Write(size_t offset, std::span<const std::byte> bytes) override {
    return library_->Copy(address_ + offset, bytes.data(), bytes.size(), ONNXTRAIN_COPY_TO_DEVICE);
  }
  absl::Status Read(size_t offset, std::span<std::byte> bytes) const override {
    return library_->Copy(bytes.data(), address_ + offset, bytes.size(), ONNXTRAIN_COPY_TO_HOST);
  }

 private:
  std::shared_ptr<PluginLibrary> library_;
  std::byte* address_;
  size_t size_;
};

absl::Status CheckTable(const OnnxtrainBackendApi& api) {
  if (api.name == nullptr || *api.name == 0 || api.create == nullptr || api.destroy == nullptr ||
      api.supports == nullptr || api.prepare == nullptr)
    return Invalid("its table lacks a name, create, destroy, supports or prepare");
  const int memory = (api.allocate != nullptr) + (api.deallocate != nullptr) + (api.copy != nullptr) +
                     (api.synchronize != nullptr) + (api.free_memory != nullptr);
  if (memory != 0 && memory != 5) return Invalid("its table has only some of the functions of its memory");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<PluginLibrary>> PluginLibrary::Create(const OnnxtrainBackendApi& api,
                                                                     const OnnxtrainBackendOptions& options) {
  RETURN_IF_ERROR(CheckTable(api));
  void* backend = nullptr;
  PluginMessage message;
  RETURN_IF_ERROR(message.ToStatus(api.create(&options, &backend, message.get()), "could not make its backend"));
  return std::shared_ptr<PluginLibrary>(new PluginLibrary(api, backend));
}

std::string PluginLibrary::Describe() const {
  PluginMessage line;
  if (api_.describe != nullptr) api_.describe(backend_, line.get());
  return std::string(line.text());
}

absl::StatusOr<OnnxtrainKernel> PluginLibrary::Prepare(const OnnxtrainGraph& graph, size_t node) const {
  OnnxtrainKernel kernel = {};
  PluginMessage message;
  const int code = api_.prepare(backend_, &graph, node, &kernel, message.get());
  RETURN_IF_ERROR(message.ToStatus(code, "the backend could not prepare a kernel"));
  if (kernel.run == nullptr) return absl::InternalError("the backend prepared no kernel");
  return kernel;
}

absl::StatusOr<std::unique_ptr<Buffer>> PluginLibrary::Allocate(std::shared_ptr<PluginLibrary> self,
                                                                size_t bytes) const {
  void* address = nullptr;
  PluginMessage message;
  RETURN_IF_ERROR(message.ToStatus(api_.allocate(backend_, bytes, &address, message.get()),
                                   StrCat("the backend could not allocate ", bytes, " bytes")));
  return std::make_unique<PluginBuffer>(std::move(self), address, bytes);
}

absl::Status PluginLibrary::Copy(void* to, const void* from, size_t bytes, OnnxtrainCopy direction) const {
  if (bytes == 0) return absl::OkStatus();
  PluginMessage message;
  return message.ToStatus(api_.copy(backend_, to, from, bytes, direction, message.get()), "the backend failed to copy");
}

absl::Status PluginLibrary::Synchronize() const {
  PluginMessage message;
  return message.ToStatus(api_.synchronize(backend_, message.get()), "the backend failed to synchronize");
}

}  // namespace onnxtrain
