// The samples of one update: tensors by feed name, and the denominators of their losses.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/step/loss.h"

namespace onnxtrain {

// Holds one tensor [n, sample…] per feed: inputs of the model by name, labels by LossFeed::name (kLabelFeed, …), all
// with the same n. A source of many batches creates one GlobalBatch and replaces its tensors, so that consumers resolve
// names only once (FeedPositions). Copies share names and bytes.
class GlobalBatch {
 public:
  explicit GlobalBatch(std::vector<std::string> names = {});
  GlobalBatch(std::initializer_list<std::pair<std::string, HostTensor>> feeds);

  using Names = std::shared_ptr<const std::vector<std::string>>;
  const Names& names() const { return names_; }
  const HostTensor& tensor(size_t i) const { return tensors_[i]; }
  // Replaces the tensor of names()[i]. Allocates nothing if the old tensor had the same rank.
  void Set(size_t i, const HostTensor& tensor) { tensors_[i] = tensor; }

  const HostTensor* Find(std::string_view name) const;  // null if there is no such tensor
  // Returns n, the largest leading extent of the model's inputs, without `further`; -1 if no input has axes.
  int64_t part_samples() const;
  // Returns the samples of this part and of all parts in `further`.
  int64_t samples() const;

  // Returns the parts with samples of other extents: batches with the same names and without further parts.
  const std::vector<GlobalBatch>& further() const { return further_; }
  std::vector<GlobalBatch>& ResizeFurther(size_t size);

 private:
  Names names_;
  std::vector<bool> is_label_;       // by name
  std::vector<HostTensor> tensors_;  // by name
  std::vector<GlobalBatch> further_;
};

// Calls visit(part) for the batch itself and for each of its further parts, until a call fails.
template <typename Visitor>
absl::Status VisitParts(const GlobalBatch& batch, Visitor visit) {
  absl::Status status = visit(batch);
  for (size_t i = 0; i < batch.further().size() && status.ok(); ++i) status = visit(batch.further()[i]);
  return status;
}

// Caches the positions of a consumer's feeds in the batches of one source.
class FeedPositions {
 public:
  FeedPositions() = default;
  explicit FeedPositions(std::vector<std::string> feeds) : feeds_(std::move(feeds)) {}

  // Looks up the feeds if the batch has other names than the previous one. Fails, naming the feed, if one is missing.
  absl::Status Resolve(const GlobalBatch& batch);
  // Returns the tensor of a feed. `batch` must be the one passed to the last Resolve.
  const HostTensor& Get(const GlobalBatch& batch, size_t feed) const { return batch.tensor(positions_[feed]); }
  const std::string& name(size_t feed) const { return feeds_[feed]; }

 private:
  std::vector<std::string> feeds_;
  GlobalBatch::Names names_;       // names that positions_ index; owned, so that their address is not reused
  std::vector<size_t> positions_;  // by feed
};

// Counts the targets of a global batch for each loss term: the W in Σ losses / W. Counts samples or elements for dense
// losses, and labels other than ignore_index, weighted by class, for class indices. A loss given as an ONNX model
// computes its own W.
class LossDenominators {
 public:
  // `choice` and `spec` must outlive this object.
  LossDenominators(const LossChoice& choice, const LossSpec& spec);

  // Counts the targets of a batch of `samples` samples. Allocates only for ONNX losses that output a weight, and if the
  // names differ from those of the previous batch.
  absl::Status Count(const GlobalBatch& global_batch, int64_t samples);

  // Results of the last Count.
  const std::vector<double>& weights() const { return weights_; }  // by term
  double targets() const { return targets_; }  // of the leading term: its weight if all classes weigh 1

 private:
  absl::Status CountPart(const GlobalBatch& part, int64_t samples);
  absl::StatusOr<double> TermDenominator(size_t term, const GlobalBatch& global_batch, int64_t samples);
  absl::StatusOr<double> OnnxDenominator(const OnnxLoss& loss, const GlobalBatch& global_batch, int64_t samples);

  const LossChoice& choice_;
  const LossSpec& spec_;
  FeedPositions labels_;
  std::vector<size_t> label_of_;  // by term: index into labels_; meaningful where the count reads labels
  std::vector<double> weights_;
  double targets_ = 0;
  std::map<std::pair<const OnnxLoss*, int64_t>, Graph> onnx_;  // by loss and samples
};

// Returns the gradient of the loss with respect to a term's sum: factor/W, or 0 if no target counts.
double InverseDenominator(const LossTerm& term, double weight);

// Returns Σ factor·sum/weight over the terms with a positive weight.
double MeanLoss(const LossChoice& choice, const std::vector<double>& sums, const std::vector<double>& weights);

// Returns the number of samples of a batch; fails if it is 0 or, with `fixed_batch` above 0, not a multiple of it.
absl::StatusOr<int64_t> CountSamples(const GlobalBatch& global_batch, int64_t fixed_batch);

// Samples [begin, begin + count) of a part; `place` is the position of the first one in the global batch. A rank may
// have only a piece of micro-batch `number`, which follows the first `skipped` of its `whole` samples.
struct MicroBatch {
  const GlobalBatch* part;
  int64_t begin, count, place, number, skipped = 0, whole = count;

  double fraction() const { return static_cast<double>(count) / static_cast<double>(whole); }
};

// Returns how many samples a micro-batch of this part has.
using MicroSize = std::function<int64_t(const GlobalBatch& part)>;

// Replaces *micros with the micro-batches of the batch, in the order of its samples. With `powers_of_two`, cuts the
// rest of each part into powers of two, so that parts of many sizes need few programs.
void CutMicroBatches(const GlobalBatch& global_batch, const MicroSize& size, bool powers_of_two,
                     std::vector<MicroBatch>* micros);

// The range [begin, end) of samples of a global batch.
struct SampleRange {
  int64_t begin = 0, end = 0;
};

// Returns the contiguous share of a rank, in multiples of `unit`, which must divide `samples`. Shares follow the order
// of the ranks; some are empty if there are more ranks than units.
SampleRange ShareOfRank(int64_t samples, int64_t unit, int rank, int size);

// Returns the number of samples in the largest share.
int64_t LargestShare(int64_t samples, int64_t unit, int size);

// Returns how many micro-batches have samples in the range.
int64_t CountMicros(const SampleRange& share, const std::vector<MicroBatch>& micros);

// Clips `micros` to the samples in `share`.
void ClipToShare(const SampleRange& share, std::vector<MicroBatch>* micros);

}  // namespace onnxtrain
