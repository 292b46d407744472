// Learning rates: one for the run, and factors for single weights.
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

// Tells a pre-trained model from one whose weights an initializer drew.

struct ModelOrigin {
  bool trained = false;
  std::string why;  // for people
};

struct NamedWeight {
  std::string name;
  HostTensor value;
  bool statistics = false;  // running mean or variance
};

// Initializers draw matrices from a uniform or a normal distribution (flat, or with excess kurtosis 0 and no outliers)
// of mean 0; training shifts them and adds tails. The class with more elements wins, among the tensors that are large
// enough to classify.
ModelOrigin ClassifyWeightOrigin(const std::vector<NamedWeight>& weights);

// Factor of the learning rate of a new head on a pre-trained model.
inline constexpr double kHeadFactor = 10;

struct RateChoice {
  double lr = 0;
  std::string why;  // follows the number: " for a pre-trained model: …"; "" where it was specified
  std::map<std::string, double> factors;  // of lr, by weight name, where not 1
  std::vector<std::string> lines;         // one per group of weights with a rate of its own
};

// Scaling of the learning rate with the batch.
struct RateScale {
  double factor = 1;
  std::string text;  // "512/256", "√(512/256)"
};
// `how`: none, linear (Goyal et al., 2017), sqrt (Krizhevsky, 2014), or auto: linear for sgd and lars, sqrt for the
// others.
RateScale ScaleForBatch(const std::string& how, const std::string& rule, int64_t batch, int64_t base);

// 1e-3 for random weights, 1e-4 for a pre-trained model, 2e-5 for a pre-trained transformer.
double DefaultRate(bool pretrained, bool transformer);
bool IsTransformer(const Graph& graph);

// Fails where config.lr is none of auto, X and GLOB=X, or has two rates without a glob.
absl::Status CheckRates(const std::vector<std::string>& lr);
// Does config.lr name a rate for all weights?
bool SpecifiesBaseRate(const std::vector<std::string>& lr);
// config.lr with this rate for all weights that no glob matches.
std::vector<std::string> ReplaceBaseRate(std::vector<std::string> rates, double lr);

// `given` is config.lr: auto or X, and GLOB=X, of which later ones win. Rules with a default rate of their own scale
// the automatic rate in proportion to Adam's. `fresh` are the weights of a new head: kHeadFactor times the rate, unless
// a glob matches or the whole model looks untrained. Every rate is multiplied with `scale`.
absl::StatusOr<RateChoice> ChooseRates(const std::vector<std::string>& given, const PreparedModel& prepared,
                                       const ModelOrigin& origin, const std::vector<std::string>& fresh,
                                       const OptimizerSpec& optimizer, double scale = 1);

// Multiplies the rate of layer i of L by decay^(L−1−i): see groups.h.
absl::Status DecayByLayer(const TrainConfig& config, const PreparedModel& prepared, RateChoice* choice);

// The model's weights, except those in `without`, for ClassifyWeightOrigin.
std::vector<NamedWeight> CollectWeights(const ImportedModel& model, const std::vector<std::string>& without);

}  // namespace onnxtrain
