#include "guarded.h"

#include <sys/mman.h>

#include <cstring>

#include "frontend/base/status.h"

namespace onnxtrain::cases {
namespace {

constexpr size_t kPage = 4096, kAlignment = 64;
constexpr int kNoNumber = 0xff;  // in every float type a NaN, in every signed integer −1

size_t Rounded(size_t n, size_t to) { return (n + to - 1) / to * to; }

// Zeroed memory that ends, but for its alignment, where a page begins that cannot be read.
class GuardedBuffer : public Buffer {
 public:
  explicit GuardedBuffer(size_t size) : size_(size), mapped_(Rounded(size, kPage) + kPage) {
    base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) return;
    std::byte* guard = static_cast<std::byte*>(base_) + mapped_ - kPage;
    mprotect(guard, kPage, PROT_NONE);
    data_ = guard - Rounded(size, kAlignment);
  }
  ~GuardedBuffer() override {
    if (data_ != nullptr) munmap(base_, mapped_);
  }
  GuardedBuffer(const GuardedBuffer&) = delete;

  size_t size() const override { return size_; }
  void* data() override { return data_; }
  absl::Status Write(size_t offset, std::span<const std::byte> bytes) override {
    std::memcpy(data_ + offset, bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  absl::Status Read(size_t offset, std::span<std::byte> bytes) const override {
    std::memcpy(bytes.data(), data_ + offset, bytes.size());
    return absl::OkStatus();
  }

 private:
  size_t size_, mapped_;
  void* base_;
  std::byte* data_ = nullptr;
};

class PoisonedProgram : public Program {
 public:
  explicit PoisonedProgram(std::unique_ptr<Program> program) : program_(std::move(program)) {}

  const Graph& graph() const override { return program_->graph(); }
  MemoryUse memory() const override { return program_->memory(); }
  absl::Status BindInput(std::string_view name, BufferView view) override { return program_->BindInput(name, view); }
  absl::Status BindOutput(std::string_view name, BufferView view) override {
    spoiled_.push_back(view.buffer);
    return program_->BindOutput(name, view);
  }
  absl::Status BindArena(BufferView view) override {
    spoiled_.push_back(view.buffer);
    return program_->BindArena(view);
  }
  absl::Status Run() override {
    for (Buffer* buffer : spoiled_) std::memset(buffer->data(), kNoNumber, buffer->size());
    return program_->Run();
  }
  std::span<const double> NodeSeconds() const override { return program_->NodeSeconds(); }
  absl::StatusOr<HostTensor> Fetch(ValueId value) const override { return program_->Fetch(value); }

 private:
  std::unique_ptr<Program> program_;
  std::vector<Buffer*> spoiled_;
};

class GuardedBackend : public Backend {
 public:
  explicit GuardedBackend(Backend& backend) : backend_(backend) {}

  std::string name() const override { return backend_.name(); }
  std::string device() const override { return backend_.device(); }
  std::string description() const override { return backend_.description(); }
  bool Supports(const Graph& graph, const Node& node) const override { return backend_.Supports(graph, node); }
  absl::StatusOr<Graph> Legalize(const Graph& graph) const override { return backend_.Legalize(graph); }
  absl::StatusOr<std::unique_ptr<Program>> Compile(const Graph& graph, const CompileOptions& options) override {
    ASSIGN_OR_RETURN(auto program, backend_.Compile(graph, options));
    return std::make_unique<PoisonedProgram>(std::move(program));
  }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    auto buffer = std::make_unique<GuardedBuffer>(bytes);
    if (buffer->data() == nullptr) return absl::ResourceExhaustedError("no memory for a buffer");
    return buffer;
  }
  absl::Status Synchronize() override { return backend_.Synchronize(); }

 private:
  Backend& backend_;
};

}  // namespace

std::unique_ptr<Backend> Guarded(Backend& backend) { return std::make_unique<GuardedBackend>(backend); }

}  // namespace onnxtrain::cases
