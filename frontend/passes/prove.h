// Proves a pattern match by evaluation of both forms.
#pragma once

#include "frontend/passes/match.h"

namespace onnxtrain {

// Evaluates match.root from match.leaves, on their small shapes, by the graph and by match.form, in float64 and on the
// same numbers: normal, of several magnitudes (an epsilon only matters for small variances), from a fixed seed. Returns
// true if the results agree within 1e-5 relative (2e-3 for 16-bit graphs, and where all constants of the match were
// rounded to 16 bits) and `form` has the root's type on the real leaves. Returns false if a form cannot be evaluated.
bool IsMatchProven(const Graph& graph, const Match& match);

}  // namespace onnxtrain
