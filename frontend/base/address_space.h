// What `ulimit -v` leaves this process.
#pragma once

namespace onnxtrain {

// Bytes that can still be mapped under RLIMIT_AS; infinity where there is no limit.
double AddressSpaceLeft();

}  // namespace onnxtrain
