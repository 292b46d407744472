#include "tools/onnxtrain/trial.h"

#include "frontend/base/status.h"
#include "tools/onnxtrain/common.h"
#include "tools/onnxtrain/flags.h"
#include "tools/onnxtrain/memory_flags.h"
#include "tools/onnxtrain/precision.h"
#include "tools/onnxtrain/synthetic_run.h"

namespace onnxtrain::cli {

absl::StatusOr<Trial> SetUpTrial() {
  Trial t;
  ASSIGN_OR_RETURN(t.model, LoadKnownModel());
  ASSIGN_OR_RETURN(t.batch, BatchFlags(BatchPlan().global));
  ASSIGN_OR_RETURN(const LossSpec loss, LossFlags(*t.model, std::nullopt));
  ASSIGN_OR_RETURN(const ImportOptions import, ImportFlags(*t.model));
  ASSIGN_OR_RETURN(const BoundData bound, SyntheticData(*t.model, import, loss, t.batch.global, FLAGS_seed));
  ASSIGN_OR_RETURN(t.options, MakeSessionOptions(*t.model, bound, loss, t.batch.micro));
  ASSIGN_OR_RETURN(t.options.recompute, MemoryFlags());
  ASSIGN_OR_RETURN(const PreparedModel look, PrepareFor(*t.model, bound, t.options, true));
  ASSIGN_OR_RETURN(t.data, MakeTrainData(bound, look.loss, loss.ignore_index));
  t.options.caller_bytes = BatchBytes(t.data, t.batch.global);
  t.options.optimizer.rule = FLAGS_optimizer;
  t.options.optimizer.max_grad_norm = MaxGradNorm();
  t.options.optimizer.clip_value = FLAGS_clip_value;
  t.options.optimizer.agc = FLAGS_agc;
  t.options.optimizer.weight_decay = FLAGS_weight_decay;
  t.options.optimizer.lr = 1e-6;  // many steps on one batch must stay finite
  ASSIGN_OR_RETURN(t.backend, LoadBackend(FLAGS_backend));
  ASSIGN_OR_RETURN(t.precision, SetPrecisionAndBatch(t.model, *t.backend, t.batch.global, &t.batch, &t.options));
  return t;
}

}  // namespace onnxtrain::cli
