// Collective operations among the processes (ranks) of one run. The implementation, over Gloo, is a shared library,
// libonnxtrain_comm.so (backends/comm), that is loaded only if there is more than one rank.
//
// Every operation is called by all ranks, in the same order and with equal sizes, and blocks until this rank has its
// result. All ranks get the same bits. A failure is kUnavailable; its message names the operation (`what`) and, if
// known, the ranks that did not take part. After a failure the group is unusable: every operation returns the same
// error. A rank that cannot continue closes the group, and the others fail with its error.
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

// A pending send or receive between this rank and another.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Blocks until the sent memory may be changed, or the received bytes have arrived. Must be called exactly once,
  // before the memory is freed.
  virtual absl::Status Wait() = 0;
};

// A group of ranks. Thread-compatible: one thread at a time.
class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Returns true if operations take device memory (Backend::MeetOnDevice) instead of host memory.
  virtual bool on_device() const { return false; }
  virtual double timeout() const = 0;  // seconds that an operation waits for other ranks

  // Reduces elementwise, in place. f32, f64 and i64.
  virtual absl::Status AllReduce(std::string_view what, DType dtype, std::span<std::byte> values, Reduction op) = 0;
  virtual absl::Status Broadcast(std::string_view what, int root, std::span<std::byte> bytes) = 0;
  // Concatenates `own` of all ranks in `all`, in rank order.
  virtual absl::Status AllGather(std::string_view what, std::span<const std::byte> own, std::span<std::byte> all) = 0;
  // Begins one AllGather for each of `rows` equal parts of `own`, to the same part of `all`, and returns. The memory
  // must not be touched until AwaitGather, which waits for the oldest unfinished BeginGather; for 0 rows, AwaitGather
  // returns at once.
  virtual void BeginGather(std::string_view what, std::span<const std::byte> own, std::span<std::byte> all,
                           size_t rows) = 0;
  virtual absl::Status AwaitGather() = 0;
  // Sends part r of `own`, which has size() equal parts, to rank r. `parts` receives part rank() of every rank, in rank
  // order.
  virtual absl::Status AllToAll(std::string_view what, std::span<const std::byte> own, std::span<std::byte> parts) = 0;
  virtual absl::Status Barrier(std::string_view what) = 0;

  // Ends the group and all groups made from it (NewGroup) with an error of this rank. Current and later operations of
  // the other ranks fail at once with it. Has no effect after a failure. No other thread may use the groups meanwhile.
  virtual void Close(const absl::Status& why) = 0;
  // Returns true if the group failed because a rank closed it or the group that it was made from.
  virtual bool closed() const = 0;
  // Returns true if an operation of this group, or of one made from it, failed because rank 0 does not answer, and this
  // rank is the lowest one left. It then reports the failure in place of rank 0.
  virtual bool reports() const = 0;

  // Creates a group of `members` (ranks of this group, ascending) with separate connections, which another thread may
  // use at the same time. Exactly the members call it, with a name that is unique among their groups. Ranks of the new
  // group are indices into `members`; its errors name the ranks of the run.
  virtual absl::StatusOr<std::unique_ptr<Collectives>> NewGroup(std::string_view name,
                                                                const std::vector<int>& members) = 0;

  // Start a transfer between two ranks and return at once. Sends of one rank to another match its receives in order of
  // the calls; both sizes must be equal. `bytes` must live until Transfer::Wait returns, and the group until the
  // transfer is destroyed.
  virtual std::unique_ptr<Transfer> StartSend(std::string_view what, int to, std::span<const std::byte> bytes) = 0;
  virtual std::unique_ptr<Transfer> StartReceive(std::string_view what, int from, std::span<std::byte> bytes) = 0;
};

struct CollectivesOptions {
  int rank = 0, size = 1;
  // Rendezvous of the ranks: a file that all of them can open and no other run uses, or the host and port on which rank
  // 0 listens.
  std::string file;
  std::string host;
  int port = 0;
  std::string interface;  // the network interface, or its address, for all connections; "": any
  double timeout = 600;   // seconds that an operation waits for other ranks
};

// Connects all ranks. Fails after the time-out, with a message that names the rendezvous. Ignores SIGPIPE from then on
// if the process has no handler for it, so that a lost rank is an error of an operation.
absl::StatusOr<std::unique_ptr<Collectives>> CreateCollectives(const CollectivesOptions& options);

// Type of the function "onnxtrain_create_collectives" that the library exports with C linkage.
using CreateCollectivesFn = Collectives* (*)(const CollectivesOptions& options, absl::Status* status);

// Creates another group of all ranks of `ranks`.
absl::StatusOr<std::unique_ptr<Collectives>> NewGroupOfAll(Collectives& ranks, std::string_view name);

absl::Status AllReduce(Collectives& ranks, std::string_view what, std::span<double> values,
                       Reduction op = Reduction::kSum);

// Returns the texts of all ranks, by rank.
absl::StatusOr<std::vector<std::string>> AllGatherText(Collectives& ranks, std::string_view what, std::string_view own);
// Returns the text of rank 0.
absl::StatusOr<std::string> BroadcastText(Collectives& ranks, std::string_view what, std::string text);

// Makes all ranks agree after a step that may fail on a single one: returns the error of the first rank that has one,
// prefixed with its rank if that is another, or OK. kUnavailable, which follows from the failure of another rank,
// counts only if no rank has a different error.
absl::Status AgreeOnStatus(Collectives& ranks, std::string_view what, const absl::Status& own);

// Sums slices of memory over the ranks on a background thread, while the caller computes the next slices. All ranks
// reduce slices of the same sizes in index order, in whatever order the slices become ready. Thread-compatible,
// except for summed(); all functions but seconds() may be called while the background thread works.
class OrderedReduce {
 public:
  // Replaces a slice with its sum over all ranks.
  using Sum = std::function<absl::Status(std::span<std::byte> slice)>;
  // The memory of the slices must outlive it.
  OrderedReduce(Sum sum, std::vector<std::span<std::byte>> slices);
  ~OrderedReduce();
  OrderedReduce(const OrderedReduce&) = delete;
  OrderedReduce& operator=(const OrderedReduce&) = delete;

  // Begins the sums of one update and marks no slice as ready.
  void Begin();
  // Marks a slice as ready to be summed. The caller must not touch it until Finish returns.
  void Ready(size_t slice);
  // Marks all slices as ready and waits until they are summed. Returns the first error, after which the contents of the
  // slices are undefined. If `error` is not OK, sums that have not begun are skipped.
  absl::Status Finish(const absl::Status& error = absl::OkStatus());

  // Waits until the first `slices` slices, which must be ready, are summed, or skipped after an error.
  void Await(size_t slices);
  // Returns how many slices are summed. May be called by any thread.
  size_t summed();
  // Returns the seconds that the thread spent in collectives since the last Begin. Call it after Finish.
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
