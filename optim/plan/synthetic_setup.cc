#include "optim/plan/synthetic_setup.h"

#include "frontend/base/status.h"
#include "frontend/onnx/interop/training_info.h"
#include "optim/config/training_settings.h"
#include "optim/plan/micro_batch.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/session_setup.h"
#include "optim/plan/surgery.h"
#include "optim/plan/synthetic_data.h"
#include "optim/plan/threads.h"
#include "optim/step/training_state.h"

namespace onnxtrain {

absl::StatusOr<SyntheticSetup> PrepareSynthetic(const TrainConfig& given, const BackendFactory& make_backend) {
  RETURN_IF_ERROR(Validate(given));
  SyntheticSetup setup;
  ASSIGN_OR_RETURN(auto loaded, LoadRunnableModel(given));
  const TrainConfig config = WithTrainingSettings(given, *loaded);
  ASSIGN_OR_RETURN(LossSpec loss, MakeLossSpec(config, *loaded, std::nullopt));
  loss.sum_outputs = true;
  if (HasSurgery(config)) {
    ASSIGN_OR_RETURN(Surgery surgery, ApplySurgery(config, loaded, nullptr, loss.logits));
    loaded = std::move(surgery.model);
    setup.surgery = std::move(surgery.lines);
    if (!surgery.logits.empty()) loss.logits = surgery.logits;
  }
  setup.models = std::make_shared<PreparedModels>(std::move(loaded));
  const OnnxModel& model = *setup.models->model();
  ASSIGN_OR_RETURN(const ImportOptions import, MakeImportOptions(config, model));
  ASSIGN_OR_RETURN(setup.batch, PlanBatch(config, GlobalBatchSize(config, model, import.batch_axes)));
  ASSIGN_OR_RETURN(const BoundData bound,
                   MakeSyntheticData(*setup.models, import, loss, setup.batch.global, setup.batch.micro, config.seed));
  RETURN_IF_ERROR(CheckBatchFits(*bound.dataset, setup.batch.global));
  ASSIGN_OR_RETURN(setup.options, MakeSessionOptions(config, model, bound, loss, setup.batch.micro));
  ASSIGN_OR_RETURN(const PreparedModel prepared, PrepareFor(*setup.models, bound, &setup.options, true));
  RETURN_IF_ERROR(FixMicroBatch(config, setup.options, &setup.batch));
  ASSIGN_OR_RETURN(setup.data, MakeTrainData(bound, prepared, loss.ignore_index));
  setup.options.caller_bytes = BatchBytes(setup.data, setup.batch.global);
  ASSIGN_OR_RETURN(const std::optional<TrainingInfo> info, ReadTrainingInfo(model));
  ASSIGN_OR_RETURN(setup.options.optimizer, LoadOptimizer(config, model, info));
  setup.options.optimizer.lr = 1e-6;  // many steps on one batch must stay finite
  setup.options.recompute = MakeRecomputeSpec(config);
  setup.state_bytes = StateBytes(setup.options.optimizer, prepared.weights);
  TrainConfig with_threads = config;
  ASSIGN_OR_RETURN(setup.backend, MakeBackendForModel(setup.models, setup.options, make_backend, &with_threads));
  setup.threads = with_threads.threads;
  ASSIGN_OR_RETURN(setup.precision, ChoosePrecisionAndBatch(config, setup.models, *setup.backend, setup.batch.global,
                                                            &setup.batch, &setup.options));
  return setup;
}

}  // namespace onnxtrain
