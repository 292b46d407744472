#include "optim/step/device_scalars.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "frontend/base/status.h"
#include "optim/step/loss.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {
namespace {

struct Row {
  const char* name;
  DeviceScalar DeviceScalars::*device_scalar;
  std::optional<DType> dtype = {};  // absent: that of the weights
  Arena DeviceScalars::*arena = &DeviceScalars::memory;
};
constexpr Row kRows[] = {
    {device_scalar::kBatchCorrect, &DeviceScalars::batch_correct},
    {device_scalar::kBatchTargets, &DeviceScalars::batch_targets},
    {device_scalar::kSumCorrect, &DeviceScalars::sum_correct},
    {device_scalar::kSumTargets, &DeviceScalars::sum_targets},
    {device_scalar::kNorm, &DeviceScalars::norm},
    {device_scalar::kRate, &DeviceScalars::rate},
    {device_scalar::kPlateau, &DeviceScalars::plateau},
    {device_scalar::kLossScale, &DeviceScalars::loss_scale},
    {device_scalar::kApplied, &DeviceScalars::applied, DType::kInt64},
    {device_scalar::kSkipped, &DeviceScalars::skipped, DType::kInt64},
    {device_scalar::kSkippedInARow, &DeviceScalars::skipped_in_a_row, DType::kInt64},
    {device_scalar::kScaleApplied, &DeviceScalars::scale_applied, DType::kInt64},
    {device_scalar::kSquaredNorm, &DeviceScalars::squared_norm, DType::kFloat64, &DeviceScalars::transient}};

struct TermRow {
  const char* name;
  std::vector<DeviceScalar> DeviceScalars::*device_scalars;
};
constexpr TermRow kTermRows[] = {{device_scalar::kBatchLoss, &DeviceScalars::batch_loss},
                                 {device_scalar::kBatchDenominator, &DeviceScalars::batch_denominator},
                                 {device_scalar::kSumLoss, &DeviceScalars::sum_loss},
                                 {device_scalar::kSumDenominator, &DeviceScalars::sum_denominator}};

}  // namespace

absl::Status DeviceScalar::Write(double value) {
  host_.Set(0, value);
  return WriteRegion(*region_, host_);
}

absl::StatusOr<double> DeviceScalar::Read() {
  RETURN_IF_ERROR(region_->view.buffer->Read(region_->view.offset, host_.mutable_bytes()));
  return host_.At(0);
}

absl::Status WriteScalars(std::vector<DeviceScalar>& device_scalars, double value) {
  for (DeviceScalar& device_scalar : device_scalars) RETURN_IF_ERROR(device_scalar.Write(value));
  return absl::OkStatus();
}

absl::Status ReadScalars(std::vector<DeviceScalar>& device_scalars, std::vector<double>* values) {
  values->resize(device_scalars.size());
  for (size_t i = 0; i < device_scalars.size(); ++i) {
    ASSIGN_OR_RETURN((*values)[i], device_scalars[i].Read());
  }
  return absl::OkStatus();
}

absl::Status DeviceScalars::LayOut(Backend& backend, DType dtype, size_t terms, bool scaled_loss, Bindings* bindings) {
  const auto has = [&](const Row& row) { return scaled_loss || row.device_scalar != &DeviceScalars::loss_scale; };
  for (const Row& row : kRows) {
    if (has(row)) (this->*row.arena).Add(row.name, {row.dtype.value_or(dtype), {}});
  }
  for (const TermRow& row : kTermRows) {
    for (size_t i = 0; i < terms; ++i) memory.Add(TermName(row.name, i), {dtype, {}});
  }
  for (Arena* arena : {&memory, &transient}) {
    RETURN_IF_ERROR(arena->Allocate(backend, "counters"));
    for (const std::string& name : arena->names()) (*bindings)[name] = arena->At(name);
  }
  for (const Row& row : kRows) {
    if (has(row)) this->*row.device_scalar = DeviceScalar(bindings->at(row.name));
  }
  for (const TermRow& row : kTermRows) {
    for (size_t i = 0; i < terms; ++i) (this->*row.device_scalars).emplace_back(bindings->at(TermName(row.name, i)));
  }
  return absl::OkStatus();
}

absl::Status DeviceScalars::WriteSums(std::span<const double> sums) {
  for (size_t i = 0; i < batch_loss.size(); ++i) RETURN_IF_ERROR(batch_loss[i].Write(sums[i]));
  return batch_correct.Write(sums[batch_loss.size()]);
}

absl::Status DeviceScalars::ReadSums(std::span<double> sums) {
  for (size_t i = 0; i < batch_loss.size(); ++i) {
    ASSIGN_OR_RETURN(sums[i], batch_loss[i].Read());
  }
  ASSIGN_OR_RETURN(sums[batch_loss.size()], batch_correct.Read());
  return absl::OkStatus();
}

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
