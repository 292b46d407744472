// Scalars in device memory that the host reads and writes. Their names are in training_graph.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "optim/step/loss.h"
#include "optim/step/session.h"
#include "optim/step/state.h"

namespace onnxtrain {

// A scalar in device memory. Neither Write nor Read allocates.
class DeviceScalar {
 public:
  DeviceScalar() = default;
  // `region` must outlive the scalar. Every access looks up its buffer, which may change.
  explicit DeviceScalar(const Region& region) : region_(&region), host_(region.type) {}

  absl::Status Write(double value);
  absl::StatusOr<double> Read();

 private:
  const Region* region_ = nullptr;
  HostTensor host_;
};

absl::Status WriteScalars(std::vector<DeviceScalar>& device_scalars, double value);
absl::Status ReadScalars(std::vector<DeviceScalar>& device_scalars, std::vector<double>* values);

struct DeviceScalars {
  // Allocates the scalars for a loss of `terms` terms and adds them to *bindings, which must outlive them.
  absl::Status LayOut(Backend& backend, DType dtype, size_t terms, bool scaled_loss, Bindings* bindings);

  // Write and read batch_loss, by term, followed by batch_correct.
  absl::Status WriteSums(std::span<const double> sums);
  absl::Status ReadSums(std::span<double> sums);

  Arena memory;
  Arena transient;  // of squared_norm, which does not outlive an update
  DeviceScalar batch_correct, batch_targets, sum_correct, sum_targets, norm, rate, plateau;
  DeviceScalar squared_norm;                                                           // f64
  DeviceScalar applied, skipped, skipped_in_a_row, scale_applied;                      // i64
  DeviceScalar loss_scale;                                                             // only with `scaled_loss`
  std::vector<DeviceScalar> batch_loss, batch_denominator, sum_loss, sum_denominator;  // by term
};

// Reads the counters that updates write on the device. All queued work must have finished.
class UpdateReader {
 public:
  // Returns the values of the last update. Must be called after every update, because it subtracts the sums of the
  // previous call. The loss of a skipped update is NaN.
  absl::StatusOr<UpdateValues> Last(DeviceScalars& device_scalars, const LossChoice& loss);
  // Reports the updates since the last report and resets the sums. `attempted`: updates so far, including skipped ones.
  absl::StatusOr<StepReport> Report(DeviceScalars& device_scalars, const LossChoice& loss, bool scaled_loss,
                                    int64_t attempted);

  // Return the attempted and the skipped updates up to the last report.
  int64_t attempts() const { return attempts_; }
  int64_t skips() const { return skips_; }
  void Restore(int64_t attempts, int64_t skips) { attempts_ = attempts, skips_ = skips; }

 private:
  absl::Status ReadSums(DeviceScalars& device_scalars);

  std::vector<double> losses_, weights_;                // by term: memory for reads
  std::vector<double> summed_losses_, summed_weights_;  // by term, at the last update that was looked at
  int64_t attempts_ = 0, skips_ = 0;
};

}  // namespace onnxtrain
