// Compares two implementations of the same operation with google-benchmark.
#pragma once

#include <functional>
#include <string>

namespace onnxtrain::bench {

using Run = std::function<void()>;     // computes the operation once
using Prepare = std::function<Run()>;  // allocates and prepares

// Registers the benchmarks "NAME/own" and "NAME/oneDNN".
void Compare(const std::string& name, Prepare own, Prepare onednn);

// Each registers the comparisons of one family of kernels.
void CompareConvWeightGrad();
void ComparePool();
void CompareBatchNorm();
void ComparePack();
void CompareAttention();
void CompareLoop();

}  // namespace onnxtrain::bench
