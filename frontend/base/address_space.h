// The address space that `ulimit -v` leaves this process.
#pragma once

namespace onnxtrain {

// Returns the bytes that can still be mapped under RLIMIT_AS, infinity without a limit.
double AvailableAddressSpace();

}  // namespace onnxtrain
