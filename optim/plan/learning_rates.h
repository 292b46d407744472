// Chooses learning rates: one for the run, and factors for single weights.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "optim/config/optimizer.h"
#include "optim/step/prepared_models.h"

namespace onnxtrain {

// Says whether a model is pre-trained or has the weights of a random initializer.
struct ModelOrigin {
  bool trained = false;
  std::string why;  // for people
};

struct NamedWeight {
  std::string name;
  HostTensor value;
  bool statistics = false;  // running mean or variance
};

// Classifies a model as pre-trained or freshly initialized. Initializers draw matrices of mean 0 from a uniform or a
// normal distribution (flat, or with excess kurtosis 0 and no outliers); training shifts them and adds tails. The class
// with more elements wins, among the tensors that are large enough to classify.
ModelOrigin ClassifyWeightOrigin(const std::vector<NamedWeight>& weights);

// The factor of the learning rate of a new head on a pre-trained model.
inline constexpr double kHeadFactor = 10;

struct RateChoice {
  double lr = 0;
  std::string why;  // printed after the number: " for a pre-trained model: …"; "" if it was specified
  std::map<std::string, double> factors;  // factors of lr, by weight name; weights with factor 1 are left out
  std::vector<std::string> lines;         // one per group of weights with a different rate
};

// Scales the learning rate with the batch size.
struct RateScale {
  double factor = 1;
  std::string text;  // "512/256", "√(512/256)"
};
// Returns the scale for a global batch of `batch` samples relative to `base`. `how`: none, linear (Goyal et al., 2017),
// sqrt (Krizhevsky, 2014), or auto: linear for sgd and lars, sqrt for the others.
RateScale ScaleForBatch(const std::string& how, const std::string& rule, int64_t batch, int64_t base);

// Returns 1e-3 for random weights, 1e-4 for a pre-trained model, 2e-5 for a pre-trained transformer.
double DefaultRate(bool pretrained, bool transformer);
bool IsTransformer(const Graph& graph);

// Fails if an entry of config.lr is not auto, X or GLOB=X, or if two rates have no glob.
absl::Status CheckRates(const std::vector<std::string>& lr);
// Returns true if config.lr has a rate for all weights.
bool SpecifiesBaseRate(const std::vector<std::string>& lr);
// Returns config.lr with this rate for all weights that no glob matches.
std::vector<std::string> ReplaceBaseRate(std::vector<std::string> rates, double lr);

// Chooses the rate and its factors. `given` is config.lr: auto or X, and GLOB=X; the last matching glob wins. Rules
// with their own default rate scale the automatic rate in proportion to Adam's. `fresh` are the weights of a new head:
// they get kHeadFactor times the rate, unless a glob matches or the whole model looks untrained. Multiplies every rate
// by `scale`.
absl::StatusOr<RateChoice> ChooseRates(const std::vector<std::string>& given, const PreparedModel& prepared,
                                       const ModelOrigin& origin, const std::vector<std::string>& fresh,
                                       const OptimizerSpec& optimizer, double scale = 1);

// Multiplies the rate of layer i of L by decay^(L−1−i); groups.h defines the layers.
absl::Status DecayByLayer(const TrainConfig& config, const PreparedModel& prepared, RateChoice* choice);

// Returns the model's weights, except those in `without`, for ClassifyWeightOrigin.
std::vector<NamedWeight> CollectWeights(const ImportedModel& model, const std::vector<std::string>& without);

}  // namespace onnxtrain
