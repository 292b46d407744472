// The scalars that programs keep for the host, with names as in training_graph.h.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "optim/state.h"

namespace onnxtrain {

// A scalar in device memory. Neither Write nor Read allocates.
class Slot {
 public:
  Slot() = default;
  // `region` must outlive the slot; where its buffer changes, the slot follows.
  explicit Slot(const Region& region) : region_(&region), host_(region.type) {}

  absl::Status Write(double value);
  absl::StatusOr<double> Read();

 private:
  const Region* region_ = nullptr;
  HostTensor host_;
};

absl::Status WriteEach(std::vector<Slot>& slots, double value);
absl::StatusOr<std::vector<double>> ReadEach(std::vector<Slot>& slots);

struct Slots {
  // Allocates them, for a loss of so many terms, and names them in *bindings, which must stay where it is.
  absl::Status LayOut(Backend& backend, DType dtype, size_t terms, bool scaled_loss, Bindings* bindings);

  Arena memory;
  Slot window_correct, window_targets, sum_correct, sum_targets, norm, rate, plateau;
  Slot applied, skipped, skipped_in_a_row, scale_applied;            // i64
  Slot loss_scale;                                                   // only with `scaled_loss`
  std::vector<Slot> window_loss, window_weight, sum_loss, sum_weight;  // by term
};

}  // namespace onnxtrain
