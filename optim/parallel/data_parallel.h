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
#include "optim/parallel/gradient_tree.h"
#include "optim/parallel/rounded_sum.h"
#include "optim/step/session.h"

namespace onnxtrain {

class GradientShare;
struct GradientPieces;

struct DataParallelOptions {
  size_t bucket_bytes = size_t{4} << 20;  // as CutBuckets takes it
  bool rounds = false;                    // gradients in float32 are sent as bfloat16
  bool in_order = false;                  // evaluations are added up in the order of their batches
};

// An update: BeginUpdate; programs, of which the last one tells its listener which buckets are complete; Exchange.
class DataParallel : public Peers, private OutputListener {
 public:
  // `ranks` must outlive it. `sums`: numbers that every Exchange adds up.
  DataParallel(Collectives* ranks, size_t sums, const DataParallelOptions& options = {})
      : ranks_(*ranks), sums_(sums), options_(options), rounded_(ranks) {}

  int rank() const { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  bool alone() const override { return false; }
  Collectives& ranks() { return ranks_; }
  const DataParallelOptions& options() const { return options_; }

  void Ask(unsigned requests) override { asked_ = requests; }
  bool Follows(LoopRequest request, bool own) const override { return (agreed_ & request) != 0; }

  // Has every Exchange sum the flat gradient, of which `groups` are the slices (CutBuckets), the same on all ranks.
  // `backend` and `gradient` must outlive it. All ranks call it.
  absl::Status SumGradient(Backend* backend, DType dtype, Buffer* gradient,
                           const std::vector<std::vector<GradientSlice>>& groups);
  // Has the program, which outputs the gradients of all buckets, tell which of them are complete.
  void Watch(Program* program);

  // Begins an update.
  void BeginUpdate();
  // Is the program that runs next the last one of the update? Then buckets are summed while it runs.
  void set_runs_last(bool last) { runs_last_ = last; }
  // Ends the part of an update that each rank does by itself: sums the gradient over the ranks, and adds up `sums`, in
  // the order of the ranks. Returns the first error that a rank had: all ranks return alike.
  absl::Status Exchange(const absl::Status& own, std::span<double> sums);
  // Ends such a part with an error after which other ranks are not waited for, and returns it.
  absl::Status GiveUp(const absl::Status& lost);
  // After an Exchange without a gradient (SumGradient): sums what every rank has added to its tree.
  absl::Status SumTree(GradientTree* tree);
  // Counts what a share has exchanged since its Begin. Before the Exchange of the update.
  void AddScattered(const GradientShare& share, const GradientPieces& pieces);
  // Ranks wait for each other within an update: all begin it, with AgreeToBegin, or none.
  void BeginTogether() { begins_together_ = true; }
  bool begins_together() const { return begins_together_; }
  absl::Status AgreeToBegin(const absl::Status& own);
  // Counts what this rank has sent besides, and the time that it has waited.
  void AddTransfers(int64_t sent_bytes, double seconds) { sent_ += sent_bytes, waited_ += seconds; }
  // Takes part in the Exchange of an update that this rank cannot begin.
  absl::Status ExchangeFailure(const absl::Status& own) override;
  // Compares checksums of weights, running statistics and averages after an update, which find what nothing else would
  // show: a bit that flipped, a library that computes otherwise. Names the ranks that differ from rank 0.
  absl::Status CompareWeights(Session& session) override;
  absl::Status Evaluate(Session& session, EvaluatedBatches& batches, const LoaderOptions& load, Evaluation* total,
                        int64_t* samples) override;

  void SaveParts(const std::function<void()>& finish) override { finish_saves_ = finish; }
  bool saves_parts() const override { return finish_saves_ != nullptr; }
  void SetScratchFolder(const std::string& folder) override { scratch_folder_ = folder; }
  const std::string& scratch_folder() const { return scratch_folder_; }

  void EndLoop(const absl::Status& ended) override;
  bool failed_together() const override { return failed_together_; }
  // Has the loop ended with an error that the other ranks do not know?
  bool ended_with_unshared_error() const { return unshared_error_; }
  // Returns the first error that a rank had, on all of them.
  absl::Status Agree(std::string_view what, const absl::Status& own);

  using ReadSlice = std::function<absl::Status(size_t offset, std::span<std::byte> bytes)>;
  using WriteSlice = std::function<absl::Status(size_t offset, std::span<const std::byte> bytes)>;
  // Exchanges slices of `bytes` bytes, of which rank r has those from r·slice on, at most `slice`: reads pieces of that
  // of this rank, and writes those of the others. Offsets are those in the whole.
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

  // Of the gradient; null: nothing is summed.
  Backend* backend_ = nullptr;
  Buffer* gradient_ = nullptr;
  DType dtype_ = DType::kFloat32;
  std::vector<GradientBucket> buckets_;
  std::unique_ptr<OrderedReduce> reduce_;      // null on a device with memory of its own
  std::unique_ptr<Collectives> device_ranks_;  // that take that memory; null where values go through the host
  bool began_ = false, runs_last_ = false;
  int64_t updates_ = 0, sent_ = 0;  // `sent_`: bytes since the last Exchange
  double waited_ = 0;               // for transfers, since the last Exchange
  CommunicationTime time_;
};

// Adds the evaluations of all ranks, in their order, to *total, and their samples to *samples, the same on each.
// Returns the first error that a rank had.
absl::Status GatherEvaluation(DataParallel& ranks, const absl::Status& evaluated, const std::vector<Metric>& metrics,
                              const Evaluation& own, int64_t own_samples, Evaluation* total, int64_t* samples);

}  // namespace onnxtrain
