#include "optim/step/program/planning_backend.h"

#include <algorithm>

namespace onnxtrain {
namespace {

class NullBuffer : public Buffer {
 public:
  explicit NullBuffer(size_t size) : size_(size) {}

  size_t size() const override { return size_; }
  void* data() override { return nullptr; }
  absl::Status Write(size_t, std::span<const std::byte>) override { return absl::OkStatus(); }
  absl::Status Read(size_t, std::span<std::byte> bytes) const override {
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    return absl::OkStatus();
  }

 private:
  size_t size_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Buffer>> PlanningBackend::Allocate(size_t bytes) {
  return std::make_unique<NullBuffer>(bytes);
}

}  // namespace onnxtrain
