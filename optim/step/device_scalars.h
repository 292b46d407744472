// Scalars in device memory that the host reads and writes; names as in training_graph.h.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "optim/step/state.h"

namespace onnxtrain {

// A scalar in device memory. Neither Write nor Read allocates.
class DeviceScalar {
 public:
  DeviceScalar() = default;
  // `region` must outlive the scalar, which follows it to another buffer.
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

  // batch_loss and batch_correct.
  absl::Status WriteSums(std::span<const double> sums);
  absl::Status ReadSums(std::span<double> sums);

  Arena memory;
  DeviceScalar batch_correct, batch_targets, sum_correct, sum_targets, norm, rate, plateau;
  DeviceScalar applied, skipped, skipped_in_a_row, scale_applied;                      // i64
  DeviceScalar loss_scale;                                                             // only with `scaled_loss`
  std::vector<DeviceScalar> batch_loss, batch_denominator, sum_loss, sum_denominator;  // by term
};

}  // namespace onnxtrain
