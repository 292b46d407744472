#include "optim/step/state.h"

#include "backends/allocate.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"

namespace onnxtrain {

size_t Arena::Add(const std::string& name, const Type& type) {
  const size_t offset = size_;
  CHECK(tensors_.emplace(name, Tensor{offset, type}).second) << "two tensors named " << name << " in one arena";
  names_.push_back(name);
  size_ += (type.bytes() + 63) / 64 * 64;
  return offset;
}

absl::Status Arena::Allocate(Backend& backend, std::string_view what) {
  if (size_ == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(buffer_, AllocateChecked(backend, size_, what));
  return absl::OkStatus();
}

Region Arena::At(const std::string& name) const {
  auto it = tensors_.find(name);
  CHECK(it != tensors_.end()) << "no tensor named " << name;
  return {{buffer_.get(), it->second.offset}, it->second.type};
}

absl::Status WriteRegion(const Region& region, const HostTensor& value) {
  CHECK(region.type == value.type()) << ToString(region.type) << " against " << ToString(value.type());
  return value.size() == 0 ? absl::OkStatus() : region.view.buffer->Write(region.view.offset, value.bytes());
}

absl::StatusOr<HostTensor> ReadRegion(const Region& region) {
  HostTensor value(region.type);
  if (value.size() > 0) RETURN_IF_ERROR(region.view.buffer->Read(region.view.offset, value.mutable_bytes()));
  return value;
}

}  // namespace onnxtrain
