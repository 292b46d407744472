// The proof of a pattern: both forms are evaluated.
#pragma once

#include "frontend/passes/match.h"

namespace onnxtrain {

// Computes match.root from match.leaves, on their small shapes, as the graph does and by match.form, both in float64
// and on the same numbers: normal ones of several magnitudes (an epsilon shows only where a variance is small), drawn
// from a fixed seed. True if the results agree within 1e-5, relative (2e-3 where the graph has 16-bit constants), and
// `form` has the root's type on the real leaves. Says no, rather than failing, to whatever cannot be evaluated.
bool Proved(const Graph& graph, const Match& match);

}  // namespace onnxtrain
