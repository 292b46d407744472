// What only a libtorch with CUDA can do. Defined by cuda/cuda.cc in the library that is built with CUDA, and by
// no_cuda.cc in the other.
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

// One for all programs on the device, whose recordings never run at the same time and share their scratch memory. Null
// where work cannot be recorded. Never freed.
Recorder* FindRecorder(c10::Device device);

// One for all writes to the device. Null where host memory is the device's, too. Never freed.
UploadRing* FindUploadRing(c10::Device device);

// Compiles generated kernels for the device. Null where there is no run-time compiler: a warning says why. Never freed.
KernelCompiler* FindKernelCompiler(c10::Device device);

// Bytes of a CUDA device that no process uses, or that libtorch holds for this one without using them. As much as there
// can be where that is not known.
size_t FreeDeviceMemory(c10::Device device);

// Does libtorch's attention kernel of that entry take these operands, to train? With others, kernels read beyond them
// or take float32 for half precision, without an error. True where there is nothing to ask: for the CPU.
bool SupportsAttention(std::string_view entry, const AttentionOperands& x);

// Backend::MeetOnDevice, over NCCL. Null for the CPU.
absl::StatusOr<std::unique_ptr<Collectives>> MeetOnDevice(c10::Device device, Collectives& host);

}  // namespace onnxtrain::aten
