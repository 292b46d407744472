#include "optim/step/micro_batches.h"

#include <algorithm>
#include <bit>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

int64_t CountNext(int64_t left, int64_t step, bool powers_of_two) {
  if (left >= step || !powers_of_two) return std::min(left, step);
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(left)));
}

}  // namespace

absl::StatusOr<int64_t> CountSamples(const GlobalBatch& global_batch, int64_t fixed_batch) {
  const int64_t samples = global_batch.samples();
  const auto is_divided = [&](const GlobalBatch& part) { return part.part_samples() % fixed_batch == 0; };
  const bool divided =
      fixed_batch == 0 || (is_divided(global_batch) && std::ranges::all_of(global_batch.further(), is_divided));
  if (!divided)
    return Invalid("the model is bound to a batch of ", fixed_batch, ", which does not divide ", samples, " samples",
                   global_batch.further().empty() ? "" : " by their sizes (`image_size` makes them one size)");
  if (samples < 0) return Invalid("the model takes no input with a batch axis: there are no samples to train on");
  if (samples == 0) return Invalid("a global batch without samples");
  return samples;
}

void CutMicroBatches(const GlobalBatch& global_batch, const MicroSize& size, bool powers_of_two,
                     std::vector<MicroBatch>* micros) {
  micros->clear();
  int64_t place = 0;
  const auto cut = [&](const GlobalBatch& part) {
    const int64_t samples = part.part_samples(), step = size(part);
    for (int64_t begin = 0, count; begin < samples; begin += count, place += count) {
      count = CountNext(samples - begin, step, powers_of_two);
      micros->push_back({&part, begin, count, place, std::ssize(*micros)});
    }
  };
  cut(global_batch);
  std::ranges::for_each(global_batch.further(), cut);
}

SampleRange ShareOfRank(int64_t samples, int64_t unit, int rank, int size) {
  const int64_t units = samples / unit;
  return {units * rank / size * unit, units * (rank + 1) / size * unit};
}

int64_t LargestShare(int64_t samples, int64_t unit, int size) { return (samples / unit + size - 1) / size * unit; }

int64_t CountMicros(const SampleRange& share, const std::vector<MicroBatch>& micros) {
  return std::ranges::count_if(micros, [&](const MicroBatch& m) {
    return std::max(share.begin, m.place) < std::min(share.end, m.place + m.count);
  });
}

void KeepShare(const SampleRange& share, std::vector<MicroBatch>* micros) {
  for (MicroBatch& m : *micros) {
    m.skipped = std::clamp<int64_t>(share.begin - m.place, 0, m.count);
    m.count = std::clamp<int64_t>(share.end - m.place, m.skipped, m.count) - m.skipped;
    m.begin += m.skipped;
    m.place += m.skipped;
  }
  std::erase_if(*micros, [](const MicroBatch& m) { return m.count == 0; });
}

}  // namespace onnxtrain
