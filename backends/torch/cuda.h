// Functions that need a libtorch with CUDA. cuda/ implements them in the library that is built with CUDA, no_cuda.cc in
// the other.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "backends/collectives.h"
#include "backends/torch/attention/entry_points.h"
#include "backends/torch/fuse/kernel_compiler.h"
#include "backends/torch/replay.h"
#include "backends/torch/upload_ring.h"

namespace onnxtrain::aten {

// Returns the recorder of the device, or null if its work cannot be recorded. The recordings of all programs share one
// pool of scratch memory, so they must not run at the same time. Never freed.
Recorder* FindRecorder(c10::Device device);

// Returns the ring for all writes to the device, or null for the CPU. Never freed.
UploadRing* FindUploadRing(c10::Device device);

// Returns the compiler of generated kernels for the device, or null, with a warning, if there is none. Never freed.
KernelCompiler* FindKernelCompiler(c10::Device device);

// Returns the bytes of a CUDA device that are free or cached by libtorch without being used; the maximum of size_t if
// that is unknown.
size_t FreeDeviceMemory(c10::Device device);

// Returns true if libtorch's attention kernel `entry` supports training with these operands. Without this check,
// kernels silently read out of bounds or read float32 as half precision. Always true for the CPU.
bool SupportsAttention(std::string_view entry, const AttentionOperands& x);

// Implements Backend::MeetOnDevice over NCCL. Returns null for the CPU.
absl::StatusOr<std::unique_ptr<Collectives>> MeetOnDevice(c10::Device device, Collectives& host);

}  // namespace onnxtrain::aten
