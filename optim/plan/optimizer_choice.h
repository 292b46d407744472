// Chooses the update rule of a run, its schedule, and the learning rate of each weight.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/interop/training_info.h"
#include "optim/config/config.h"
#include "optim/config/optimizer.h"
#include "optim/loop/lr_schedule.h"
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

// Makes rule, decay, clipping and hyperparameters, with the rule's defaults for those that the configuration leaves
// open. The learning rate is chosen later (ChooseOptimizer).
OptimizerSpec MakeOptimizer(const TrainConfig& config);
// Like MakeOptimizer, but loads the rule of onnx:FILE, or uses the model's training_info, `info`, if it exists and no
// field asks for another rule. With that rule, gradients are clipped only if a field asks for it.
absl::StatusOr<OptimizerSpec> LoadOptimizer(const TrainConfig& config, const OnnxModel& model,
                                            const std::optional<TrainingInfo>& info);
// Makes the schedule, without total_steps.
absl::StatusOr<ScheduleSpec> MakeSchedule(const TrainConfig& config);

struct OptimizerChoice {
  OptimizerSpec spec;
  ScheduleSpec schedule;
  ModelOrigin origin;
  std::vector<std::string> rates;       // config.lr, or the rates that a range test replaced it by
  double unscaled_lr = 0;               // before lr_scale
  std::string rate_text;                // how the learning rate was chosen
  std::vector<std::string> rate_lines;  // rates of single weights
};
// Chooses rule, schedule and rates. `rates`: as config.lr; `fresh`: weights of a new head; total_steps: updates of the
// schedule.
absl::StatusOr<OptimizerChoice> ChooseOptimizer(const TrainConfig& config, const std::vector<std::string>& rates,
                                                const OnnxModel& model, const PreparedModel& prepared,
                                                const std::vector<std::string>& fresh, int64_t global_batch,
                                                int64_t total_steps);

}  // namespace onnxtrain
