// Names of loss, outputs and gradients in files and comparisons.
#pragma once

#include "frontend/data/sources/npz.h"
#include "optim/step/session.h"

namespace onnxtrain::cli {

inline constexpr char kGradPrefix[] = "grad:";

// "loss", then the model's outputs by name, then "grad:WEIGHT" or "grad:INPUT" for each gradient. An output whose
// name clashes with one of the others is "output:NAME".
NamedArrays NamedResults(const GradientResult& result);

}  // namespace onnxtrain::cli
