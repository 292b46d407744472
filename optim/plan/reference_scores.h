// Log-probabilities of pairs of answers under the reference of dpo and ipo.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/bind/preprocess.h"
#include "optim/config/config.h"
#include "optim/loop/evaluate.h"
#include "optim/step/session.h"

namespace onnxtrain {

inline constexpr char kReferenceFile[] = "reference.npz";  // in the folder of a run

// Two values per sample, of the chosen and of the rejected answer, in the order of the data.
struct ReferenceScores {
  std::string identity;  // digest of the model, its weights and all samples
  std::vector<float> train, eval;
};

// Chooses dpo for pairs of answers, and checks that losses of pairs have pairs. A loss that `config` does not name,
// that of the model's preprocess.json, gives way to one that fits the data.
absl::Status ChoosePairLoss(const TrainConfig& config, BoundData* data, LossSpec* loss);

// Returns true if a term compares pairs of answers.
bool ComparesPairs(const LossSpec& loss);

// Evaluates the pairs of `data` in a session with ReferenceOptions.
absl::StatusOr<std::vector<float>> ScoreReference(Session& session, const TrainData& data);
SessionOptions ReferenceOptions(SessionOptions options);

// Returns the digest of a model with its initial weights and of the samples of both data sets; `eval` may hold none.
absl::StatusOr<std::string> IdentifyReference(const OnnxModel& model, const std::vector<ImportedWeight>& weights,
                                              const TrainData& train, const TrainData& eval);

absl::Status WriteReferenceScores(const ReferenceScores& scores, const std::string& path);
// Returns nullopt if the file does not hold the scores of `identity`.
std::optional<ReferenceScores> ReadReferenceScores(const std::string& path, const std::string& identity);

// Opens a session of another model, with the data and the loss of the one that `like` belongs to.
absl::StatusOr<std::unique_ptr<Session>> OpenReferenceModel(const TrainConfig& reference, const BoundData& data,
                                                            const SessionOptions& like, Backend* backend);

// Returns the configuration of the model that `eval` compares with: `reference_model`, or the model without the
// adapters of `config`, or the model that the run of `before` began with.
absl::StatusOr<TrainConfig> FindReferenceModel(const TrainConfig& config, const std::optional<Preprocess>& before);

// Returns the model that the reference of a run is, for its preprocess.json; "": its weights are those of no file.
std::string NameReferenceModel(const TrainConfig& config, const LossChoice& loss);

}  // namespace onnxtrain
