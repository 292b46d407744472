#include "frontend/data/loader.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <optional>
#include <thread>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/convert.h"
#include "frontend/data/order.h"

namespace onnxtrain {
namespace {

using Made = absl::StatusOr<std::unique_ptr<Batch>>;

// Which samples batch number t holds: a pure function of the options, so it does not matter who makes it.
class Schedule {
 public:
  Schedule(int64_t samples, const LoaderOptions& options) : samples_(samples), options_(options) {
    first_ = Batches(samples - options.first_sample);
    each_ = Batches(samples);
  }

  struct Place {
    int64_t epoch, begin, end;
  };
  Place At(int64_t t) const {
    const bool resumed = t < first_;
    const int64_t after = t - first_;
    const int64_t epoch = options_.first_epoch + (resumed ? 0 : 1 + after / each_);
    const int64_t begin =
        resumed ? options_.first_sample + t * options_.batch_size : after % each_ * options_.batch_size;
    return {epoch, begin, std::min(begin + options_.batch_size, samples_)};
  }
  bool Has(int64_t t) const {
    if (options_.epochs < 0) return true;
    return options_.epochs > 0 && t < first_ + (options_.epochs - 1) * each_;
  }
  bool empty() const { return each_ == 0; }

 private:
  int64_t Batches(int64_t samples) const {
    return (samples + (options_.drop_last ? 0 : options_.batch_size - 1)) / options_.batch_size;
  }

  int64_t samples_;
  LoaderOptions options_;
  int64_t first_, each_;
};

// The orders of the epochs that workers are in: two at most matter at a time.
class Orders {
 public:
  Orders(int64_t samples, const LoaderOptions& options) : samples_(samples), options_(options) {}

  std::shared_ptr<const std::vector<int64_t>> Get(int64_t epoch) {
    std::lock_guard lock(mutex_);
    Entry& entry = entries_[epoch % 2];
    if (entry.order == nullptr || entry.epoch != epoch) {
      entry = {epoch, std::make_shared<const std::vector<int64_t>>(
                          EpochOrder(samples_, options_.seed, epoch, options_.shuffle))};
    }
    return entry.order;
  }

 private:
  struct Entry {
    int64_t epoch = 0;
    std::shared_ptr<const std::vector<int64_t>> order;
  };
  int64_t samples_;
  LoaderOptions options_;
  std::mutex mutex_;
  Entry entries_[2];
};

// Makes any batch, from any thread.
class BatchMaker {
 public:
  BatchMaker(std::shared_ptr<const Dataset> data, std::vector<FeedWriter> writers, const LoaderOptions& options)
      : data_(std::move(data)),
        writers_(std::move(writers)),
        schedule_(data_->size(), options),
        orders_(data_->size(), options) {}

  const Schedule& schedule() const { return schedule_; }

  Made Make(int64_t t) {
    try {
      return Fill(schedule_.At(t));
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(StrCat("out of memory for a batch of ", schedule_.At(t).end - schedule_.At(t).begin, " samples"));
    }
  }

 private:
  Made Fill(const Schedule::Place& place) {
    auto batch = std::make_unique<Batch>();
    batch->epoch = place.epoch;
    const auto order = orders_.Get(place.epoch);
    batch->samples.assign(order->begin() + place.begin, order->begin() + place.end);
    std::vector<std::byte> scratch;
    for (const FeedWriter& writer : writers_) {
      ASSIGN_OR_RETURN(HostTensor tensor, Collate(writer, batch->samples, &scratch));
      batch->tensors.push_back(std::move(tensor));
    }
    return batch;
  }

  absl::StatusOr<HostTensor> Collate(const FeedWriter& writer, const std::vector<int64_t>& samples,
                                     std::vector<std::byte>* scratch) const {
    Type type = writer.sample();
    type.shape.insert(type.shape.begin(), static_cast<int64_t>(samples.size()));
    HostTensor tensor(type);
    std::byte* out = tensor.mutable_bytes().data();
    for (int64_t i : samples) {
      RETURN_IF_ERROR(writer.Write(*data_, i, out, scratch));
      out += writer.sample().bytes();
    }
    return tensor;
  }

  std::shared_ptr<const Dataset> data_;
  std::vector<FeedWriter> writers_;
  Schedule schedule_;
  Orders orders_;
};

class LoaderImpl : public Loader {
 public:
  LoaderImpl(std::unique_ptr<BatchMaker> maker, const LoaderOptions& options) : maker_(std::move(maker)) {
    if (options.num_workers <= 0) return;
    ring_.resize(size_t{static_cast<unsigned>(options.num_workers)} * std::max(1, options.prefetch_factor));
    for (int w = 0; w < options.num_workers; ++w) workers_.emplace_back([this] { Work(); });
  }

  ~LoaderImpl() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    room_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  Made Next() override {
    if (!failed_.ok()) return failed_;
    if (!maker_->schedule().Has(next_)) return nullptr;
    const auto start = std::chrono::steady_clock::now();
    Made made = workers_.empty() ? maker_->Make(next_++) : Take();
    waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    failed_ = made.status();
    return made;
  }

  double waited_seconds() const override { return waited_; }

 private:
  Made Take() {
    std::unique_lock lock(mutex_);
    std::optional<Made>& slot = ring_[next_ % ring_.size()];
    ready_.wait(lock, [&] { return slot.has_value(); });
    Made made = *std::move(slot);
    slot.reset();
    ++next_;
    lock.unlock();
    room_.notify_all();
    return made;
  }

  // Takes the number of the next batch that has room in the ring; none when it is time to leave.
  std::optional<int64_t> Claim() {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return stop_ || claimed_ < next_ + static_cast<int64_t>(ring_.size()); });
    if (stop_ || !maker_->schedule().Has(claimed_)) return std::nullopt;
    return claimed_++;
  }

  void Work() {
    while (const std::optional<int64_t> t = Claim()) {
      Made made = maker_->Make(*t);
      {
        std::lock_guard lock(mutex_);
        ring_[*t % ring_.size()].emplace(std::move(made));
      }
      ready_.notify_one();
    }
  }

  std::unique_ptr<BatchMaker> maker_;
  absl::Status failed_;
  double waited_ = 0;
  std::mutex mutex_;
  std::condition_variable room_, ready_;
  std::vector<std::optional<Made>> ring_;
  int64_t next_ = 0, claimed_ = 0;  // next_: batches delivered
  bool stop_ = false;
  std::vector<std::thread> workers_;  // last: they use all of the above
};

absl::Status CheckOptions(int64_t samples, const LoaderOptions& o) {
  if (o.batch_size < 1 || o.batch_size > int64_t{1} << 40)
    return Invalid("batch size ", o.batch_size, " is not possible");
  if (o.num_workers < 0 || o.num_workers > 1024) return Invalid(o.num_workers, " loader threads are not possible");
  if (o.first_epoch < 0 || o.first_sample < 0 || o.first_sample > samples) {
    return Invalid("cannot begin at epoch ", o.first_epoch, ", sample ", o.first_sample, " of ", samples);
  }
  if (Schedule(samples, o).empty()) {
    return Invalid("no batch is left: ", samples, " samples, batch size ", o.batch_size,
                   o.drop_last ? ", and the short last batch is dropped" : "");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Loader>> Loader::Create(std::shared_ptr<const Dataset> data, std::vector<FeedSpec> specs,
                                                       const LoaderOptions& options) {
  RETURN_IF_ERROR(CheckOptions(data->size(), options));
  std::vector<FeedWriter> writers;
  for (const FeedSpec& spec : specs) {
    Shape whole = spec.sample.shape;
    whole.push_back(options.batch_size);
    RETURN_IF_ERROR(CheckShape(whole));
    ASSIGN_OR_RETURN(FeedWriter writer, FeedWriter::Create(*data, spec));
    writers.push_back(std::move(writer));
  }
  auto maker = std::make_unique<BatchMaker>(std::move(data), std::move(writers), options);
  return std::make_unique<LoaderImpl>(std::move(maker), options);
}

}  // namespace onnxtrain
