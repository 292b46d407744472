#include "optim/distributed/divided_state.h"

#include "frontend/base/status.h"
#include "optim/training_graph.h"

namespace onnxtrain {
namespace {

size_t SliceBytes(int64_t elements, DType dtype, const Shard& shard) {
  return static_cast<size_t>(SliceElements(elements, shard.size)) * DTypeSize(dtype);
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
    const BufferView view = state.WeightsOf(unit);
    RETURN_IF_ERROR(ranks.ExchangeSlices(
        "exchange of weights", unit.elements * DTypeSize(dtype), SliceBytes(unit.elements, dtype, state.shard()),
        [&](size_t offset, std::span<std::byte> bytes) { return view.buffer->Read(view.offset + offset, bytes); },
        [&](size_t offset, std::span<const std::byte> bytes) {
          return view.buffer->Write(view.offset + offset, bytes);
        }));
  }
  return absl::OkStatus();
}

absl::Status GatherMoments(const OptimizerSpec& optimizer, DataParallel& ranks, TrainingState* state) {
  constexpr char kWhat[] = "exchange of moments";
  const bool keeps = ranks.rank() == 0;
  RETURN_IF_ERROR(ranks.Agree(kWhat, keeps ? state->AllocateGathered(optimizer) : absl::OkStatus()));
  for (const TrainingState::DividedMoment& moment : state->divided_moments()) {
    const BufferView& own = moment.slice.view;
    const DType dtype = moment.slice.type.dtype;
    const size_t slice = SliceBytes(moment.unit.elements, dtype, state->shard()), first = slice * ranks.rank();
    const BufferView whole = keeps ? state->gathered(moment) : BufferView();
    const auto write = [&](size_t offset, std::span<const std::byte> bytes) {
      return keeps ? whole.buffer->Write(whole.offset + offset, bytes) : absl::OkStatus();
    };
    const auto read = [&](size_t offset, std::span<std::byte> bytes) {
      RETURN_IF_ERROR(own.buffer->Read(own.offset + offset - first, bytes));
      return write(offset, bytes);
    };
    RETURN_IF_ERROR(ranks.ExchangeSlices(kWhat, moment.unit.elements * DTypeSize(dtype), slice, read, write));
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
