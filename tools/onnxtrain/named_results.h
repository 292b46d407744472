// The names that what a step computes has in files and comparisons.
#pragma once

#include "frontend/data/npz.h"
#include "optim/session.h"

namespace onnxtrain::cli {

inline constexpr char kGradPrefix[] = "grad:";

// "loss", then the model's outputs by name, then "grad:WEIGHT" for each gradient. An output that is called like one of
// the others is "output:NAME", so that every name stands for one value.
NamedArrays NamedResults(const GradientResult& result);

}  // namespace onnxtrain::cli
