// Batches for the training loop: read, converted and normalized by worker threads ahead of time, delivered in order in
// buffers that are reused.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/load/batch_mix.h"
#include "frontend/data/load/sample_order.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// How many threads of a loader are worth their cores.

// Adds one thread after the other as long as the consumer waits for batches, and takes the last one back where it did
// not make batches come faster: the cores then belong to the consumer.
class WorkerCountTuner {
 public:
  WorkerCountTuner(int workers, int max_workers) : workers_(workers), max_workers_(max_workers) {}

  // Called with each batch: the time of day, and how long the consumer has waited so far, in seconds. Returns the
  // number of threads from now on.
  int Observe(double now, double waited);

 private:
  void Begin(double now, double waited);

  int workers_, max_workers_;
  int64_t batches_ = 0;  // of this window; the first one of all is not counted, in which threads start
  bool begun_ = false, climbing_ = true, added_ = false;
  double begin_ = 0, waited_ = 0, rate_ = 0;  // of this window; batches/s of the last one
};

// Values that an input may have.
struct ValueRange {
  double min = 0, max = 0;             // inclusive
  std::string what;                    // "the 100 rows of Gather 'embedding' (negative ones count from the end)"
  std::optional<double> besides = {};  // one value more
};

// How one column becomes one batch tensor.
struct FeedSpec {
  std::string feed;          // the graph input's name, or "label"
  std::vector<int> columns;  // data set columns; several are concatenated along one new last axis
  Type sample;               // element type and shape (without the batch axis) that the graph wants
  // The column is variable and the graph takes any length: batches are as long as their longest sample, rounded up by
  // RoundUpLength, and at most as long as `sample`.
  bool variable = false;
  // ≥ 0: as Column::height_axis, but of `sample`. Batches hold samples of equal extents together (Batch::further).
  int height_axis = -1;
  double padding = 0;  // what fills the padded extents, once pixels are normalized
  // y = (x * scale - mean[c]) / std[c]; c is the channel axis of `sample` (or 0 for one value). Applied to image
  // columns (Column::image) alone: other numbers come as they are.
  double scale = 1;
  std::vector<double> mean, std;
  int channel_axis = 0;
  // y = (x - shift[j]) / divisor[j], j being the element of `sample`, or its column where there are as many numbers as
  // columns, or 0 where there is one number. Empty: y = x.
  std::vector<double> shift, divisor;
  // Values that end the run, with row and value, before they reach a batch.
  bool allow_nan = false;           // NaN marks a missing value, which the model fills in
  std::optional<ValueRange> range;  // of integers, or of labels
  // Sequences of labels that end the run, where they cannot be looked at before it: null, or a check of sample i.
  std::function<absl::Status(const Dataset& data, int64_t i)> check;
  // The column holds class indices and the graph wants a share for each class: 1 for the index, 0 for the others.
  bool one_hot = false;
  Mixing mixing = Mixing::kNone;  // by LoaderOptions::mix
};

struct Batch {
  int64_t epoch = 0;
  std::vector<int64_t> samples;         // indices into the data set
  std::span<const HostTensor> tensors;  // one per FeedSpec, [batch, sample…], 64-byte aligned
  // The samples of other sizes (FeedSpec::height_axis): tensors as above, for each size. `samples` has those of
  // `tensors` first, then these.
  std::span<const std::vector<HostTensor>> further;
  int worker = 0;  // the thread that has filled it, from 0 on, and when
  std::chrono::steady_clock::time_point fill_begin, fill_end;
};

struct LoaderOptions {
  int64_t batch_size = 1;
  bool drop_last = false;
  bool shuffle = false;
  uint64_t seed = 42;
  bool augment = false;                       // as ReadPass has it, with the same seed
  MixOptions mix = {};                        // with augment: mixes the samples of a batch
  bool length_grouping = false;               // with shuffle: as GroupByLength (epoch_order.h)
  bool keep_order = false;                    // within a batch: samples of one size are not brought together
  TokenBudget tokens = {};                    // on: in place of batch_size and length_grouping, as TokenBatches cuts
  int num_workers = 1;                        // threads; 0: read in Next()
  int max_workers = 0;                        // above num_workers: as many as WorkerCountTuner chooses
  int prefetch_factor = 2;                    // batches ahead per worker
  int64_t first_epoch = 0, first_sample = 0;  // where to begin: (epoch, samples already consumed in it)
  int64_t first_batch = 0;                    // and batches, behind these samples
  int64_t batch_stride = 1;                   // delivers the first batch of as many, from `first_batch` on
  int64_t epochs = 1;                         // how many epochs to deliver; < 0: for ever
};

class Loader {
 public:
  // The data set's columns must fit the specs (same number of elements per sample; element types are converted, floats
  // to integers only where they are integers). Fails where not a single batch would come: drop_last with too few
  // samples.
  static absl::StatusOr<std::unique_ptr<Loader>> Create(std::shared_ptr<const Dataset> data,
                                                        const std::vector<FeedSpec>& specs,
                                                        const LoaderOptions& options);
  virtual ~Loader() = default;  // stops and joins the workers
  // Returns the next batch in order, or null after the last. Waits if none is ready. One consumer thread. The loader
  // owns the batch and reuses its tensors' memory from the next call on; tensors that are still held when the loader is
  // destroyed stay as they are. Allocates nothing per batch once every buffer has been used (the greatest number of
  // workers · prefetch_factor + 1 of them). An error comes where its batch would have come, and again from then on.
  virtual absl::StatusOr<const Batch*> Next() = 0;
  // Seconds that Next has waited so far.
  virtual double waited_seconds() const = 0;
  // Threads that work now.
  virtual int workers() const = 0;
};

// Batches of an epoch; at least one. `specs` as Loader::Create takes them.
int64_t CountBatches(const Dataset& data, const std::vector<FeedSpec>& specs, const LoaderOptions& options);
// Does a feed have samples of different lengths?
bool HasVariableFeed(const std::vector<FeedSpec>& specs);

// Labels of `columns` that must be classes.
struct LabelCheck {
  std::vector<int> columns;
  int64_t classes = 0, ignore_index = -100;
};
// Checks one sample; the error names its row.
absl::Status CheckLabel(const Dataset& data, int64_t i, const LabelCheck& check);

// Checks that all values of a label column are integers (of whatever element type) and lie in [0, classes) or equal
// ignore_index; the error names the row.
absl::Status CheckLabels(const Dataset& data, int column, int64_t classes, int64_t ignore_index);

struct LabelRange {
  int64_t min = 0, max = 0;
};
// The least and the greatest label other than ignore_index. A value that is no integer is an error that names the row,
// or with `skip_bad` left out.
absl::StatusOr<LabelRange> ComputeLabelRange(const Dataset& data, int column, int64_t ignore_index,
                                             bool skip_bad = false);

}  // namespace onnxtrain
