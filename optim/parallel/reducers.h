// The gradient reducers of data parallel sessions (optim/step/distribution.h): an all-reduce, sums of which each rank
// keeps a part (ZeRO-2 and 3), and a tree whose sums do not depend on the number of ranks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/collectives.h"
#include "frontend/base/status.h"
#include "frontend/graph/graph.h"
#include "optim/parallel/data_parallel.h"
#include "optim/parallel/gradient_pieces.h"
#include "optim/parallel/gradient_share.h"
#include "optim/parallel/gradient_tree.h"
#include "optim/parallel/running_averages.h"
#include "optim/step/distribution.h"
#include "optim/step/session_impl.h"
#include "optim/step/state.h"

namespace onnxtrain {

class GraphExchange {
 public:
  // Creates a separate group of all ranks, because gradients are summed while programs run and a rank that fails closes
  // the group. `number` must be different for each group.
  static absl::StatusOr<std::unique_ptr<GraphExchange>> Create(Collectives& ranks, int64_t number = 0);

  Collectives* ranks() { return ranks_.get(); }

  // Begins an update of `rounds` rounds.
  void Begin(int64_t rounds) { missing_ = rounds, broken_ = false; }
  // Counts a round after its program has run or failed.
  void AddIteration(const absl::Status& ran);
  // Closes the group after an error of any rank, so that the rounds of all ranks fail at once.
  void Break(const absl::Status& why);
  // Returns true if a collective failed because ranks do not answer. Otherwise the ranks can still agree on an error.
  bool LostRanks() const { return broken_ && !ranks_->closed(); }
  // Returns true if this rank has yet to take part in further rounds and the group is intact.
  bool IsBehind() const { return missing_ > 0 && !broken_; }
  // Takes part in a round without samples: sends this rank's parts of the inputs in `state`, in host memory, and zeros
  // for computed values. `program` is the program that ranks with samples run, for any batch size.
  absl::Status RunIdle(const Graph& program, const Bindings& state);

 private:
  explicit GraphExchange(std::unique_ptr<Collectives> ranks) : ranks_(std::move(ranks)) {}

  std::unique_ptr<Collectives> ranks_;
  int64_t missing_ = 0;
  bool broken_ = false;
  std::vector<std::byte> zeros_, result_, workspace_;
};

// Base of the reducers for several ranks. Combines running averages over the micro-batches of all ranks, and makes all
// ranks run equally many programs with collective operators.
class RankReducer : public GradientReducer {
 public:
  // `ranks` must outlive the reducer; null if the session trains alone or plans for rank 0 of `size` ranks.
  RankReducer(SessionImpl* session, DataParallel* ranks, int size)
      : GradientReducer(session), ranks_(ranks), size_(size) {}

  // Prepares the state for micro programs whose sums the ranks add up. With `gathers`, programs gather weights.
  absl::Status Prepare(bool gathers);
  // Sets up the exchange with the other ranks. Must follow the division of the state.
  virtual absl::Status Join();

  bool takes_gradients() const override { return true; }
  bool may_interrupt() const override { return ranks_ == nullptr; }
  bool communicates() const override { return size_ > 1; }
  absl::Status AddCollectives(PreparedModel* prepared) const override;
  absl::Status PlanUpdate(int64_t samples) override;
  absl::Status Begin() override;
  absl::Status FinishLocal() override { return averages_ ? averages_->AddAverages() : absl::OkStatus(); }
  absl::Status Restart() override { return exchange_ != nullptr ? CreateGraphCollectives() : absl::OkStatus(); }
  void BeginMicros(int64_t pending, std::vector<MicroBatch>* micros) override;
  void EndProgram(CompiledBatchProgram* program, const absl::Status& ran) override;
  absl::StatusOr<Evaluation> Evaluate(const GlobalBatch& global_batch) override;
  absl::Status CheckAccumulates() const override {
    return ranks_ != nullptr ? Invalid("one of several ranks takes whole updates: Step") : absl::OkStatus();
  }

 protected:
  int64_t unit() const { return std::max<int64_t>(1, session_.fixed_batch()); }  // samples that shares are multiples of
  SampleRange OwnShare(int64_t samples) const { return ShareOfRank(samples, unit(), ranks_->rank(), size_); }
  int64_t CountRounds(int64_t samples) const;
  bool LostRanks() const { return exchange_ != nullptr && exchange_->LostRanks(); }
  absl::Status CreateGraphCollectives();
  void CountExchange(CompiledBatchProgram* program);
  absl::Status RunIdle(ProgramKind kind, const GlobalBatch& global_batch);
  absl::Status RunIdleRound(ProgramKind kind, const GlobalBatch& global_batch);
  absl::Status Exchange(const absl::Status& ran);
  absl::Status FinishAverages();

  DataParallel* const ranks_;
  const int size_;
  std::optional<RunningAverages> averages_;  // nullopt: the model has none
  std::unique_ptr<GraphExchange> exchange_;  // null: programs have no collective operators
  std::vector<double> sums_;                 // memory for what ranks exchange: losses and correct predictions
};

// Sums whole gradients over the ranks, bucket by bucket while the last micro program runs.
class AllReducer : public RankReducer {
 public:
  using RankReducer::RankReducer;

  absl::Status Join() override;
  void Watch(CompiledBatchProgram* program) override;
  absl::Status Accumulate(const GlobalBatch& global_batch, int64_t samples) override;
  absl::Status Finish(const absl::Status& ran) override;
  void BeginMicros(int64_t pending, std::vector<MicroBatch>* micros) override;
  absl::Status BeginMicro(const MicroBatch& micro, bool last) override;

 private:
  absl::Status RunShare(const GlobalBatch& global_batch, const SampleRange& share);

  std::optional<SampleRange> share_;  // within Accumulate
};

// Sums gradients in every round of micro-batches; each rank keeps its slices of the sums (GradientShare).
class ShardedReducer : public RankReducer {
 public:
  ShardedReducer(SessionImpl* session, DataParallel* ranks, int size, GradientPieces pieces)
      : RankReducer(session, ranks, size), pieces_(std::move(pieces)) {}

  absl::Status Join() override;
  int64_t bytes() const override { return GradientShare::StagingBytes(pieces_, size_); }
  OutputGroups taken_outputs() const override { return ListOutputs(pieces_.buckets); }
  void Watch(CompiledBatchProgram* program) override;
  absl::Status Accumulate(const GlobalBatch& global_batch, int64_t samples) override;
  absl::Status Finish(const absl::Status& ran) override;
  absl::Status CheckWholeGradients() const override {
    return Invalid("`shard` gradients: no rank has whole gradients");
  }

 private:
  absl::Status RunRounds(const GlobalBatch& global_batch, int64_t samples);
  absl::Status RunRound(ProgramKind kind, const GlobalBatch& global_batch, const MicroBatch* micro);
  absl::Status RunEmptyRound(ProgramKind kind, const GlobalBatch& global_batch, absl::Status status);

  const GradientPieces pieces_;
  std::unique_ptr<GradientShare> share_;  // null: a plan
};

// Sums the gradients of whole micro-batches in an order that depends only on their number (GradientTree).
class TreeReducer : public RankReducer {
 public:
  using RankReducer::RankReducer;

  bool may_halve() const override { return false; }
  int64_t bytes() const override { return tree_ ? tree_->bytes() : 0; }
  absl::Status PlanUpdate(int64_t samples) override;
  absl::Status Accumulate(const GlobalBatch& global_batch, int64_t samples) override;
  absl::Status Finish(const absl::Status& ran) override;

 private:
  absl::Status BeginTree(int64_t micros);

  std::optional<GradientTree> tree_;
};

}  // namespace onnxtrain
