// Differences between two sets of named tensors.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "frontend/data/sources/npz.h"
#include "frontend/graph/host_tensor.h"
#include "optim/step/session.h"

namespace onnxtrain::cli {

// Names of loss, outputs and gradients in files and comparisons.

inline constexpr char kGradPrefix[] = "grad:";

// "loss", then the model's outputs by name, then "grad:WEIGHT" or "grad:INPUT" for each gradient. An output whose
// name clashes with one of the others is "output:NAME".
NamedArrays NamedResults(const GradientResult& result);

struct Difference {
  std::string name;
  Type type;
  double largest = 0;   // max |a - b|; infinite where one is finite and the other not, or shapes differ
  double relative = 0;  // ‖a - b‖₂ / ‖b‖₂; largest where ‖b‖ is 0
  double nudged = 0;    // `relative` of the same value computed from nudged inputs and weights
  double allowed = 0;   // the largest `relative` that agrees; infinite where nudges change more than can be judged

  bool judged() const { return std::isfinite(allowed); }
  bool agrees() const { return relative <= allowed; }
};

Difference CompareTensors(const std::string& name, const HostTensor& a, const HostTensor& b);

// Of the names that both have. Gradients are also measured relative to the norm of all gradients of b, and the smaller
// result counts: one that is zero in exact arithmetic (a bias before BatchNorm) has no relative error of its own.
std::vector<Difference> CompareTensorMaps(const std::map<std::string, HostTensor>& a,
                                          const std::map<std::string, HostTensor>& b);

// Rounding explains a relative difference of kRounding, or kSpread times what nudges of the inputs and weights by
// kNudgeUlps ulps change, if that is more. Where they change more than kJudgeable, float32 cannot tell right from
// wrong.
inline constexpr double kRounding = 1e-3, kSpread = 3, kJudgeable = 0.1;
inline constexpr int kNudgeUlps = 16;

// Sets `nudged` and `allowed`; `moves` holds the changes by nudges, each as CompareTensorMaps measures it. Sorts the
// values that are furthest from agreement first.
void JudgeDifferences(const std::vector<std::vector<Difference>>& moves, std::vector<Difference>* differences);

// Returns the tensor with each element multiplied by 1 + u, where u is uniform in ± kNudgeUlps float32 ulps. With
// `keep_whole`, whole numbers stay, which may be indices or flags; integer tensors always stay.
HostTensor Nudge(const HostTensor& tensor, uint64_t seed, bool keep_whole);

}  // namespace onnxtrain::cli
