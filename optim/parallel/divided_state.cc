#include "optim/parallel/divided_state.h"

#include <algorithm>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/passes/collectives.h"
#include "frontend/passes/pass.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {
namespace {

size_t SliceBytes(const ShardUnit& unit, DType dtype, const Shard& shard) {
  return static_cast<size_t>(SliceElements(unit, shard.size)) * DTypeSize(dtype);
}

}  // namespace

absl::Status CheckDivides(const OptimizerSpec& optimizer) {
  if (optimizer.ema_decay > 0) return Invalid("`shard`: averages of weights (`ema_decay`) are not divided");
  if (const std::string reader = WholeWeightReader(optimizer); !reader.empty())
    return Invalid("`shard`: ", reader, " reads whole weights, of which a rank would have parts");
  return absl::OkStatus();
}

absl::StatusOr<Graph> DividedState::AddGathers(Graph graph) const {
  if (!state_.divides_weights()) return graph;
  GatherWeightsOptions options{.group = {.size = size_}, .weights = {}};
  for (const auto& [name, rows] : state_.divided_weights()) {
    const std::string columns = ColumnsName(name);
    options.weights[name] = {columns, state_.bindings().at(columns).type};
    options.keep = std::max(options.keep, state_.whole_type(name).bytes());
  }
  const Pass passes[] = {
      {"gather_weights", [&](const Graph& g) { return onnxtrain::GatherWeights(g, options); }},
      {"prefetch_gathers", [&](const Graph& g) { return PrefetchGathers(g, options.keep); }},
  };
  return RunPasses(std::move(graph), passes);
}

absl::Status DividedState::CheckWholeWeights() const {
  return state_.divides_weights() ? Invalid("`shard` full: no rank has whole weights") : absl::OkStatus();
}

absl::Status DividedState::ExchangeUpdated() {
  RETURN_IF_ERROR(state_.backend().Synchronize());
  const DType dtype = state_.dtype();
  for (const ShardUnit& unit : state_.shard_units()) {
    if (!unit.weight.empty()) continue;
    const BufferView view = state_.WeightsOf(unit);
    RETURN_IF_ERROR(ranks_->ExchangeSlices(
        "exchange of weights", unit.elements * DTypeSize(dtype), SliceBytes(unit, dtype, state_.shard()),
        [&](size_t offset, std::span<std::byte> bytes) { return view.buffer->Read(view.offset + offset, bytes); },
        [&](size_t offset, std::span<const std::byte> bytes) {
          return view.buffer->Write(view.offset + offset, bytes);
        }));
  }
  return absl::OkStatus();
}

// Gathers the slices of a unit, which each rank holds at `own`, in `whole` on rank 0.
absl::Status DividedState::GatherUnit(const char* what, const ShardUnit& unit, DType dtype, const BufferView& own,
                                      const BufferView& whole) {
  const bool keeps = ranks_->rank() == 0;
  const size_t slice = SliceBytes(unit, dtype, state_.shard()), first = slice * ranks_->rank();
  const auto write = [&](size_t offset, std::span<const std::byte> bytes) {
    return keeps ? whole.buffer->Write(whole.offset + offset, bytes) : absl::OkStatus();
  };
  const auto read = [&](size_t offset, std::span<std::byte> bytes) {
    RETURN_IF_ERROR(own.buffer->Read(own.offset + offset - first, bytes));
    return write(offset, bytes);
  };
  return ranks_->ExchangeSlices(what, unit.elements * DTypeSize(dtype), slice, read, write);
}

// Sends the moments of a rank, which are parts of weights in whole blocks, to rank 0.
absl::Status DividedState::GatherBlocks(const char* what, int rank) {
  const bool keeps = ranks_->rank() == 0, owns = ranks_->rank() == rank;
  for (const TrainingState::MomentPart& part : state_.ListMomentParts({rank, size_})) {
    HostTensor value(part.type);
    if (owns) {
      ASSIGN_OR_RETURN(value, ReadRegion(state_.bindings().at(part.name)));
    }
    if (owns && !keeps) RETURN_IF_ERROR(ranks_->ranks().StartSend(what, 0, value.bytes())->Wait());
    if (keeps && !owns) RETURN_IF_ERROR(ranks_->ranks().StartReceive(what, rank, value.mutable_bytes())->Wait());
    if (keeps) RETURN_IF_ERROR(WriteRegion(state_.gathered(part), value));
  }
  return absl::OkStatus();
}

absl::Status DividedState::GatherMoments() {
  constexpr char kWhat[] = "exchange of moments";
  const bool keeps = ranks_->rank() == 0;
  RETURN_IF_ERROR(ranks_->Agree(kWhat, keeps ? state_.AllocateGathered(options_.optimizer) : absl::OkStatus()));
  for (int rank = 0; state_.divides_blocks() && rank < size_; ++rank) RETURN_IF_ERROR(GatherBlocks(kWhat, rank));
  for (const TrainingState::DividedMoment& moment : state_.divided_moments()) {
    const BufferView whole = keeps ? state_.gathered(moment) : BufferView();
    RETURN_IF_ERROR(GatherUnit(kWhat, moment.unit, moment.slice.type.dtype, moment.slice.view, whole));
  }
  return absl::OkStatus();
}

absl::Status DividedState::GatherWeights() {
  if (!state_.divides_weights()) return absl::OkStatus();
  constexpr char kWhat[] = "gathering of weights";
  const bool keeps = ranks_->rank() == 0;
  RETURN_IF_ERROR(
      ranks_->Agree(kWhat, keeps ? state_.AllocateGatheredWeights(ranks_->scratch_folder()) : absl::OkStatus()));
  for (const ShardUnit& unit : state_.shard_units()) {
    if (unit.weight.empty()) continue;
    const BufferView whole = keeps ? state_.gathered_row(unit) : BufferView();
    RETURN_IF_ERROR(GatherUnit(kWhat, unit, state_.dtype(), state_.OwnSlice(unit).view, whole));
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
