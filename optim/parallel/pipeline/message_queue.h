// Messages of equal layout that one stage sends another, several of which are on their way at a time.
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

// Counts what the queues of a rank do.
struct TransferCount {
  int64_t sent_bytes = 0;
  double seconds = 0;  // waited
};

// A ring of messages in host memory, 64-byte aligned. Message i has the memory of message i + Places().
class MessageQueue {
 public:
  // `what`: for errors. `peer`: the rank at the other end. All must outlive the queue.
  MessageQueue(Collectives* ranks, std::string_view what, int peer, TransferCount* count)
      : ranks_(*ranks), what_(what), peer_(peer), count_(*count) {}

  // Has memory for `places` messages of `bytes` bytes. Not while one is on its way.
  void Reserve(size_t places, size_t bytes);
  size_t Places() const { return places_.size(); }
  size_t bytes() const { return places_.size() * message_bytes_; }
  std::span<std::byte> Message(int64_t i) { return places_[i % std::ssize(places_)].memory.mutable_bytes(); }

  // Sends the first `bytes` bytes of message i.
  void Send(int64_t i, size_t bytes);
  // Starts to receive message i, unless that has begun already.
  void Receive(int64_t i, size_t bytes);
  // Waits for message i: that it has come, or that its memory may be written.
  absl::Status Wait(int64_t i);
  // Ends a sequence of messages, which are numbered from 0: waits for those that are on their way.
  absl::Status Finish();

 private:
  struct Place {
    HostTensor memory;
    std::unique_ptr<Transfer> transfer;  // null: nothing is on its way
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
