#include "frontend/data/loader.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/convert.h"
#include "frontend/data/epoch_order.h"
#include "frontend/data/worker_climber.h"

namespace onnxtrain {
namespace {

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
  Orders(const Dataset& data, const LoaderOptions& options) : data_(data), options_(options) {}

  std::shared_ptr<const std::vector<int64_t>> Get(int64_t epoch) {
    std::lock_guard lock(mutex_);
    Entry& entry = entries_[epoch % 2];
    if (entry.order == nullptr || entry.epoch != epoch) {
      entry = {epoch, std::make_shared<const std::vector<int64_t>>(Make(epoch))};
    }
    return entry.order;
  }

 private:
  struct Entry {
    int64_t epoch = 0;
    std::shared_ptr<const std::vector<int64_t>> order;
  };
  std::vector<int64_t> Make(int64_t epoch) const {
    std::vector<int64_t> order = EpochOrder(data_.size(), options_.seed, epoch, options_.shuffle);
    const auto length = [this](int64_t i) { return data_.Length(i); };
    if (options_.length_grouping) GroupByLength(options_.batch_size, length, options_.seed, epoch, &order);
    return order;
  }

  const Dataset& data_;
  LoaderOptions options_;
  std::mutex mutex_;
  Entry entries_[2];
};

// The memory of one batch, which serves one batch after another.
struct BatchBuffer {
  Batch batch;
  std::vector<std::vector<HostTensor>> tensors;           // by BatchFiller::extents: views of the same memory
  std::vector<std::shared_ptr<const HostTensor>> memory;  // by feed
  std::vector<HostTensor> shortened;                      // the tensors of a batch whose feeds are variable
  std::vector<std::byte> scratch;
};

// Fills buffers with any batch, from any thread.
class BatchFiller {
 public:
  BatchFiller(std::shared_ptr<const Dataset> data, std::vector<FeedWriter> writers, const LoaderOptions& options)
      : data_(std::move(data)),
        writers_(std::move(writers)),
        pass_{.augment = options.augment, .seed = options.seed},
        mix_(options.augment ? options.mix : MixOptions()),
        schedule_(data_->size(), options),
        orders_(*data_, options) {
    const int64_t samples = data_->size(), full = std::min(options.batch_size, samples);
    for (int64_t extent : {full, samples % full, (samples - options.first_sample) % full}) {
      if (extent > 0 && std::ranges::find(extents_, extent) == extents_.end()) extents_.push_back(extent);
    }
  }

  const Schedule& schedule() const { return schedule_; }

  absl::Status Fill(int64_t t, int worker, BatchBuffer* buffer) {
    const Schedule::Place place = schedule_.At(t);
    Batch& batch = buffer->batch;
    batch.worker = worker;
    batch.fill_begin = std::chrono::steady_clock::now();
    try {
      if (buffer->tensors.empty()) Allocate(buffer);
      RETURN_IF_ERROR(Fill(place, buffer));
      batch.fill_end = std::chrono::steady_clock::now();
      return absl::OkStatus();
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(StrCat("out of memory for a batch of ", place.end - place.begin, " samples"));
    }
  }

 private:
  void Allocate(BatchBuffer* buffer) const {
    std::vector<std::vector<HostTensor>> tensors(extents_.size());
    for (const FeedWriter& writer : writers_) {
      const auto type = [&](int64_t extent) {
        Type batch = writer.sample();
        batch.shape.insert(batch.shape.begin(), extent);
        return batch;
      };
      const auto memory = std::make_shared<const HostTensor>(type(extents_.front()));
      buffer->memory.push_back(memory);
      for (size_t i = 0; i < extents_.size(); ++i)
        tensors[i].emplace_back(type(extents_[i]), memory, memory->bytes().data());
    }
    buffer->batch.samples.reserve(extents_.front());
    buffer->tensors = std::move(tensors);
  }

  absl::Status Fill(const Schedule::Place& place, BatchBuffer* buffer) {
    Batch& batch = buffer->batch;
    batch.epoch = place.epoch;
    const auto order = orders_.Get(place.epoch);
    batch.samples.assign(order->begin() + place.begin, order->begin() + place.end);
    const size_t extent = std::ranges::find(extents_, place.end - place.begin) - extents_.begin();
    std::vector<HostTensor>& tensors =
        has_variable_ ? Shorten(buffer->tensors[extent], FindLongest(batch.samples), buffer) : buffer->tensors[extent];
    batch.tensors = tensors;
    ReadPass pass = pass_;
    pass.epoch = place.epoch;
    for (size_t i = 0; i < writers_.size(); ++i) {
      std::span<std::byte> rows = tensors[i].mutable_bytes();
      const size_t row = rows.size() / batch.samples.size();
      for (int64_t sample : batch.samples) {
        RETURN_IF_ERROR(writers_[i].Write(*data_, sample, rows.first(row), &buffer->scratch, pass));
        rows = rows.subspan(row);
      }
    }
    if (mix_.on()) Mix(pass, batch.samples, tensors);
    return absl::OkStatus();
  }

  void Mix(const ReadPass& pass, const std::vector<int64_t>& samples, std::vector<HostTensor>& tensors) const {
    std::vector<MixedFeed> feeds;
    for (size_t i = 0; i < writers_.size(); ++i)
      feeds.push_back({writers_[i].mixing(), tensors[i].dtype(), tensors[i].mutable_bytes()});
    MixBatch(mix_, pass, samples, feeds);
  }

  int64_t FindLongest(const std::vector<int64_t>& samples) const {
    int64_t longest = 0;
    for (const int64_t sample : samples) longest = std::max(longest, data_->Length(sample));
    return longest;
  }

  // Returns views of the tensors with variable feeds cut to the length that a batch is padded to.
  std::vector<HostTensor>& Shorten(const std::vector<HostTensor>& tensors, int64_t longest, BatchBuffer* buffer) const {
    buffer->shortened.clear();
    for (size_t i = 0; i < writers_.size(); ++i) {
      Type type = tensors[i].type();
      if (writers_[i].variable()) type.shape[1] = RoundUpLength(longest, type.shape[1]);
      buffer->shortened.emplace_back(type, buffer->memory[i], buffer->memory[i]->bytes().data());
    }
    return buffer->shortened;
  }

  std::shared_ptr<const Dataset> data_;
  std::vector<FeedWriter> writers_;
  ReadPass pass_;  // of epoch 0
  MixOptions mix_;
  Schedule schedule_;
  Orders orders_;
  bool has_variable_ = std::ranges::any_of(writers_, &FeedWriter::variable);
  std::vector<int64_t> extents_;  // the sizes that batches have, the largest first
};

class LoaderImpl : public Loader {
 public:
  LoaderImpl(std::unique_ptr<BatchFiller> filler, const LoaderOptions& options)
      : filler_(std::move(filler)),
        prefetch_factor_(std::max(1, options.prefetch_factor)),
        climber_(options.num_workers, options.max_workers) {
    const int most = std::max(options.num_workers, options.max_workers);
    climbs_ = options.num_workers > 0 && most > options.num_workers;
    ring_.resize(static_cast<size_t>(most) * prefetch_factor_);
    buffers_.resize(ring_.size() + 1);  // one is the consumer's
    for (BatchBuffer& buffer : buffers_) free_.push_back(&buffer);
    workers_.reserve(most);
    SetWorkers(options.num_workers);
  }

  ~LoaderImpl() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    room_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  absl::StatusOr<const Batch*> Next() override {
    if (!failed_.ok()) return failed_;
    if (!filler_->schedule().Has(next_)) return nullptr;
    const double start = Now();
    failed_ = workers_.empty() ? FillHere() : Take();
    const double end = Now();
    waited_ += end - start;
    if (!failed_.ok()) return failed_;
    if (climbs_) SetWorkers(climber_.Observe(end, waited_));
    return &current_->batch;
  }

  double waited_seconds() const override { return waited_; }
  int workers() const override { return wanted_; }

 private:
  static double Now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  // Starts threads that are missing; those above the number rest.
  void SetWorkers(int wanted) {
    if (wanted == wanted_) return;
    {
      std::lock_guard lock(mutex_);
      wanted_ = wanted;
    }
    room_.notify_all();
    try {
      for (int w = static_cast<int>(workers_.size()); w < wanted; ++w) workers_.emplace_back([this, w] { Work(w); });
    } catch (const std::system_error&) {
      // The system gives no more threads: those that are there do the work, or the consumer where there are none.
    }
  }

  struct Filled {
    BatchBuffer* buffer = nullptr;  // null: not filled yet
    absl::Status status;
  };

  absl::Status FillHere() {
    current_ = free_.front();
    return filler_->Fill(next_++, 0, current_);
  }

  absl::Status Take() {
    std::unique_lock lock(mutex_);
    if (current_ != nullptr) free_.push_back(std::exchange(current_, nullptr));
    Filled& slot = ring_[next_ % ring_.size()];
    ready_.wait(lock, [&] { return slot.buffer != nullptr; });
    current_ = std::exchange(slot.buffer, nullptr);
    absl::Status status = std::move(slot.status);
    ++next_;
    lock.unlock();
    room_.notify_all();
    return status;
  }

  // The number of the next batch that has room in the ring, and a buffer for it; no buffer when it is time to leave.
  struct Claimed {
    int64_t number = 0;
    BatchBuffer* buffer = nullptr;
  };
  Claimed Claim(int worker) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] {
      const int64_t ahead = int64_t{wanted_} * prefetch_factor_;
      return stop_ || (worker < wanted_ && claimed_ < next_ + ahead);
    });
    if (stop_ || !filler_->schedule().Has(claimed_)) return {};
    BatchBuffer* buffer = free_.back();
    free_.pop_back();
    return {claimed_++, buffer};
  }

  void Work(int worker) {
    while (true) {
      const auto [number, buffer] = Claim(worker);
      if (buffer == nullptr) return;
      absl::Status status = filler_->Fill(number, worker, buffer);
      {
        std::lock_guard lock(mutex_);
        ring_[number % ring_.size()] = {buffer, std::move(status)};
      }
      ready_.notify_one();
    }
  }

  std::unique_ptr<BatchFiller> filler_;
  absl::Status failed_;
  double waited_ = 0;
  int prefetch_factor_;
  WorkerClimber climber_;
  bool climbs_ = false;
  std::vector<BatchBuffer> buffers_;
  BatchBuffer* current_ = nullptr;  // the consumer's
  std::mutex mutex_;
  std::condition_variable room_, ready_;
  std::vector<BatchBuffer*> free_;
  std::vector<Filled> ring_;        // filled buffers: batch t is at t modulo its size
  int64_t next_ = 0, claimed_ = 0;  // next_: batches delivered
  int wanted_ = 0;                  // threads that work; written by the consumer
  bool stop_ = false;
  std::vector<std::thread> workers_;  // last: they use all of the above
};

absl::Status CheckOptions(int64_t samples, const LoaderOptions& o) {
  if (o.batch_size < 1 || o.batch_size > int64_t{1} << 40)
    return Invalid("batch size ", o.batch_size, " is not possible");
  if (o.num_workers < 0 || std::max(o.num_workers, o.max_workers) > 1024)
    return Invalid(o.num_workers, " loader threads are not possible");
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

int64_t RoundUpLength(int64_t length, int64_t longest) {
  int64_t step = 8;
  while (step * 16 < length) step *= 2;
  return std::min((std::max<int64_t>(length, 1) + step - 1) / step * step, longest);
}

absl::StatusOr<std::unique_ptr<Loader>> Loader::Create(std::shared_ptr<const Dataset> data,
                                                       const std::vector<FeedSpec>& specs,
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
  auto filler = std::make_unique<BatchFiller>(std::move(data), std::move(writers), options);
  return std::make_unique<LoaderImpl>(std::move(filler), options);
}

}  // namespace onnxtrain
