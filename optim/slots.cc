#include "optim/slots.h"

#include "frontend/base/status.h"
#include "optim/loss.h"
#include "optim/training_graph.h"

namespace onnxtrain {
namespace {

struct Row {
  const char* name;
  Slot Slots::*slot;
  bool counter = false;
};
constexpr Row kRows[] = {{slot::kWindowCorrect, &Slots::window_correct}, {slot::kWindowTargets, &Slots::window_targets},
                         {slot::kSumCorrect, &Slots::sum_correct},       {slot::kSumTargets, &Slots::sum_targets},
                         {slot::kNorm, &Slots::norm},                    {slot::kRate, &Slots::rate},
                         {slot::kPlateau, &Slots::plateau},              {slot::kLossScale, &Slots::loss_scale},
                         {slot::kApplied, &Slots::applied, true},        {slot::kSkipped, &Slots::skipped, true},
                         {slot::kSkippedInARow, &Slots::skipped_in_a_row, true}, {slot::kScaleApplied, &Slots::scale_applied, true}};

struct TermRow {
  const char* name;
  std::vector<Slot> Slots::*slots;
};
constexpr TermRow kTermRows[] = {{slot::kWindowLoss, &Slots::window_loss}, {slot::kWindowWeight, &Slots::window_weight},
                                 {slot::kSumLoss, &Slots::sum_loss},       {slot::kSumWeight, &Slots::sum_weight}};

}  // namespace

absl::Status Slot::Write(double value) {
  host_.Set(0, value);
  return WriteRegion(*region_, host_);
}

absl::StatusOr<double> Slot::Read() {
  RETURN_IF_ERROR(region_->view.buffer->Read(region_->view.offset, host_.mutable_bytes()));
  return host_.At(0);
}

absl::Status WriteEach(std::vector<Slot>& slots, double value) {
  for (Slot& slot : slots) RETURN_IF_ERROR(slot.Write(value));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> ReadEach(std::vector<Slot>& slots) {
  std::vector<double> values;
  for (Slot& slot : slots) {
    ASSIGN_OR_RETURN(values.emplace_back(), slot.Read());
  }
  return values;
}

absl::Status Slots::LayOut(Backend& backend, DType dtype, size_t terms, bool scaled_loss, Bindings* bindings) {
  const auto has = [&](const Row& row) { return scaled_loss || row.slot != &Slots::loss_scale; };
  for (const Row& row : kRows) {
    if (has(row)) memory.Add(row.name, {row.counter ? DType::kInt64 : dtype, {}});
  }
  for (const TermRow& row : kTermRows) {
    for (size_t i = 0; i < terms; ++i) memory.Add(OfTerm(row.name, i), {dtype, {}});
  }
  RETURN_IF_ERROR(memory.Allocate(backend, "counters"));
  for (const std::string& name : memory.names()) (*bindings)[name] = memory.At(name);
  for (const Row& row : kRows) {
    if (has(row)) this->*row.slot = Slot(bindings->at(row.name));
  }
  for (const TermRow& row : kTermRows) {
    for (size_t i = 0; i < terms; ++i) (this->*row.slots).emplace_back(bindings->at(OfTerm(row.name, i)));
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
