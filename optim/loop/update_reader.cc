#include "optim/loop/update_reader.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "frontend/base/status.h"

namespace onnxtrain {

absl::Status UpdateReader::ReadSums(DeviceScalars& device_scalars) {
  RETURN_IF_ERROR(ReadScalars(device_scalars.sum_loss, &losses_));
  return ReadScalars(device_scalars.sum_denominator, &weights_);
}

absl::StatusOr<UpdateValues> UpdateReader::Last(DeviceScalars& device_scalars, const LossChoice& loss) {
  RETURN_IF_ERROR(ReadSums(device_scalars));
  summed_losses_.resize(losses_.size());
  summed_weights_.resize(losses_.size());
  for (size_t i = 0; i < losses_.size(); ++i) {
    losses_[i] -= std::exchange(summed_losses_[i], losses_[i]);
    weights_[i] -= std::exchange(summed_weights_[i], weights_[i]);
  }
  UpdateValues values{.loss = std::numeric_limits<double>::quiet_NaN()};
  if (weights_[loss.lead] > 0) values.loss = MeanLoss(loss, losses_, weights_);
  ASSIGN_OR_RETURN(values.grad_norm, device_scalars.norm.Read());
  return values;
}

absl::StatusOr<StepReport> UpdateReader::Report(DeviceScalars& device_scalars, const LossChoice& loss, bool scaled_loss,
                                                int64_t attempted) {
  StepReport report;
  RETURN_IF_ERROR(ReadSums(device_scalars));
  report.loss = MeanLoss(loss, losses_, weights_);
  report.weight = weights_[loss.lead];
  ASSIGN_OR_RETURN(report.correct, device_scalars.sum_correct.Read());
  ASSIGN_OR_RETURN(report.targets, device_scalars.sum_targets.Read());
  ASSIGN_OR_RETURN(report.grad_norm, device_scalars.norm.Read());
  ASSIGN_OR_RETURN(report.learning_rate, device_scalars.rate.Read());
  ASSIGN_OR_RETURN(const double skipped, device_scalars.skipped.Read());
  if (scaled_loss) {
    ASSIGN_OR_RETURN(report.loss_scale, device_scalars.loss_scale.Read());
  }
  report.updates = attempted - std::exchange(attempts_, attempted);
  report.skipped = static_cast<int64_t>(skipped) - std::exchange(skips_, static_cast<int64_t>(skipped));
  RETURN_IF_ERROR(WriteScalars(device_scalars.sum_loss, 0));
  RETURN_IF_ERROR(WriteScalars(device_scalars.sum_denominator, 0));
  std::ranges::fill(summed_losses_, 0);
  std::ranges::fill(summed_weights_, 0);
  for (DeviceScalar* sum : {&device_scalars.sum_correct, &device_scalars.sum_targets}) RETURN_IF_ERROR(sum->Write(0));
  return report;
}

}  // namespace onnxtrain
