#include "frontend/data/load/loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/load/sample_order.h"
#include "frontend/data/transform/convert.h"

namespace onnxtrain {
namespace {

// Maps batch number t to its epoch and samples: a pure function of the options, so any thread may make any batch.
class BatchSchedule {
 public:
  // `tokens`: division of epochs into batches; null: equal batches.
  BatchSchedule(int64_t samples, const LoaderOptions& options, const TokenBatches* tokens);

  struct Place {
    int64_t epoch, batch, begin, end;  // batch: index in the epoch; [begin, end): samples of equal batches
  };
  Place At(int64_t t) const;
  bool Has(int64_t t) const;
  bool empty() const { return each_ == 0; }
  bool begins_within_epoch() const { return first_ >= 0; }

 private:
  int64_t CountBatches(int64_t samples) const;

  int64_t samples_;
  LoaderOptions options_;
  int64_t first_, each_;  // batches of the first epoch, from its start position, and of each other epoch
};

// The order of samples in an epoch, and its batches if they are not equal.
struct Epoch {
  int64_t number = 0;
  std::vector<int64_t> order;
  std::vector<TokenBatches::Cut> cuts;

  TokenBatches::Cut At(const BatchSchedule::Place& place) const {
    return cuts.empty() ? TokenBatches::Cut{place.begin, place.end, 0} : cuts[place.batch];
  }
};

// Caches the two epochs that workers may need at a time. Thread-safe.
class Epochs {
 public:
  // `data` and `tokens`, which may be null, must outlive this object.
  Epochs(const Dataset& data, const LoaderOptions& options, const TokenBatches* tokens)
      : data_(data), options_(options), tokens_(tokens) {}

  std::shared_ptr<const Epoch> Get(int64_t number);

 private:
  Epoch Make(int64_t number) const;

  const Dataset& data_;
  LoaderOptions options_;
  const TokenBatches* tokens_;
  std::mutex mutex_;
  std::shared_ptr<const Epoch> epochs_[2];
};

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

constexpr int64_t kBatches = 16;  // minimum of batches in a measuring window
constexpr double kSeconds = 0.5;  // minimum duration of a window
constexpr double kWaits = 0.05;   // share of waiting time above which a thread is added
constexpr double kGain = 1.05;    // factor of batches/s that a thread must gain to stay

}  // namespace

void WorkerCountTuner::Begin(double now, double waited) {
  begun_ = true;
  batches_ = 0;
  begin_ = now;
  waited_ = waited;
}

int WorkerCountTuner::Observe(double now, double waited) {
  if (!searching_) return workers_;
  if (!begun_) Begin(now, waited);
  const double seconds = now - begin_;
  if (batches_++ < kBatches || seconds < kSeconds) return workers_;
  const double rate = static_cast<double>(batches_) / seconds, waits = (waited - waited_) / seconds;
  if (added_ && rate < kGain * rate_) {
    --workers_;
    searching_ = false;
    return workers_;
  }
  added_ = waits > kWaits && workers_ < max_workers_;
  workers_ += added_ ? 1 : 0;
  searching_ = workers_ < max_workers_ || added_;
  rate_ = rate;
  Begin(now, waited);
  return workers_;
}

namespace {

// The memory of one batch, reused for later batches.
struct BatchBuffer {
  Batch batch;
  std::vector<std::vector<HostTensor>> tensors;  // views of the memory, one vector per entry of BatchFiller::extents_
  std::vector<std::shared_ptr<const HostTensor>> memory;  // one allocation per feed
  std::vector<HostTensor> shortened;                      // tensors of a batch with variable length
  std::vector<std::vector<HostTensor>> parts;             // tensors by picture size, if pictures keep their sizes
  std::vector<std::byte> scratch;
};

// Fills buffers with batches. Thread-safe.
class BatchFiller {
 public:
  BatchFiller(std::shared_ptr<const Dataset> data, std::vector<FeedWriter> writers, const LoaderOptions& options,
              std::unique_ptr<const TokenBatches> tokens)
      : data_(std::move(data)),
        writers_(std::move(writers)),
        pass_{.augment = options.augment, .seed = options.seed, .stop = &stopping_},
        mix_(options.augment ? options.mix : MixOptions()),
        tokens_(std::move(tokens)),
        schedule_(data_->size(), options, tokens_.get()),
        epochs_(*data_, options, tokens_.get()),
        keep_order_(options.keep_order),
        exact_lengths_(options.exact_lengths) {
    const int64_t samples = data_->size(), full = std::min(options.batch_size, samples);
    if (tokens_ != nullptr) extents_ = {tokens_->max_samples()};
    for (int64_t extent : {full, samples % full, (samples - options.first_sample) % full}) {
      const bool known = std::ranges::find(extents_, extent) != extents_.end();
      if (extent > 0 && !known && tokens_ == nullptr) extents_.push_back(extent);
    }
  }

  const BatchSchedule& schedule() const { return schedule_; }
  // Makes reads that wait for samples fail.
  void Stop() { stopping_ = true; }

  absl::Status Fill(int64_t t, int worker, BatchBuffer* buffer) {
    const BatchSchedule::Place place = schedule_.At(t);
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
      const auto memory = std::make_shared<const HostTensor>(has_sizes_ ? PartsMemory(writer) : WidestType(writer));
      buffer->memory.push_back(memory);
      for (size_t i = 0; i < extents_.size() && tokens_ == nullptr && !has_sizes_; ++i)
        tensors[i].emplace_back(BatchType(writer, extents_[i]), memory, memory->bytes().data());
    }
    buffer->batch.samples.reserve(extents_.front());
    buffer->tensors = std::move(tensors);
  }

  // Returns the type of a buffer that holds all samples of a batch in groups by size, each aligned to kPartAlignment.
  Type PartsMemory(const FeedWriter& writer) const {
    const auto bytes = static_cast<int64_t>(writer.sample().bytes());
    return {DType::kUInt8, {extents_.front() * (bytes + kPartAlignment)}};
  }

  static Type BatchType(const FeedWriter& writer, int64_t samples) {
    Type batch = writer.sample();
    batch.shape.insert(batch.shape.begin(), samples);
    return batch;
  }

  // Returns the largest batch tensor of a feed.
  Type WidestType(const FeedWriter& writer) const {
    if (tokens_ == nullptr || !writer.variable()) return BatchType(writer, extents_.front());
    const int64_t longest = std::max<int64_t>(1, writer.sample().shape[writer.length_axis()]);
    const int64_t inner = writer.sample().elements() / longest;
    return {writer.sample().dtype, {tokens_->max_tokens() * inner}};
  }

  absl::Status Fill(const BatchSchedule::Place& place, BatchBuffer* buffer) {
    Batch& batch = buffer->batch;
    batch.epoch = place.epoch;
    const auto epoch = epochs_.Get(place.epoch);
    const TokenBatches::Cut cut = epoch->At(place);
    batch.samples.assign(epoch->order.begin() + cut.begin, epoch->order.begin() + cut.end);
    ReadPass pass = pass_;
    pass.epoch = place.epoch;
    if (has_sizes_) return FillParts(pass, buffer);
    std::vector<HostTensor>& tensors = ShapeTensors(cut, buffer);
    batch.tensors = tensors;
    RETURN_IF_ERROR(FillTensors(pass, batch.samples, tensors, &buffer->scratch));
    if (mix_.on()) Mix(pass, batch.samples, tensors);
    return absl::OkStatus();
  }

  absl::Status FillTensors(const ReadPass& pass, std::span<const int64_t> samples, std::vector<HostTensor>& tensors,
                           std::vector<std::byte>* scratch) const {
    for (size_t i = 0; i < writers_.size(); ++i) {
      std::span<std::byte> rows = tensors[i].mutable_bytes();
      const size_t row = rows.size() / samples.size();
      for (const int64_t sample : samples) {
        RETURN_IF_ERROR(writers_[i].Write(*data_, sample, rows.first(row), scratch, pass));
        rows = rows.subspan(row);
      }
    }
    return absl::OkStatus();
  }

  // Brings pictures of equal padded size together, keeping their order otherwise.
  void SortBySize(std::vector<int64_t>* samples) const {
    std::ranges::stable_sort(*samples, {}, [&](int64_t sample) {
      const PictureExtents e = data_->Extents(sample);
      return std::pair(e.padded_height, e.padded_width);
    });
  }

  absl::Status FillParts(const ReadPass& pass, BatchBuffer* buffer) {
    std::vector<int64_t>& samples = buffer->batch.samples;
    if (!keep_order_) SortBySize(&samples);
    buffer->parts.clear();
    std::vector<size_t> used(writers_.size());  // bytes used of each feed's memory
    for (std::span<const int64_t> rest = samples; !rest.empty();) {
      const PictureExtents size = data_->Extents(rest.front());
      const auto end = std::ranges::find_if_not(rest, [&](int64_t s) { return data_->Extents(s).SamePadded(size); });
      const auto part = rest.first(end - rest.begin());
      buffer->parts.push_back(PlacePart(*buffer, size, std::ssize(part), &used));
      RETURN_IF_ERROR(FillTensors(pass, part, buffer->parts.back(), &buffer->scratch));
      rest = rest.subspan(part.size());
    }
    buffer->batch.tensors = buffer->parts[0];
    buffer->batch.further = std::span(buffer->parts).subspan(1);
    return absl::OkStatus();
  }

  std::vector<HostTensor> PlacePart(const BatchBuffer& buffer, const PictureExtents& size, int64_t count,
                                    std::vector<size_t>* used) const {
    std::vector<HostTensor> tensors;
    for (size_t i = 0; i < writers_.size(); ++i) {
      Type type = writers_[i].PaddedSample(size);
      type.shape.insert(type.shape.begin(), count);
      tensors.emplace_back(type, buffer.memory[i], buffer.memory[i]->bytes().data() + (*used)[i]);
      (*used)[i] += (type.bytes() + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
    }
    return tensors;
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

  // Returns views of the buffer's memory with the shapes of a batch.
  std::vector<HostTensor>& ShapeTensors(const TokenBatches::Cut& cut, BatchBuffer* buffer) const {
    const int64_t samples = cut.end - cut.begin;
    if (!has_variable_) return buffer->tensors[std::ranges::find(extents_, samples) - extents_.begin()];
    const int64_t longest = cut.length > 0 ? cut.length : FindLongest(buffer->batch.samples);
    buffer->shortened.clear();
    for (size_t i = 0; i < writers_.size(); ++i) {
      Type type = BatchType(writers_[i], samples);
      int64_t& extent = type.shape[writers_[i].length_axis() + 1];
      if (writers_[i].variable()) extent = exact_lengths_ ? longest : RoundUpLength(longest, extent);
      buffer->shortened.emplace_back(type, buffer->memory[i], buffer->memory[i]->bytes().data());
    }
    return buffer->shortened;
  }

  std::shared_ptr<const Dataset> data_;
  std::vector<FeedWriter> writers_;
  std::atomic<bool> stopping_ = false;
  ReadPass pass_;  // the pass of epoch 0
  MixOptions mix_;
  std::unique_ptr<const TokenBatches> tokens_;  // null: equal batches
  BatchSchedule schedule_;
  Epochs epochs_;
  static constexpr int64_t kPartAlignment = 64;
  bool keep_order_, exact_lengths_;
  bool has_variable_ = std::ranges::any_of(writers_, &FeedWriter::variable);
  bool has_sizes_ = std::ranges::any_of(writers_, &FeedWriter::sized);
  std::vector<int64_t> extents_;  // distinct batch sizes, largest first
};

class LoaderImpl : public Loader {
 public:
  LoaderImpl(std::unique_ptr<BatchFiller> filler, const LoaderOptions& options)
      : filler_(std::move(filler)),
        prefetch_factor_(std::max(1, options.prefetch_factor)),
        tuner_(options.num_workers, options.max_workers) {
    const int most = std::max(options.num_workers, options.max_workers);
    tunes_ = options.num_workers > 0 && most > options.num_workers;
    ring_.resize(static_cast<size_t>(most) * prefetch_factor_);
    buffers_.resize(ring_.size() + 1);  // one more than the ring, since the consumer holds one
    for (BatchBuffer& buffer : buffers_) free_.push_back(&buffer);
    workers_.reserve(most);
    SetWorkers(options.num_workers);
  }

  ~LoaderImpl() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    filler_->Stop();
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
    if (tunes_) SetWorkers(tuner_.Observe(end, waited_));
    return &current_->batch;
  }

  double waited_seconds() const override { return waited_; }
  int workers() const override { return wanted_; }

 private:
  static double Now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  // Starts missing threads; threads with an index ≥ `wanted` sleep.
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
      // No more threads can be created: the existing ones do the work, or the consumer if there are none.
    }
  }

  struct Filled {
    BatchBuffer* buffer = nullptr;  // null: not yet filled
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

  // The next batch with room in the ring and a buffer for it; a null buffer means that the worker must exit.
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
  WorkerCountTuner tuner_;
  bool tunes_ = false;
  std::vector<BatchBuffer> buffers_;
  BatchBuffer* current_ = nullptr;  // held by the consumer
  std::mutex mutex_;
  std::condition_variable room_, ready_;
  std::vector<BatchBuffer*> free_;
  std::vector<Filled> ring_;        // filled buffers; batch t is at index t mod size
  int64_t next_ = 0, claimed_ = 0;  // batches delivered; batches claimed by workers
  int wanted_ = 0;                  // number of active threads; written by the consumer
  bool stop_ = false;
  std::vector<std::thread> workers_;  // declared last, since threads use all other members
};

absl::Status CheckOptions(int64_t samples, const LoaderOptions& o, const TokenBatches* tokens) {
  if (o.batch_size < 1 || o.batch_size > int64_t{1} << 40)
    return Invalid("batch size ", o.batch_size, " is not possible");
  if (o.num_workers < 0 || std::max(o.num_workers, o.max_workers) > 1024)
    return Invalid(o.num_workers, " loader threads are not possible");
  const BatchSchedule schedule(samples, o, tokens);
  if (o.first_epoch < 0 || o.first_sample < 0 || o.first_sample > samples || !schedule.begins_within_epoch()) {
    return Invalid("cannot begin at epoch ", o.first_epoch, ", sample ", o.first_sample, " of ", samples);
  }
  if (schedule.empty()) {
    return Invalid("no batch is left: ", samples, " samples, batch size ", o.batch_size,
                   o.drop_last ? ", and the short last batch is dropped" : "");
  }
  return absl::OkStatus();
}

// Returns the maximum length of variable feeds.
int64_t FindExtent(const std::vector<FeedSpec>& specs) {
  int64_t longest = 0;
  for (const FeedSpec& spec : specs) {
    if (spec.variable) longest = std::max(longest, spec.sample.shape[spec.length_axis]);
  }
  return longest;
}

std::unique_ptr<const TokenBatches> MakeTokenBatches(const Dataset& data, const std::vector<FeedSpec>& specs,
                                                     const LoaderOptions& options) {
  if (!options.tokens.on() || !HasVariableFeed(specs)) return nullptr;
  return std::make_unique<const TokenBatches>(data, options.tokens, FindExtent(specs), options.drop_last);
}

}  // namespace

bool HasVariableFeed(const std::vector<FeedSpec>& specs) { return std::ranges::any_of(specs, &FeedSpec::variable); }

int64_t CountBatches(const Dataset& data, const std::vector<FeedSpec>& specs, const LoaderOptions& options) {
  const int64_t size = data.size(), batch = options.batch_size;
  const auto tokens = MakeTokenBatches(data, specs, options);
  const int64_t count = tokens != nullptr ? tokens->size() : (size + (options.drop_last ? 0 : batch - 1)) / batch;
  return std::max<int64_t>(1, count);
}

absl::StatusOr<std::unique_ptr<Loader>> Loader::Create(std::shared_ptr<const Dataset> data,
                                                       const std::vector<FeedSpec>& specs,
                                                       const LoaderOptions& options) {
  auto tokens = MakeTokenBatches(*data, specs, options);
  RETURN_IF_ERROR(CheckOptions(data->size(), options, tokens.get()));
  std::vector<FeedWriter> writers;
  for (const FeedSpec& spec : specs) {
    Shape whole = spec.sample.shape;
    whole.push_back(options.batch_size);
    RETURN_IF_ERROR(CheckShape(whole));
    ASSIGN_OR_RETURN(FeedWriter writer, FeedWriter::Create(*data, spec));
    writers.push_back(std::move(writer));
  }
  auto filler = std::make_unique<BatchFiller>(std::move(data), std::move(writers), options, std::move(tokens));
  return std::make_unique<LoaderImpl>(std::move(filler), options);
}

}  // namespace onnxtrain
