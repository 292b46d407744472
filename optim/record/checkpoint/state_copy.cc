#include "optim/record/checkpoint/state_copy.h"

#include <algorithm>
#include <utility>

#include "frontend/base/parallel_parts.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

constexpr size_t kLeastPart = size_t{1} << 20;  // bytes; starting a thread takes as long as copying some of them

absl::StatusOr<std::vector<StateTensor>> ListTensors(Session& session, bool parts) {
  return parts ? session.StateParts() : session.State();
}

void AppendTensor(const StateTensor& tensor, HostTensor value, CheckpointContent* content) {
  (tensor.of_model ? content->model : content->optimizer).emplace_back(tensor.name, std::move(value));
}

}  // namespace

absl::Status AppendViews(Session& session, bool parts, CheckpointContent* content) {
  ASSIGN_OR_RETURN(const std::vector<StateTensor> tensors, ListTensors(session, parts));
  for (const StateTensor& tensor : tensors) {
    const Region& region = tensor.region;
    const bool empty = region.type.elements() == 0;
    AppendTensor(tensor, empty ? HostTensor(region.type) : HostTensor(region.type, nullptr, HostMemory(region)),
                 content);
  }
  return absl::OkStatus();
}

absl::Status StateCopy::Reserve(Session& session) {
  ASSIGN_OR_RETURN(tensors_, ListTensors(session, parts_only_));
  for (const StateTensor& tensor : tensors_) copies_.emplace_back(tensor.region.type);
  SplitAmongThreads();
  return absl::OkStatus();
}

void StateCopy::Touch() {
  constexpr size_t kPage = 4096;
  for (HostTensor& copy : copies_) {
    const std::span<std::byte> bytes = copy.mutable_bytes();
    for (size_t at = 0; at < bytes.size(); at += kPage) static_cast<volatile std::byte&>(bytes[at]) = std::byte{0};
  }
}

void StateCopy::SplitAmongThreads() {
  size_t total = 0, filled = 0;
  for (const HostTensor& copy : copies_) total += copy.bytes().size();
  const size_t part = std::max(kLeastPart, total / static_cast<size_t>(std::max(1, threads_)) + 1);
  parts_.assign(1, {});
  for (size_t i = 0; i < copies_.size(); ++i) {
    for (size_t begin = 0, end = 0; begin < copies_[i].bytes().size(); begin = end) {
      if (filled == part) parts_.emplace_back(), filled = 0;
      end = std::min(copies_[i].bytes().size(), begin + part - filled);
      parts_.back().push_back({i, begin, end});
      filled += end - begin;
    }
  }
}

absl::Status StateCopy::Read(const Range& range) {
  const BufferView& view = tensors_[range.tensor].region.view;
  const std::span<std::byte> to = copies_[range.tensor].mutable_bytes().subspan(range.begin, range.end - range.begin);
  return view.buffer->Read(view.offset + range.begin, to);
}

absl::Status StateCopy::Update(Session& session) {
  if (copies_.empty()) RETURN_IF_ERROR(Reserve(session));
  ASSIGN_OR_RETURN(tensors_, ListTensors(session, parts_only_));  // waits for queued work
  std::vector<absl::Status> read(parts_.size());
  RunParts(static_cast<int64_t>(parts_.size()), [&](int64_t part) {
    for (const Range& range : parts_[part]) read[part].Update(Read(range));
  });
  for (const absl::Status& status : read) RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

void StateCopy::AppendTo(CheckpointContent* content) const {
  for (size_t i = 0; i < tensors_.size(); ++i) AppendTensor(tensors_[i], copies_[i], content);
}

}  // namespace onnxtrain
