// Reads what updates leave in the counters on the device.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/step/device_scalars.h"
#include "optim/step/loss.h"
#include "optim/step/session.h"

namespace onnxtrain {

// Everything on the device has finished when it is called.
class UpdateReader {
 public:
  // Of the last update alone, if every update is asked for. A skipped one adds nothing to the sums: its loss is NaN.
  absl::StatusOr<UpdateValues> Last(DeviceScalars& device_scalars, const LossChoice& loss);
  // Since the last report, with which the sums start anew. `attempted`: updates so far, skipped ones included.
  absl::StatusOr<StepReport> Report(DeviceScalars& device_scalars, const LossChoice& loss, bool scaled_loss,
                                    int64_t attempted);

  // Updates, and skipped ones, up to the last report.
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
