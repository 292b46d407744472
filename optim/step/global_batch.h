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

// One tensor [n, sample…] per feed: the model's inputs by their names, labels by LossFeed::name (kLabelFeed, …), all of
// one n. A source of many batches makes one GlobalBatch and exchanges its tensors: the positions of the names are then
// looked up once (FeedPositions). Copies share names and bytes.
class GlobalBatch {
 public:
  explicit GlobalBatch(std::vector<std::string> names = {});
  GlobalBatch(std::initializer_list<std::pair<std::string, HostTensor>> feeds);

  using Names = std::shared_ptr<const std::vector<std::string>>;
  const Names& names() const { return names_; }
  const HostTensor& tensor(size_t i) const { return tensors_[i]; }
  // Replaces the tensor of names()[i]. Allocates nothing where the old one had the same rank.
  void Set(size_t i, const HostTensor& tensor) { tensors_[i] = tensor; }

  const HostTensor* Find(std::string_view name) const;  // null where there is none
  // n: the largest leading extent of the model's inputs; -1 where none has axes.
  int64_t part_samples() const;
  // With those of `further`.
  int64_t samples() const;

  // The samples of other sizes: batches of the same names without further ones.
  const std::vector<GlobalBatch>& further() const { return further_; }
  std::vector<GlobalBatch>& ResizeFurther(size_t size);

 private:
  Names names_;
  std::vector<bool> is_label_;       // by name
  std::vector<HostTensor> tensors_;  // by name
  std::vector<GlobalBatch> further_;
};

// Calls visit(part) for the batch itself and what is `further` in it, until one fails.
template <typename Visitor>
absl::Status VisitParts(const GlobalBatch& batch, Visitor visit) {
  absl::Status status = visit(batch);
  for (size_t i = 0; i < batch.further().size() && status.ok(); ++i) status = visit(batch.further()[i]);
  return status;
}

// Where a consumer finds its feeds in the batches of one source.
class FeedPositions {
 public:
  FeedPositions() = default;
  explicit FeedPositions(std::vector<std::string> feeds) : feeds_(std::move(feeds)) {}

  // Looks the feeds up where the batch has other names than the last one. Fails, naming the feed, where one is missing.
  absl::Status Resolve(const GlobalBatch& batch);
  // Of the batch that was resolved last.
  const HostTensor& Get(const GlobalBatch& batch, size_t feed) const { return batch.tensor(positions_[feed]); }
  const std::string& name(size_t feed) const { return feeds_[feed]; }

 private:
  std::vector<std::string> feeds_;
  GlobalBatch::Names names_;       // that the positions are in; held, so that its address is not used again
  std::vector<size_t> positions_;  // by feed
};

// Counts the targets of a global batch, for each loss term: the W in Σ losses / W. Samples or elements for dense
// losses, labels other than ignore_index (weighted by class) for class indices, what the model says for a loss given as
// ONNX.
class LossDenominators {
 public:
  // Both must outlive it.
  LossDenominators(const LossChoice& choice, const LossSpec& spec);

  // Allocates only where a loss is an ONNX model with a weight of its own, and where the names differ from those of the
  // batch before.
  absl::Status Count(const GlobalBatch& global_batch, int64_t samples);

  // Of the batch that was counted last:
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

// The seed of the gradient of a term's sum: factor/W, 0 where nothing counts.
double InverseDenominator(const LossTerm& term, double weight);

// Σ factor·sum/weight, of terms whose weight is above 0.
double MeanLoss(const LossChoice& choice, const std::vector<double>& sums, const std::vector<double>& weights);

// Cuts a global batch into micro-batches, and these into the shares of several ranks.

// Returns the samples of a batch; fails where there are none, or where `fixed_batch` is above 0 and does not divide
// them.
absl::StatusOr<int64_t> CountSamples(const GlobalBatch& global_batch, int64_t fixed_batch);

// Samples [begin, begin + count) of a part, which are at `place` in the global batch. A rank may have a piece of
// micro-batch `number`, behind the first `skipped` of its `whole` samples.
struct MicroBatch {
  const GlobalBatch* part;
  int64_t begin, count, place, number, skipped = 0, whole = count;

  double fraction() const { return static_cast<double>(count) / static_cast<double>(whole); }
};

// Samples of a micro-batch of this part.
using MicroSize = std::function<int64_t(const GlobalBatch& part)>;

// Replaces *micros with those of the batch, in the order of its samples. `powers_of_two`: what is left of a part is cut
// into powers of two, which need few programs where parts are of all sizes.
void CutMicroBatches(const GlobalBatch& global_batch, const MicroSize& size, bool powers_of_two,
                     std::vector<MicroBatch>* micros);

// Samples [begin, end) of a global batch.
struct SampleRange {
  int64_t begin = 0, end = 0;
};

// Returns the share of a rank: contiguous, in the order of the ranks, in whole multiples of `unit`, which divides the
// samples. Empty where there are more ranks than units.
SampleRange ShareOfRank(int64_t samples, int64_t unit, int rank, int size);

// Returns the samples of the rank that has most of them.
int64_t LargestShare(int64_t samples, int64_t unit, int size);

// Returns how many micro-batches have samples in the range.
int64_t CountMicros(const SampleRange& share, const std::vector<MicroBatch>& micros);

// Keeps what lies in the range.
void ClipToShare(const SampleRange& share, std::vector<MicroBatch>* micros);

}  // namespace onnxtrain
