#include "backends/torch/tensor.h"

#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include "backends/torch/cuda.h"
#include "backends/torch/guard.h"
#include "frontend/base/status.h"

namespace onnxtrain::aten {

at::ScalarType ToScalarType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat64:
      return at::kDouble;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kInt4:
    case DType::kInt2:
    case DType::kInt8:
      return at::kChar;
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2:
    case DType::kFloat8E5M2FNUZ:
    case DType::kFloat8E8M0:
    case DType::kFloat4E2M1:
    case DType::kUInt4:
    case DType::kUInt2:
    case DType::kUInt8:
      return at::kByte;
    case DType::kInt16:
    case DType::kUInt16:
      return at::kShort;
    case DType::kInt32:
    case DType::kUInt32:
      return at::kInt;
    case DType::kInt64:
    case DType::kUInt64:
      return at::kLong;
    case DType::kBool:
      return at::kBool;
  }
  return at::kFloat;
}

bool IsStoredAsSigned(DType dtype) {
  return dtype == DType::kUInt16 || dtype == DType::kUInt32 || dtype == DType::kUInt64;
}

at::Tensor MakeView(void* data, const Type& type, at::Device device) {
  const auto options = at::TensorOptions().dtype(ToScalarType(type.dtype)).device(device);
  // Avoids from_blob for a tensor without elements, whose device address may be null.
  return type.elements() == 0 ? at::empty(type.shape, options) : at::from_blob(data, type.shape, options);
}

namespace {

at::Tensor HostBytes(const std::byte* data, size_t size) {
  return at::from_blob(const_cast<std::byte*>(data), {static_cast<int64_t>(size)},
                       at::TensorOptions().dtype(at::kByte));
}

// Starts a copy through pinned memory and returns before the device has read it. libtorch keeps the pinned memory until
// then.
void WriteBehind(at::Tensor to, std::span<const std::byte> bytes) {
  const auto pinned = at::TensorOptions().dtype(at::kByte).pinned_memory(true);
  const at::Tensor staged = at::empty({static_cast<int64_t>(bytes.size())}, pinned);
  std::memcpy(staged.data_ptr(), bytes.data(), bytes.size());
  to.copy_(staged, /*non_blocking=*/true);
}

class TensorBuffer : public Buffer {
 public:
  TensorBuffer(size_t bytes, at::Device device) : device_(device), uploads_(FindUploadRing(device)) {
    const DeviceScope scope(device);
    bytes_ = at::zeros({static_cast<int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).device(device));
  }

  size_t size() const override { return static_cast<size_t>(bytes_.numel()); }
  void* data() override { return bytes_.data_ptr(); }

  absl::Status Write(size_t offset, std::span<const std::byte> bytes) override {
    RETURN_IF_ERROR(CheckRange(offset, bytes.size()));
    return CatchTorchErrors("", [&] {
      const DeviceScope scope(device_);
      const at::Tensor part = Part(offset, bytes.size());
      if (uploads_ != nullptr && bytes.size() >= kLeastUploaded) {
        uploads_->Write(static_cast<std::byte*>(part.data_ptr()), bytes);
      } else if (device_.is_cpu()) {
        part.copy_(HostBytes(bytes.data(), bytes.size()));
      } else {
        WriteBehind(part, bytes);
      }
    });
  }
  absl::Status Read(size_t offset, std::span<std::byte> bytes) const override {
    RETURN_IF_ERROR(CheckRange(offset, bytes.size()));
    return CatchTorchErrors("", [&] {
      const DeviceScope scope(device_);
      HostBytes(bytes.data(), bytes.size()).copy_(Part(offset, bytes.size()));
    });
  }

 private:
  absl::Status CheckRange(size_t offset, size_t length) const {
    if (offset <= size() && length <= size() - offset) return absl::OkStatus();
    return absl::OutOfRangeError(StrCat("bytes ", offset, " + ", length, " of a buffer of ", size()));
  }
  at::Tensor Part(size_t offset, size_t length) const {
    return bytes_.narrow(0, static_cast<int64_t>(offset), static_cast<int64_t>(length));
  }

  static constexpr size_t kLeastUploaded = size_t{64} << 10;  // bytes; smaller writes are too short to overlap

  at::Device device_;
  UploadRing* uploads_;
  at::Tensor bytes_;
};

}  // namespace

at::Tensor Upload(const HostTensor& tensor, at::Device device) {
  at::Tensor result = at::empty(tensor.shape(), at::TensorOptions().dtype(ToScalarType(tensor.dtype())).device(device));
  result.copy_(MakeView(const_cast<std::byte*>(tensor.bytes().data()), tensor.type(), at::kCPU));
  return result;
}

HostTensor Download(const at::Tensor& tensor, const Type& type) {
  HostTensor result(type);
  MakeView(result.mutable_bytes().data(), type, at::kCPU).copy_(tensor);
  return result;
}

absl::StatusOr<std::unique_ptr<Buffer>> AllocateBuffer(size_t bytes, at::Device device) {
  std::unique_ptr<Buffer> buffer;
  RETURN_IF_ERROR(CatchTorchErrors(StrCat("buffer of ", bytes, " bytes: "),
                                   [&] { buffer = std::make_unique<TensorBuffer>(bytes, device); }));
  return buffer;
}

}  // namespace onnxtrain::aten
