// The part of NCCL's C interface that is used, as versions 2.7 to 2.30 have it (NVIDIA, "NCCL User Guide", API). The
// library is loaded when ranks meet: nothing is linked, and no header of CUDA is needed.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace onnxtrain::aten {

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

// Looks for the library where the system does, and in `folders`. Never unloaded.
absl::StatusOr<const Nccl*> LoadNccl(std::span<const std::string> folders);

}  // namespace onnxtrain::aten
