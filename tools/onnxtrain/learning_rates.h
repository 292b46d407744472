// --lr: which rate the weights get.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/optimizer.h"
#include "optim/prepare.h"
#include "tools/onnxtrain/pretrained.h"

namespace onnxtrain::cli {

// How much faster a new head of a pre-trained model learns.
inline constexpr double kHeadFactor = 10;

struct RateChoice {
  double lr = 0;
  std::string why;                        // behind the number: " for a pre-trained model: …"; "" where it was given
  std::map<std::string, double> factors;  // of lr, by weight name, where not 1
  std::vector<std::string> lines;         // one per group of weights with a rate of its own
};

// What the batch makes of the rate.
struct RateScale {
  double factor = 1;
  std::string text;  // "512/256", "√(512/256)"
};
// `how`: none, linear (Goyal et al., 2017), sqrt (Krizhevsky, 2014), or auto: linear for sgd and lars, sqrt for the others.
RateScale ScaleForBatch(const std::string& how, const std::string& rule, int64_t batch, int64_t base);

// Rules that want other rates than Adam's change what auto gives in that proportion. `given` are the values of --lr: auto or X, and GLOB=X, of which later ones win. `fresh` are the weights of a new head: ten
// times the rate, unless a glob says otherwise or the whole model looks new. Every rate is multiplied with `scale`.
absl::StatusOr<RateChoice> ChooseRates(const std::vector<std::string>& given, const PreparedModel& prepared,
                                       const WeightOrigin& origin, const std::vector<std::string>& fresh,
                                       const OptimizerSpec& optimizer, double scale = 1);

// Layer i of L learns at decay^(L−1−i) of its rate: see layers.h.
absl::Status DecayByLayer(double decay, const PreparedModel& prepared, RateChoice* choice);

// For JudgeWeights: the model's weights but those.
std::vector<NamedWeight> WeightsOf(const ImportedModel& model, const std::vector<std::string>& without);

}  // namespace onnxtrain::cli
