// The reducers of a session that trains with others (optim/step/gradient_reducer.h): an all-reduce, sums of which each
// rank keeps a part (ZeRO-2 and 3), and a tree whose sums do not depend on the number of ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/base/status.h"
#include "optim/parallel/data_parallel.h"
#include "optim/parallel/gradient_pieces.h"
#include "optim/parallel/gradient_share.h"
#include "optim/parallel/gradient_tree.h"
#include "optim/parallel/graph_exchange.h"
#include "optim/parallel/running_averages.h"
#include "optim/step/gradient_reducer.h"
#include "optim/step/session_impl.h"

namespace onnxtrain {

// What the reducers of several ranks have in common: running averages over the micro-batches of all ranks, and programs
// with collective operators, of which all ranks run as many.
class RankReducer : public GradientReducer {
 public:
  // `ranks` must outlive the reducer. Null: the session is the only one, or plans for the first of `size` ranks.
  RankReducer(SessionImpl* session, DataParallel* ranks, int size)
      : GradientReducer(session), ranks_(ranks), size_(size) {}

  // Has micro programs that are compiled from now on compute what the ranks add up. `gathers`: programs gather weights.
  absl::Status Prepare(bool gathers);
  // Begins to exchange with the others, once the state is divided.
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
  void EndProgram(ReadyProgram* program, const absl::Status& ran) override;
  absl::StatusOr<Evaluation> Evaluate(const GlobalBatch& global_batch) override;
  absl::Status CheckAccumulates() const override {
    return ranks_ != nullptr ? Invalid("one of several ranks takes whole updates: Step") : absl::OkStatus();
  }

 protected:
  int64_t unit() const { return std::max<int64_t>(1, session_.fixed_batch()); }  // of shares
  SampleRange OwnShare(int64_t samples) const { return ShareOfRank(samples, unit(), ranks_->rank(), size_); }
  int64_t CountRounds(int64_t samples) const;
  bool LostRanks() const { return exchange_ != nullptr && exchange_->LostRanks(); }
  absl::Status CreateGraphCollectives();
  void CountExchange(ReadyProgram* program);
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

// Sums whole gradients, bucket by bucket while the last micro program runs.
class AllReducer : public RankReducer {
 public:
  using RankReducer::RankReducer;

  absl::Status Join() override;
  void Watch(ReadyProgram* program) override;
  absl::Status Accumulate(const GlobalBatch& global_batch, int64_t samples) override;
  absl::Status Finish(const absl::Status& ran) override;
  void BeginMicros(int64_t pending, std::vector<MicroBatch>* micros) override;
  absl::Status BeginMicro(const MicroBatch& micro, bool last) override;

 private:
  absl::Status RunShare(const GlobalBatch& global_batch, const SampleRange& share);

  std::optional<SampleRange> share_;  // within Accumulate
};

// Sums gradients of which each rank keeps its pieces, in every round of micro-batches.
class ShardedReducer : public RankReducer {
 public:
  ShardedReducer(SessionImpl* session, DataParallel* ranks, int size, GradientPieces pieces)
      : RankReducer(session, ranks, size), pieces_(std::move(pieces)) {}

  absl::Status Join() override;
  int64_t bytes() const override { return GradientShare::StagingBytes(pieces_, size_); }
  OutputGroups taken_outputs() const override { return ListOutputs(pieces_.buckets); }
  void Watch(ReadyProgram* program) override;
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

// Adds the gradients of micro-batches, of which ranks compute whole ones, in an order that their number alone decides.
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
