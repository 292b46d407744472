// A queue of messages of equal layout between two stages, several of which may be in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "backends/collectives.h"
#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

// Totals over the queues of a rank.
struct TransferCount {
  int64_t sent_bytes = 0;
  double seconds = 0;  // waited
};

// A ring of messages in 64-byte aligned host memory. Message i + Places() reuses the memory of message i.
class MessageQueue {
 public:
  // `what` names the queue in errors; `peer` is the rank at the other end. All arguments must outlive the queue.
  MessageQueue(Collectives* ranks, std::string_view what, int peer, TransferCount* count)
      : ranks_(*ranks), what_(what), peer_(peer), count_(*count) {}

  // Allocates memory for `places` messages of `bytes` bytes. No message may be in flight.
  void Reserve(size_t places, size_t bytes);
  size_t Places() const { return places_.size(); }
  size_t bytes() const { return places_.size() * message_bytes_; }
  std::span<std::byte> Message(int64_t i) { return places_[i % std::ssize(places_)].memory.mutable_bytes(); }

  // Sends the first `bytes` bytes of message i.
  void Send(int64_t i, size_t bytes);
  // Starts to receive message i unless it has already started.
  void Receive(int64_t i, size_t bytes);
  // Waits until message i has been received, or has been sent and its memory may be overwritten.
  absl::Status Wait(int64_t i);
  // Ends a sequence of messages, which are numbered from 0: waits for those in flight.
  absl::Status Finish();

 private:
  struct Place {
    HostTensor memory;
    std::unique_ptr<Transfer> transfer;  // null if none is in flight
  };
  absl::Status Wait(Place& place);

  Collectives& ranks_;
  const std::string_view what_;
  const int peer_;
  TransferCount& count_;
  size_t message_bytes_ = 0;
  std::vector<Place> places_;
  int64_t received_ = -1;  // the last message that Receive was called for
};

}  // namespace onnxtrain
