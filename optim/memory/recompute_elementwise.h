// Elementwise values that are cheaper to compute twice than to keep.
#pragma once

#include "frontend/graph/graph.h"

namespace onnxtrain {

// Keeps fewer bytes of the forward pass for the backward pass where that costs no kernel: a value whose readers in the
// backward pass are elementwise operators is computed there again, in the kernels that read it, if what it is computed
// from is kept anyhow or is smaller. x·σ(x)·u of a gated layer keeps x and u alone.
//
// Chooses by a minimum cut: moved bytes of what is kept against the operations of what is repeated, by the cost model
// of optim/step/program/optimize.h. For legalized graphs of backends that fuse chains of elementwise operators
// (Backend::FusesElementwise). What must run in the backward pass although it depends on no gradient reads results of
// chains through a Reshape to the same shape, with which no backend fuses it. Clones have the bits of their originals.
// Returns a graph without a backward pass unchanged.
Graph RecomputeElementwise(const Graph& legal);

}  // namespace onnxtrain
