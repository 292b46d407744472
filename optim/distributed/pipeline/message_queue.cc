#include "optim/distributed/pipeline/message_queue.h"

#include <chrono>

#include "frontend/base/log.h"
#include "frontend/base/status.h"

namespace onnxtrain {

void MessageQueue::Reserve(size_t slots, size_t bytes) {
  if (slots <= slots_.size() && bytes <= message_bytes_) return;
  message_bytes_ = std::max(bytes, message_bytes_);
  const size_t count = std::max(slots, slots_.size());
  slots_.clear();
  for (size_t i = 0; i < count; ++i)
    slots_.push_back({HostTensor({DType::kUInt8, {static_cast<int64_t>(message_bytes_)}}), nullptr});
}

void MessageQueue::Send(int64_t i, size_t bytes) {
  Slot& slot = slots_[i % std::ssize(slots_)];
  CHECK(slot.transfer == nullptr) << "message " << i << " is still on its way";
  count_.sent_bytes += static_cast<int64_t>(bytes);
  slot.transfer = ranks_.StartSend(what_, peer_, Message(i).first(bytes));
}

void MessageQueue::Receive(int64_t i, size_t bytes) {
  if (i <= received_) return;
  CHECK(i == received_ + 1) << "messages are received in order";
  Slot& slot = slots_[i % std::ssize(slots_)];
  CHECK(slot.transfer == nullptr) << "message " << i << " is still on its way";
  received_ = i;
  slot.transfer = ranks_.StartReceive(what_, peer_, Message(i).first(bytes));
}

absl::Status MessageQueue::Wait(int64_t i) { return Wait(slots_[i % std::ssize(slots_)]); }

absl::Status MessageQueue::Wait(Slot& slot) {
  if (slot.transfer == nullptr) return absl::OkStatus();
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = slot.transfer->Wait();
  slot.transfer.reset();
  count_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return status;
}

absl::Status MessageQueue::Finish() {
  received_ = -1;
  for (Slot& slot : slots_) RETURN_IF_ERROR(Wait(slot));
  return absl::OkStatus();
}

}  // namespace onnxtrain
