#include "optim/plan/stream_setup.h"

#include <algorithm>

#include "frontend/data/sources/stdin.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/step_plan.h"

namespace onnxtrain {
namespace {

bool NeedsAllSamples(const TrainConfig& c, const std::optional<Preprocess>& before) {
  const bool transforms = !c.encode.empty() || !c.fill.empty() || c.standardize || c.scale_targets;
  const bool text = !c.text.empty() || !c.tokenizer.empty();
  const bool carried = before.has_value() && !(before->columns.empty() && before->text.columns.empty());
  return transforms || text || carried || !c.eval_split.empty() || c.on_bad_sample == "skip" || c.lr_find;
}

}  // namespace

int64_t StreamWindow(const TrainConfig& config, const OnnxModel& model, const std::optional<Preprocess>& before,
                     const DataRequest& request) {
  constexpr int64_t kShuffled = 4096, kBatches = 8;
  const bool endless = request.fit && IsStdin(request.path) && config.max_steps > 0 && config.epochs == 0;
  const auto plan = PlanBatch(config, GlobalBatchSize(config, model));
  if (!endless || !plan.ok() || NeedsAllSamples(config, before)) return 0;
  return plan->global * std::max(kBatches, config.shuffle ? kShuffled / plan->global : 0);
}

}  // namespace onnxtrain
