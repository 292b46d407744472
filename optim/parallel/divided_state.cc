#include "optim/parallel/divided_state.h"

#include "frontend/base/status.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {
namespace {

size_t SliceBytes(const ShardUnit& unit, DType dtype, const Shard& shard) {
  return static_cast<size_t>(SliceElements(unit, shard.size)) * DTypeSize(dtype);
}

}  // namespace

absl::Status CheckDivides(const OptimizerSpec& optimizer) {
  if (optimizer.ema_decay > 0) return Invalid("`shard`: averages of weights (`ema_decay`) are not divided");
  if (IsPerTensor(optimizer))
    return Invalid("`shard`: ", optimizer.agc > 0 ? "`agc`" : StrCat("`optimizer` ", optimizer.rule),
                   " reads whole weights, of which a rank would have parts");
  return absl::OkStatus();
}

absl::Status ShareWeights(Backend& backend, DataParallel& ranks, const TrainingState& state) {
  RETURN_IF_ERROR(backend.Synchronize());
  const DType dtype = state.dtype();
  for (const ShardUnit& unit : state.shard_units()) {
    if (!unit.weight.empty()) continue;
    const BufferView view = state.WeightsOf(unit);
    RETURN_IF_ERROR(ranks.ExchangeSlices(
        "exchange of weights", unit.elements * DTypeSize(dtype), SliceBytes(unit, dtype, state.shard()),
        [&](size_t offset, std::span<std::byte> bytes) { return view.buffer->Read(view.offset + offset, bytes); },
        [&](size_t offset, std::span<const std::byte> bytes) {
          return view.buffer->Write(view.offset + offset, bytes);
        }));
  }
  return absl::OkStatus();
}

namespace {

// Has rank 0 write the slices of a unit of all ranks to `whole`; each rank has its own at `own`.
absl::Status GatherUnit(DataParallel& ranks, const char* what, const ShardUnit& unit, DType dtype, const Shard& shard,
                        const BufferView& own, const BufferView& whole) {
  const bool keeps = ranks.rank() == 0;
  const size_t slice = SliceBytes(unit, dtype, shard), first = slice * ranks.rank();
  const auto write = [&](size_t offset, std::span<const std::byte> bytes) {
    return keeps ? whole.buffer->Write(whole.offset + offset, bytes) : absl::OkStatus();
  };
  const auto read = [&](size_t offset, std::span<std::byte> bytes) {
    RETURN_IF_ERROR(own.buffer->Read(own.offset + offset - first, bytes));
    return write(offset, bytes);
  };
  return ranks.ExchangeSlices(what, unit.elements * DTypeSize(dtype), slice, read, write);
}

}  // namespace

absl::Status GatherMoments(const OptimizerSpec& optimizer, DataParallel& ranks, TrainingState* state) {
  constexpr char kWhat[] = "exchange of moments";
  const bool keeps = ranks.rank() == 0;
  RETURN_IF_ERROR(ranks.Agree(kWhat, keeps ? state->AllocateGathered(optimizer) : absl::OkStatus()));
  for (const TrainingState::DividedMoment& moment : state->divided_moments()) {
    const BufferView whole = keeps ? state->gathered(moment) : BufferView();
    RETURN_IF_ERROR(
        GatherUnit(ranks, kWhat, moment.unit, moment.slice.type.dtype, state->shard(), moment.slice.view, whole));
  }
  return absl::OkStatus();
}

absl::Status GatherDividedWeights(DataParallel& ranks, TrainingState* state) {
  constexpr char kWhat[] = "gathering of weights";
  const bool keeps = ranks.rank() == 0;
  RETURN_IF_ERROR(
      ranks.Agree(kWhat, keeps ? state->AllocateGatheredWeights(ranks.scratch_folder()) : absl::OkStatus()));
  for (const ShardUnit& unit : state->shard_units()) {
    if (unit.weight.empty()) continue;
    const BufferView whole = keeps ? state->gathered_row(unit) : BufferView();
    RETURN_IF_ERROR(GatherUnit(ranks, kWhat, unit, state->dtype(), state->shard(), state->OwnSlice(unit).view, whole));
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
