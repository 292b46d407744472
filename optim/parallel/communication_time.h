// What a rank spends on communication.
#pragma once

#include <cstdint>

namespace onnxtrain {

// Of updates, without the first one of a process, in which programs are compiled. With waits for other ranks.
struct CommunicationTime {
  int64_t updates = 0;
  double seconds = 0;      // in collectives
  double exposed = 0;      // of these, while nothing is computed
  int64_t bytes = 0;       // of gradients that are summed
  int64_t sent_bytes = 0;  // by this rank: gradients, and weights where moments are divided
};

}  // namespace onnxtrain
