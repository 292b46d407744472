// Collectives over NCCL, on the memory of one GPU per rank.
//
// NCCL waits for missing ranks forever and does not name them. Operations therefore wait for the device with the
// time-out of a host group, which detects lost ranks and is closed with the errors of this one.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "backends/collectives.h"

namespace onnxtrain::aten {

// The functions of NCCL that are used, with the C interface of versions 2.7 to 2.30 (NVIDIA, "NCCL User Guide", API).
// The library is loaded at run time: nothing is linked, and no header of CUDA is needed.
struct Nccl {
  using Result = int;
  using Communicator = void*;
  using Stream = void*;
  struct UniqueId {
    std::array<char, 128> bytes;
  };
  static constexpr Result kSuccess = 0, kInProgress = 7;
  enum DataType : int { kInt8 = 0, kUint8 = 1, kInt64 = 4, kFloat32 = 7, kFloat64 = 8 };
  enum Operation : int { kSum = 0, kMax = 2, kMin = 3 };

  const char* (*describe)(Result);
  Result (*get_unique_id)(UniqueId*);
  Result (*init_rank)(Communicator*, int size, UniqueId, int rank);
  Result (*abort)(Communicator);
  Result (*get_async_error)(Communicator, Result*);
  Result (*all_reduce)(const void* from, void* to, size_t count, int type, int operation, Communicator, Stream);
  Result (*broadcast)(const void* from, void* to, size_t count, int type, int root, Communicator, Stream);
  Result (*all_gather)(const void* from, void* to, size_t count, int type, Communicator, Stream);
  Result (*send)(const void* from, size_t count, int type, int to, Communicator, Stream);
  Result (*receive)(void* to, size_t count, int type, int from, Communicator, Stream);
  Result (*group_start)();
  Result (*group_end)();
};

// Loads NCCL from the search path of the system or else from `folders`. It is never unloaded.
absl::StatusOr<const Nccl*> LoadNccl(std::span<const std::string> folders);

// The stream of a device, to which collectives are submitted.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  // Calls `start` with the stream, a cudaStream_t, while its device is current.
  virtual void Submit(const std::function<void(void* stream)>& start) = 0;
  // Marks the current end of the queue.
  virtual absl::Status Mark() = 0;
  // Returns true if all work before the last Mark has finished. Does not block.
  virtual absl::StatusOr<bool> ReachedMark() = 0;
};

// Creates a group of the ranks of `host`, all of which must call it. `nccl` is an error if this rank cannot load the
// library. If the ranks cannot connect over NCCL, returns null on all ranks and logs the reason. Returns an error if
// `host` fails. `host` must outlive the group.
absl::StatusOr<std::unique_ptr<Collectives>> MeetOverNccl(const absl::StatusOr<const Nccl*>& nccl,
                                                          std::unique_ptr<DeviceQueue> queue, Collectives& host);

}  // namespace onnxtrain::aten
