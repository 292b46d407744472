// Collective operations among the processes (ranks) of one training, over an existing engine. The implementation is a
// shared library, libonnxtrain_comm.so (backends/comm), that is loaded for more than one rank only.
//
// Every operation is called by all ranks, in the same order and with equal sizes, and blocks until this rank has its
// result. All ranks get the same bits. A failure is kUnavailable: the message names the operation (`what`) and, where
// they are known, the ranks that did not take part. After a failure the group is unusable: every operation fails alike.
// A rank that cannot go on closes the group, and the others fail with its error.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/graph/type.h"

namespace onnxtrain {

enum class Reduction : uint8_t { kSum, kMin, kMax };

// Bytes on their way between this rank and another.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Blocks until the memory may be changed, or has what was received. Once, and before the memory is freed.
  virtual absl::Status Wait() = 0;
};

// Thread-compatible: one thread at a time.
class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Is the memory that operations take that of a device, as Backend::MeetOnDevice says, and not of the host?
  virtual bool on_device() const { return false; }
  virtual double timeout() const = 0;  // seconds that an operation waits for other ranks

  // Reduces elementwise, in place. f32, f64 and i64.
  virtual absl::Status AllReduce(std::string_view what, DType dtype, std::span<std::byte> values, Reduction op) = 0;
  virtual absl::Status Broadcast(std::string_view what, int root, std::span<std::byte> bytes) = 0;
  // `all` has size() times the bytes of `own`, by rank.
  virtual absl::Status AllGather(std::string_view what, std::span<const std::byte> own, std::span<std::byte> all) = 0;
  // Begins AllGathers of `rows` equal parts of `own`, each to its part of `all`, and returns. Neither may be touched
  // until AwaitGather, which waits for the oldest ones that were begun so. Without rows there is nothing to wait for.
  virtual void BeginGather(std::string_view what, std::span<const std::byte> own, std::span<std::byte> all,
                           size_t rows) = 0;
  virtual absl::Status AwaitGather() = 0;
  // Part r of `own`, which has size() equal parts, goes to rank r: `parts` gets part rank() of every rank, by rank.
  virtual absl::Status AllToAll(std::string_view what, std::span<const std::byte> own, std::span<std::byte> parts) = 0;
  virtual absl::Status Barrier(std::string_view what) = 0;

  // Ends the group, and those that were met in it (NewGroup), with an error of this rank. Operations of the others,
  // under way or later, fail at once and say it. Without effect after a failure. Not while another thread uses them.
  virtual void Close(const absl::Status& why) = 0;
  // Has the group failed since a rank has closed it, or one that it was met in?
  virtual bool closed() const = 0;
  // Has an operation of this group, or of one that was met in it, failed since rank 0 does not answer, and is this rank
  // the lowest one that is left? Then it has to report the failure.
  virtual bool reports() const = 0;

  // Meets `members` (ranks of this group, ascending) in a group with connections of its own, which another thread may
  // use at the same time. Called by all of them and by nobody else, with a name that no other group of theirs has.
  // Ranks of the new group are indices of `members`; its errors name those of the training.
  virtual absl::StatusOr<std::unique_ptr<Collectives>> NewGroup(std::string_view name,
                                                                const std::vector<int>& members) = 0;

  // Between two ranks alone: returns at once. What one rank sends to another arrives in the order of the calls that
  // receive it, with equal sizes. `bytes` must stay until Transfer::Wait, the group until the transfer is destroyed.
  virtual std::unique_ptr<Transfer> StartSend(std::string_view what, int to, std::span<const std::byte> bytes) = 0;
  virtual std::unique_ptr<Transfer> StartReceive(std::string_view what, int from, std::span<std::byte> bytes) = 0;
};

struct CollectivesOptions {
  int rank = 0, size = 1;
  // Where the ranks find each other: a file that all of them can open (none of another training), or the host and port
  // where rank 0 listens.
  std::string file;
  std::string host;
  int port = 0;
  std::string interface;  // of the network, or an address of this machine: connections are made on it alone; "": any
  double timeout = 600;   // seconds that an operation waits for other ranks
};

// Meets all other ranks. Fails after the time-out, naming where they should have met. A process without a handler for
// SIGPIPE ignores it from then on: a rank that is gone is an error of an operation.
absl::StatusOr<std::unique_ptr<Collectives>> CreateCollectives(const CollectivesOptions& options);

// Type of the function "onnxtrain_create_collectives" that the library exports with C linkage.
using CreateCollectivesFn = Collectives* (*)(const CollectivesOptions& options, absl::Status* status);

// Meets all ranks in a group of its own.
absl::StatusOr<std::unique_ptr<Collectives>> NewGroupOfAll(Collectives& ranks, std::string_view name);

absl::Status AllReduce(Collectives& ranks, std::string_view what, std::span<double> values,
                       Reduction op = Reduction::kSum);

// The text of each rank, by rank.
absl::StatusOr<std::vector<std::string>> AllGatherText(Collectives& ranks, std::string_view what, std::string_view own);
// The text of rank 0.
absl::StatusOr<std::string> BroadcastText(Collectives& ranks, std::string_view what, std::string text);

// Returns the error of the first rank that has one, prefixed with its rank where that is another, or OK where none has:
// after a step that may fail on a single rank, all ranks decide alike. kUnavailable counts only where no rank has
// another error: it follows from what another rank has done.
absl::Status AgreeOnStatus(Collectives& ranks, std::string_view what, const absl::Status& own);

// Sums slices of memory over the ranks on a thread of its own, while the caller computes the slices that follow.

// Between Begin and Finish the thread alone sums. All ranks reduce slices of the same sizes, in the order of the
// slices, whatever order they become ready in.
//
// Thread-compatible, but Ready may be called while the thread works.
class OrderedReduce {
 public:
  // Replaces a slice with its sum over all ranks.
  using Sum = std::function<absl::Status(std::span<std::byte> slice)>;
  // The memory of the slices must outlive it.
  OrderedReduce(Sum sum, std::vector<std::span<std::byte>> slices);
  ~OrderedReduce();
  OrderedReduce(const OrderedReduce&) = delete;
  OrderedReduce& operator=(const OrderedReduce&) = delete;

  // Begins the sums of one update. No slice is ready.
  void Begin();
  // The slice may be summed: nobody else touches it until Finish returns.
  void Ready(size_t slice);
  // Waits until all slices, each of which counts as ready from now on, are summed. Returns the first error; what the
  // slices hold then is undefined. With an error, the sums that have not begun are passed over.
  absl::Status Finish(const absl::Status& error = absl::OkStatus());

  // Waits until so many slices, which are ready, are summed, or passed over after an error.
  void Await(size_t slices);
  // How many slices are summed. Any thread.
  size_t summed();
  // Seconds that the thread has spent in collectives since the last Begin. Call it after Finish.
  double seconds() const { return seconds_; }

 private:
  void Loop();
  bool MayReduce() const { return next_ < slices_.size() && ready_[next_]; }

  const Sum sum_;
  const std::vector<std::span<std::byte>> slices_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> ready_;  // by slice
  size_t next_ = 0;          // the slices before it are summed
  bool ends_ = false;
  absl::Status status_;
  double seconds_ = 0;
  std::thread thread_;
};

}  // namespace onnxtrain
