#include "optim/parallel/pipeline/message_queue.h"

#include <chrono>

#include "frontend/base/log.h"
#include "frontend/base/status.h"

namespace onnxtrain {

void MessageQueue::Reserve(size_t places, size_t bytes) {
  if (places <= places_.size() && bytes <= message_bytes_) return;
  message_bytes_ = std::max(bytes, message_bytes_);
  const size_t count = std::max(places, places_.size());
  places_.clear();
  for (size_t i = 0; i < count; ++i)
    places_.push_back({HostTensor({DType::kUInt8, {static_cast<int64_t>(message_bytes_)}}), nullptr});
}

void MessageQueue::Send(int64_t i, size_t bytes) {
  Place& place = places_[i % std::ssize(places_)];
  CHECK(place.transfer == nullptr) << "message " << i << " is still on its way";
  count_.sent_bytes += static_cast<int64_t>(bytes);
  place.transfer = ranks_.StartSend(what_, peer_, Message(i).first(bytes));
}

void MessageQueue::Receive(int64_t i, size_t bytes) {
  if (i <= received_) return;
  CHECK(i == received_ + 1) << "messages are received in order";
  Place& place = places_[i % std::ssize(places_)];
  CHECK(place.transfer == nullptr) << "message " << i << " is still on its way";
  received_ = i;
  place.transfer = ranks_.StartReceive(what_, peer_, Message(i).first(bytes));
}

absl::Status MessageQueue::Wait(int64_t i) { return Wait(places_[i % std::ssize(places_)]); }

absl::Status MessageQueue::Wait(Place& place) {
  if (place.transfer == nullptr) return absl::OkStatus();
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = place.transfer->Wait();
  place.transfer.reset();
  count_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return status;
}

absl::Status MessageQueue::Finish() {
  received_ = -1;
  for (Place& place : places_) RETURN_IF_ERROR(Wait(place));
  return absl::OkStatus();
}

}  // namespace onnxtrain
