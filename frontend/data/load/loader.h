// Makes batches for the training loop: worker threads read, convert and normalize samples ahead of time; batches come
// in order, in buffers that are reused.
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
#include "frontend/data/load/sample_order.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Chooses the number of worker threads. Adds one at a time while the consumer waits for batches, and removes the last
// one if it did not increase the rate of batches, so that the consumer gets its core.
class WorkerCountTuner {
 public:
  WorkerCountTuner(int workers, int max_workers) : workers_(workers), max_workers_(max_workers) {}

  // Called for each batch with the current time and the total time that the consumer has waited, both in seconds.
  // Returns the number of threads to use from now on.
  int Observe(double now, double waited);

 private:
  void Begin(double now, double waited);

  int workers_, max_workers_;
  // Batches of this measuring window, without the first batch of a run, during which threads start.
  int64_t batches_ = 0;
  bool begun_ = false, searching_ = true, added_ = false;
  double begin_ = 0, waited_ = 0, rate_ = 0;  // start and waiting time of this window; batches/s of the previous window
};

// How MixBatch treats a feed.
enum class Mixing : uint8_t {
  kNone,
  kPixels,  // mixup: weighted mean of both samples; cutmix: a box is copied from the other sample
  kShares   // labels: mean weighted by the shares of the pixels
};

struct MixOptions {
  // α of Beta(α, α), from which shares are drawn; 0: off. If both are on, one is chosen by chance.
  double mixup = 0, cutmix = 0;
  int height = 0, width = 0;  // extents of the pixel feeds
  bool channels_last = false;

  bool on() const { return mixup > 0 || cutmix > 0; }
};

// The tensor of a feed that MixBatch changes in place.
struct MixedFeed {
  Mixing mixing = Mixing::kNone;
  DType dtype = DType::kFloat32;
  std::span<std::byte> rows;  // all samples of the batch
};

// Applies mixup (Zhang et al., 2017) and cutmix (Yun et al., 2019): mixes sample i with sample n - 1 - i; the middle
// sample of an odd number stays. Choices are a function of (pass, sample) only; a sample's own share is at least a
// half.
void MixBatch(const MixOptions& options, const ReadPass& pass, std::span<const int64_t> samples,
              std::span<const MixedFeed> feeds);

// Allowed values of an input.
struct ValueRange {
  double min = 0, max = 0;             // inclusive
  std::string what;                    // "the 100 rows of Gather 'embedding' (negative ones count from the end)"
  std::optional<double> besides = {};  // another allowed value
};

// How columns become one batch tensor.
struct FeedSpec {
  std::string feed;          // name of the graph input, or "label"
  std::vector<int> columns;  // data set columns; several are concatenated along a new last axis
  Type sample;               // element type and shape (without batch axis) in the graph
  // The column is variable and the graph takes any length: a batch has the length of its longest sample, rounded up by
  // RoundUpLength, at most that of `sample`.
  bool variable = false;
  int length_axis = 0;  // of `sample`, if variable
  // ≥ 0: Column::height_axis as an axis of `sample`. Samples of equal extents are batched together (Batch::further).
  int height_axis = -1;
  double padding = 0;  // value of padding pixels after normalization
  // Normalizes pixels: y = (x * scale - mean[c]) / std[c], where c is the index on the channel axis of `sample` (or 0
  // if there is one value). Applied only to image columns (Column::image).
  double scale = 1;
  std::vector<double> mean, std;
  int channel_axis = 0;
  // Standardizes: y = (x - shift[j]) / divisor[j], where j is the index of the element in `sample`, or of its column if
  // there are as many numbers as columns, or 0 if there is one number. Empty: y = x.
  std::vector<double> shift, divisor;
  // Limits on values; others make Next() fail with row and value.
  bool allow_nan = false;           // NaN marks a missing value, which the model handles
  std::optional<ValueRange> range;  // allowed values of integers and labels
  // Checks the label sequence of sample i while it is loaded; null: no check, or checked before the run.
  std::function<absl::Status(const Dataset& data, int64_t i)> check;
  // The column holds class indices and the graph expects one-hot vectors.
  bool one_hot = false;
  Mixing mixing = Mixing::kNone;  // treatment by LoaderOptions::mix
};

struct Batch {
  int64_t epoch = 0;
  std::vector<int64_t> samples;         // indices into the data set
  std::span<const HostTensor> tensors;  // one per FeedSpec, [batch, sample…], 64-byte aligned
  // Tensors of the samples of other sizes (FeedSpec::height_axis), one vector per size. `samples` lists those of
  // `tensors` first, then these.
  std::span<const std::vector<HostTensor>> further;
  int worker = 0;  // index of the thread that filled the batch; begin and end times follow
  std::chrono::steady_clock::time_point fill_begin, fill_end;
};

struct LoaderOptions {
  int64_t batch_size = 1;
  bool drop_last = false;
  bool shuffle = false;
  uint64_t seed = 42;
  bool augment = false;          // sets ReadPass::augment, with the same seed
  MixOptions mix = {};           // how the samples of a batch are mixed if `augment`
  bool length_grouping = false;  // group samples of similar length if `shuffle` (GroupByLength)
  bool keep_order = false;       // do not sort the samples of a batch by size
  bool exact_lengths = false;    // pad a batch to its longest sample, without rounding up (FeedSpec::variable)
  TokenBudget tokens = {};       // if on: replaces batch_size and length_grouping (TokenBatches)
  int num_workers = 1;           // worker threads; 0: read in Next()
  int max_workers = 0;           // limit up to which WorkerCountTuner adds threads; ≤ num_workers: fixed number
  int prefetch_factor = 2;       // batches ahead per worker
  int64_t first_epoch = 0, first_sample = 0;  // start position: epoch, and samples already consumed in it
  int64_t first_batch = 0;                    // batches to skip after the start position
  int64_t batch_stride = 1;                   // delivers every batch_stride-th batch, from `first_batch` on
  int64_t epochs = 1;                         // number of epochs; < 0: unlimited
};

class Loader {
 public:
  // Requires columns that fit the specs: the same number of elements per sample. Converts element types, floats to
  // integers only if the values are integers. Fails if drop_last leaves no batch.
  static absl::StatusOr<std::unique_ptr<Loader>> Create(std::shared_ptr<const Dataset> data,
                                                        const std::vector<FeedSpec>& specs,
                                                        const LoaderOptions& options);
  virtual ~Loader() = default;  // stops and joins the workers
  // Returns the next batch in order, or null after the last; waits until it is ready. Called by one thread. The loader
  // owns the batch and reuses its tensors in the next call; tensors that are still held when the loader is destroyed
  // stay valid. Allocates nothing per batch once every buffer has been used (at most workers · prefetch_factor + 1). An
  // error is returned in place of its batch and by all later calls.
  virtual absl::StatusOr<const Batch*> Next() = 0;
  // Total seconds that Next has waited.
  virtual double waited_seconds() const = 0;
  // Current number of worker threads.
  virtual int workers() const = 0;
};

// Returns the number of batches of an epoch, at least 1. Takes the specs of Loader::Create.
int64_t CountBatches(const Dataset& data, const std::vector<FeedSpec>& specs, const LoaderOptions& options);
// Returns true if a feed has samples of different lengths.
bool HasVariableFeed(const std::vector<FeedSpec>& specs);

// Label columns whose values must be classes or `ignore_index`.
struct LabelCheck {
  std::vector<int> columns;
  int64_t classes = 0, ignore_index = -100;
};
// Checks one sample. The error names its row.
absl::Status CheckLabel(const Dataset& data, int64_t i, const LabelCheck& check);

// Checks that all values of a label column, of any element type, are integers in [0, classes) or equal ignore_index.
// The error names the row.
absl::Status CheckLabels(const Dataset& data, int column, int64_t classes, int64_t ignore_index);

struct LabelRange {
  int64_t min = 0, max = 0;
};
// Returns the minimum and maximum of the labels other than ignore_index. A value that is no integer is an error that
// names the row, or is ignored with `skip_bad`.
absl::StatusOr<LabelRange> ComputeLabelRange(const Dataset& data, int column, int64_t ignore_index,
                                             bool skip_bad = false);

}  // namespace onnxtrain
