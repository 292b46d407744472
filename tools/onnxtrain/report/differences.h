// Compares sets of named tensors, and gradients with central differences.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/graph/host_tensor.h"
#include "optim/loop/trainer.h"
#include "optim/step/session.h"

namespace onnxtrain::cli {

inline constexpr char kGradPrefix[] = "grad:";

// Returns "loss", then the model's outputs by name, then "grad:WEIGHT" or "grad:INPUT" for each gradient. An output
// whose name clashes with one of the others is "output:NAME".
NamedArrays NamedResults(const GradientResult& result);

struct Difference {
  std::string name;
  Type type;
  double largest = 0;   // max |a - b|; infinite if shapes differ or only one of a and b is finite
  double relative = 0;  // ‖a - b‖₂ / ‖b‖₂, or `largest` if ‖b‖ is 0
  double nudged = 0;    // `relative` between results from original and nudged inputs and weights
  double allowed = 0;   // bound of `relative` for agreement; infinite if nudges exceed kJudgeable

  bool judged() const { return std::isfinite(allowed); }
  bool agrees() const { return relative <= allowed; }
};

Difference CompareTensors(const std::string& name, const HostTensor& a, const HostTensor& b);

// Compares the tensors whose names are in both maps. The relative difference of a gradient is the smaller of that and
// the one relative to the norm of all gradients of b, since some gradients are zero in exact arithmetic (a bias before
// BatchNorm).
std::vector<Difference> CompareTensorMaps(const std::map<std::string, HostTensor>& a,
                                          const std::map<std::string, HostTensor>& b);

// Rounding explains a relative difference up to kRounding, or up to kSpread times the change by nudges of inputs and
// weights by kNudgeUlps ulps, if that is more. Above a change of kJudgeable, float32 is too inaccurate to judge.
inline constexpr double kRounding = 1e-3, kSpread = 3, kJudgeable = 0.1;
inline constexpr int kNudgeUlps = 16;

// Sets `nudged` and `allowed` from `moves`, the results of CompareTensorMaps for each nudge. Sorts the values farthest
// from agreement first.
void JudgeDifferences(const std::vector<std::vector<Difference>>& moves, std::vector<Difference>* differences);

// Returns the tensor with each element multiplied by 1 + u, where u is uniform in ± kNudgeUlps float32 ulps. With
// `keep_whole`, whole numbers stay, which may be indices or flags; integer tensors always stay.
HostTensor Nudge(const HostTensor& tensor, uint64_t seed, bool keep_whole);

// Differences between the gradients of one parameter and central differences.
struct GradcheckRow {
  std::string parameter;
  int64_t checked = 0;
  double worst = 0;  // relative error of the worst coordinate
  int64_t at = 0;    // index of the worst coordinate
  double analytic = 0, numeric = 0;
};

struct GradcheckResult {
  std::vector<GradcheckRow> rows;  // worst first
  // Bound of the relative error. Central differences are wrong where a step crosses a kink (Relu, MaxPool), so each
  // coordinate is compared with several step sizes.
  static constexpr double kTolerance = 1e-4;
  bool passed() const { return rows.empty() || rows.front().worst <= kTolerance; }
};

// Imports the model in float64 on `backend` and checks `coordinates` elements of every trained parameter (the steepest,
// and random ones by the seed) on the first options.micro_batch samples.
absl::StatusOr<GradcheckResult> Gradcheck(std::shared_ptr<PreparedModels> models, Backend& backend,
                                          SessionOptions options, TrainData data, int64_t coordinates);

std::string Page(const GradcheckResult& result);

}  // namespace onnxtrain::cli
