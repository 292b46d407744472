// The leading singular directions of a gradient, for optimizers whose moments live in a subspace (Zhao et al., GaLore,
// arXiv:2403.03507).
#pragma once

#include <cstdint>

#include "frontend/graph/type.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

// Returns true if a matrix is projected on the side of its columns, by right singular vectors: the shorter side, or
// both are equal.
inline bool ProjectsColumns(const Shape& matrix) { return matrix[0] >= matrix[1]; }

// Returns the basis [shorter side, rank] of the leading singular directions of a matrix x, in the order of the singular
// values; the largest component of each is positive. Only steps that are multiples of `every` compute it: others, and
// those whose x is not finite, return `previous`. Directions of singular values 0 may be 0.
Val LeadingDirections(Val x, Val previous, Val step, int64_t every);

// Returns the row of the operator, for the family DeterminantOps.
OpRow MakeLeadingDirectionsRow();

}  // namespace onnxtrain
