// Evaluates the model file that a run has written.
#include <memory>
#include <utility>

#include "frontend/base/status.h"
#include "optim/loop/evaluate.h"
#include "optim/plan/session_setup.h"
#include "optim/record/recorder.h"

namespace onnxtrain {
namespace {

// Returns the configuration without what changes the weights that are trained.
TrainConfig WithoutAdapters(TrainConfig config) {
  for (auto* names : {&config.lora_rank, &config.adapter, &config.train, &config.freeze}) names->clear();
  return config;
}

}  // namespace

absl::StatusOr<double> EvaluateWrittenModel(const TrainingRun& run, const std::string& path) {
  ASSIGN_OR_RETURN(const auto model, OnnxModel::Load(path, {}));
  ASSIGN_OR_RETURN(SessionOptions options, MakeSessionOptions(WithoutAdapters(run.config), *model, run.data.eval.bound,
                                                              run.data.loss, run.batch.micro));
  options.optimizer.rule = "sgd";  // keeps no moments: nothing is trained
  const auto models = std::make_shared<PreparedModels>(model);
  RETURN_IF_ERROR(PrepareFor(*models, run.data.eval.bound, &options, false).status());
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                   Session::Create(models, run.backend.get(), std::move(options)));
  ASSIGN_OR_RETURN(const EvalMetrics metrics, EvaluateAll(*session, run.eval, 0));
  return metrics.loss;
}

}  // namespace onnxtrain
