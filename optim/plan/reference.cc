#include "optim/plan/reference.h"

#include "frontend/base/status.h"
#include "frontend/data/text/pair_rows.h"

namespace onnxtrain {

bool ReadsReference(const LossChoice& loss) { return loss.leading().function->reference; }

absl::Status AddReference(Session& session, TrainData* data) {
  Evaluation total;
  int64_t samples = 0;
  EvaluatedBatches batches(session, *data, nullptr);
  RETURN_IF_ERROR(batches.Open({.batch_size = session.micro_batch()}));
  RETURN_IF_ERROR(batches.AddAll(&total, &samples));
  const std::vector<double>& scores = total.metrics.stats()[0][0];
  data->dataset = WithReference(data->dataset, std::vector<float>(scores.begin(), scores.end()));
  return absl::OkStatus();
}

}  // namespace onnxtrain
