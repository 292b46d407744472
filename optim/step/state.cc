#include "optim/step/state.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "backends/backend.h"
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

std::string PartName(std::string_view tensor, const ElementRuns& runs) {
  return StrCat(tensor, "@", runs.begin, ":", runs.length, ":", runs.stride);
}

absl::StatusOr<StatePart> ParsePartName(std::string_view name) {
  const size_t at = name.rfind('@');
  const auto invalid = [&] { return Invalid("'", name, "' names no part of a tensor"); };
  if (at == name.npos) return invalid();
  const std::vector<std::string> texts = absl::StrSplit(ToAbsl(name.substr(at + 1)), ':');
  std::array<int64_t, 3> numbers{};
  if (texts.size() != numbers.size()) return invalid();
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!absl::SimpleAtoi(texts[i], &numbers[i]) || numbers[i] < 0) return invalid();
  }
  return StatePart{std::string(name.substr(0, at)), {numbers[0], numbers[1], numbers[2]}};
}

absl::Status PutRuns(const HostTensor& part, const ElementRuns& runs, HostTensor* whole) {
  const int64_t elements = part.size(), count = runs.length > 0 ? elements / runs.length : 0;
  const bool fits = part.dtype() == whole->dtype() && count > 0 && count * runs.length == elements &&
                    runs.length <= runs.stride && runs.begin <= whole->size() - runs.length &&
                    count - 1 <= (whole->size() - runs.length - runs.begin) / runs.stride;
  if (!fits) return Invalid("does not lie in its tensor ", ToString(whole->type()));
  const size_t element = DTypeSize(part.dtype()), bytes = runs.length * element;
  std::span<const std::byte> from = part.bytes();
  for (int64_t i = 0; i < count; ++i, from = from.subspan(bytes))
    std::ranges::copy(from.first(bytes),
                      whole->mutable_bytes().subspan((runs.begin + i * runs.stride) * element).data());
  return absl::OkStatus();
}

}  // namespace onnxtrain
