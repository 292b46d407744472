// A backend whose programs find memory as bad as it can be: behind every buffer lies a page that nobody may touch, and
// before every run the arena and the outputs are filled with bytes that are no number. What a kernel reads without
// having written it, shows; what it touches beyond its operands ends the test.
#pragma once

#include <memory>

#include "backends/backend.h"

namespace onnxtrain::cases {

// Of a backend on the host, which must outlive it. For programs with memory of their own (BoundProgram): no output may
// lie in an input's.
std::unique_ptr<Backend> Guarded(Backend& backend);

}  // namespace onnxtrain::cases
