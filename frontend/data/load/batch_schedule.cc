#include "frontend/data/load/batch_schedule.h"

#include "frontend/data/load/epoch_order.h"

namespace onnxtrain {

BatchSchedule::BatchSchedule(int64_t samples, const LoaderOptions& options, const TokenBatches* tokens)
    : samples_(samples), options_(options) {
  each_ = tokens != nullptr ? tokens->size() : CountBatches(samples);
  first_ = (tokens != nullptr ? each_ : CountBatches(samples - options.first_sample)) - options.first_batch;
}

BatchSchedule::Place BatchSchedule::At(int64_t t) const {
  t *= options_.batch_stride;
  const bool resumed = t < first_;
  const int64_t after = t - first_;
  const int64_t epoch = options_.first_epoch + (resumed ? 0 : 1 + after / each_);
  const int64_t batch = resumed ? options_.first_batch + t : after % each_;
  const int64_t begin = (resumed ? options_.first_sample : 0) + batch * options_.batch_size;
  return {epoch, batch, begin, std::min(begin + options_.batch_size, samples_)};
}

bool BatchSchedule::Has(int64_t t) const {
  if (options_.epochs < 0) return true;
  return options_.epochs > 0 && t * options_.batch_stride < first_ + (options_.epochs - 1) * each_;
}

int64_t BatchSchedule::CountBatches(int64_t samples) const {
  return (samples + (options_.drop_last ? 0 : options_.batch_size - 1)) / options_.batch_size;
}

std::shared_ptr<const Epoch> Epochs::Get(int64_t number) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<const Epoch>& epoch = epochs_[number % 2];
  if (epoch == nullptr || epoch->number != number) epoch = std::make_shared<const Epoch>(Make(number));
  return epoch;
}

Epoch Epochs::Make(int64_t number) const {
  Epoch epoch{.number = number, .order = EpochOrder(data_.size(), options_.seed, number, options_.shuffle)};
  const auto length = [this](int64_t i) { return data_.Length(i); };
  if (tokens_ != nullptr) {
    epoch.cuts = tokens_->CutEpoch(options_.seed, number, options_.shuffle, &epoch.order);
  } else if (options_.length_grouping) {
    GroupByLength(options_.batch_size, length, options_.seed, number, &epoch.order);
  }
  return epoch;
}

}  // namespace onnxtrain
