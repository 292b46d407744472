// Data parallel training: every rank holds the whole state, computes the gradient of its share of each global batch,
// and makes the same update with the sum of all gradients. Losses, counts and decisions are those of all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "backends/collectives.h"
#include "optim/loop/metrics.h"
#include "optim/loop/peers.h"
#include "optim/parallel/gradient_pieces.h"
#include "optim/parallel/gradient_share.h"
#include "optim/parallel/gradient_tree.h"
#include "optim/step/session.h"

namespace onnxtrain {

class GradientShare;
struct GradientPieces;

struct DataParallelOptions {
  size_t bucket_bytes = size_t{4} << 20;  // maximum bucket size, for CutBuckets
  bool send_bf16 = false;                 // sends float32 gradients rounded to bfloat16
  bool in_order = false;                  // adds up evaluations in the order of their batches
};

// Exchanges the gradients and decisions of data parallel ranks. An update calls BeginUpdate, runs the programs, the
// last of which reports complete buckets to its listener, and calls Exchange.
class DataParallel : public Peers, private OutputListener {
 public:
  // `ranks` must outlive this object. `sums` is the number of values that every Exchange adds up.
  DataParallel(Collectives* ranks, size_t sums, const DataParallelOptions& options = {})
      : ranks_(*ranks), sums_(sums), options_(options), rounded_(ranks) {}

  int rank() const { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  bool alone() const override { return false; }
  Collectives& ranks() { return ranks_; }
  const DataParallelOptions& options() const { return options_; }

  void Ask(unsigned requests) override { asked_ = requests; }
  bool Follows(LoopRequest request, bool own) const override { return (agreed_ & request) != 0; }

  // Makes every Exchange sum the flat gradient, whose slices (CutBuckets) are `groups`, the same on all ranks. All
  // ranks call it. `backend` and `gradient` must outlive this object.
  absl::Status SumGradient(Backend* backend, DType dtype, Buffer* gradient,
                           const std::vector<std::vector<GradientSlice>>& groups);
  // Registers for the completion of buckets in a program that outputs the gradients of all buckets.
  void Watch(Program* program);

  // Begins an update.
  void BeginUpdate();
  // Sets whether the next program is the last one of the update. Buckets are summed while the last one runs.
  void set_runs_last(bool last) { runs_last_ = last; }
  // Ends the local part of an update: sums the gradient over the ranks, and `sums` in the order of the ranks. `own` is
  // the status of this rank. Returns the first error of any rank, the same on all ranks.
  absl::Status Exchange(const absl::Status& own, std::span<double> sums);
  // Ends the local part with an error after which this rank no longer waits for others, and returns it.
  absl::Status GiveUp(const absl::Status& lost);
  // Sums the trees of all ranks. Must follow an Exchange without a gradient (SumGradient).
  absl::Status SumTree(GradientTree* tree);
  // Counts the bytes that a share has exchanged since its Begin. Must precede the Exchange of the update.
  void AddScattered(const GradientShare& share, const GradientPieces& pieces);
  // Declares that ranks wait for each other within an update: AgreeToBegin lets all of them begin it, or none.
  void BeginTogether() { begins_together_ = true; }
  bool begins_together() const { return begins_together_; }
  absl::Status AgreeToBegin(const absl::Status& own);
  // Counts further bytes that this rank has sent, and the seconds that it has waited.
  void AddTransfers(int64_t sent_bytes, double seconds) { sent_ += sent_bytes, waited_ += seconds; }
  // Takes part in the Exchange of an update that this rank cannot begin.
  absl::Status ExchangeFailure(const absl::Status& own) override;
  // Compares checksums of weights, running statistics and averages after an update, to find silent differences such as
  // a flipped bit or a library that computes differently. The error names the ranks that differ from rank 0.
  absl::Status CompareWeights(Session& session) override;
  absl::Status Evaluate(Session& session, EvaluatedBatches& batches, const LoaderOptions& load, Evaluation* total,
                        int64_t* samples) override;

  void SaveParts(const std::function<void()>& finish) override { finish_saves_ = finish; }
  bool saves_parts() const override { return finish_saves_ != nullptr; }
  void SetScratchFolder(const std::string& folder) override { scratch_folder_ = folder; }
  const std::string& scratch_folder() const { return scratch_folder_; }

  void EndLoop(const absl::Status& ended) override;
  bool failed_together() const override { return failed_together_; }
  // Returns true if the loop has ended with an error that was not shared with the other ranks.
  bool ended_with_unshared_error() const { return unshared_error_; }
  // Returns the first error of any rank, the same on all ranks.
  absl::Status Agree(std::string_view what, const absl::Status& own);

  using ReadSlice = std::function<absl::Status(size_t offset, std::span<std::byte> bytes)>;
  using WriteSlice = std::function<absl::Status(size_t offset, std::span<const std::byte> bytes)>;
  // Gathers `bytes` bytes on all ranks. Rank r holds at most `slice` bytes from offset r·slice on. Reads pieces of this
  // rank's slice with `read` and passes pieces of the others to `write`. Offsets are relative to the whole.
  absl::Status ExchangeSlices(std::string_view what, size_t bytes, size_t slice, const ReadSlice& read,
                              const WriteSlice& write);

  CommunicationTime time() const override { return time_; }

 private:
  void OnComplete(size_t bucket) override;
  absl::Status SumBuckets();
  absl::Status SumOnDevice();
  absl::Status SumThroughHost();
  absl::Status SumBucket(std::span<std::byte> bytes);
  void CountSum(size_t bytes);
  absl::Status ExchangeSums(const absl::Status& own, std::span<double> sums);
  void Count(double seconds, double exposed);

  Collectives& ranks_;
  const size_t sums_;
  const DataParallelOptions options_;
  RoundedSum rounded_;
  unsigned asked_ = 0, agreed_ = 0;
  bool begins_together_ = false, failed_together_ = false, unshared_error_ = false;
  std::function<void()> finish_saves_;  // null: rank 0 saves all
  std::string scratch_folder_;
  std::vector<double> own_, all_;   // memory of Exchange
  std::vector<std::byte> on_host_;  // memory for values of a device
  std::vector<std::byte> own_piece_, all_pieces_;

  // The gradient to sum; null if there is none.
  Backend* backend_ = nullptr;
  Buffer* gradient_ = nullptr;
  DType dtype_ = DType::kFloat32;
  std::vector<GradientBucket> buckets_;
  std::unique_ptr<OrderedReduce> reduce_;      // null on a device with memory of its own
  std::unique_ptr<Collectives> device_ranks_;  // collectives on device memory; null if values go through the host
  bool began_ = false, runs_last_ = false;
  int64_t updates_ = 0, sent_ = 0;  // `sent_`: bytes since the last Exchange
  double waited_ = 0;               // for transfers, since the last Exchange
  CommunicationTime time_;
};

// Adds the evaluations of all ranks, in the order of the ranks, to *total, and their samples to *samples, with equal
// results on all ranks. Returns the first error of any rank.
absl::Status GatherEvaluation(DataParallel& ranks, const absl::Status& evaluated, const std::vector<Metric>& metrics,
                              const Evaluation& own, int64_t own_samples, Evaluation* total, int64_t* samples);

}  // namespace onnxtrain
