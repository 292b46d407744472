// Which values that are made of weights alone (packed, cast, transposed) are made once per update and kept, and which are made
// anew in every run, right before they are read.
#pragma once

#include <functional>

#include "frontend/graph/graph.h"

namespace onnxtrain {

// For Hoist (frontend/passes/hoist.h), of a legalized program that may run several times between two updates. Kept is what is
// made of frozen weights alone, what several nodes read, as it would wait in the arena from one to the other, and what takes long
// to make beside what it is made for: where products have few rows. Anything else would take memory all the time, and be read
// from there instead of from the caches, for less than it saves.
std::function<bool(const Graph&, const Node&)> WorthHoisting(const Graph& graph);

}  // namespace onnxtrain
