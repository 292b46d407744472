// What the memory of a session holds, by name, for plans.
#pragma once

#include <cstdint>

#include "optim/step/session.h"

namespace onnxtrain::cli {

struct MemoryColumn {
  const char* key;
  int64_t SessionMemory::*bytes;
};
inline constexpr MemoryColumn kMemoryColumns[] = {
    {"parameters", &SessionMemory::parameters},   {"gradients", &SessionMemory::gradients},
    {"moments", &SessionMemory::moments},         {"packed", &SessionMemory::packed},
    {"activations", &SessionMemory::activations}, {"feeds", &SessionMemory::feeds}};

}  // namespace onnxtrain::cli
