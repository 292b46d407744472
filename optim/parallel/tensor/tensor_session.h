// A session that computes a part of every layer. The other ranks of the group compute the other parts; programs
// exchange values by collective operators (frontend/ops/collective.h).
//
// In an update, every rank runs the same micro-batches. The ranks exchange the squared norms of divided gradients and
// the losses, so that all clip, skip and report alike. Each rank updates its parts of divided weights, and all ranks
// update whole weights identically.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "optim/parallel/part_session.h"
#include "optim/parallel/tensor/split_graph.h"
#include "optim/parallel/traffic.h"
#include "optim/step/session.h"

namespace onnxtrain {

class TensorSession : public PartSession {
 public:
  using PartSession::PartSession;

  absl::Status Distribute(DataParallel* ranks, ShardLevel shard) override;
  absl::StatusOr<Evaluation> Evaluate(const GlobalBatch& global_batch) override;
  absl::Status SetWeights(const std::map<std::string, HostTensor>& weights) override;

 protected:
  absl::StatusOr<PreparedModel> PrepareTrained() override;
  absl::StatusOr<PreparedModel> PrepareProgram(const PrepareOptions& options, int64_t batch, bool training,
                                               bool values) override;
  absl::Status EnsureFrozen(const ImportedModel& model, int64_t batch, bool training) override;
  const char* flag() const override { return "tensor"; }
  bool leads() const override { return rank() == 0; }
  bool IsLocal(const WholeTensor& tensor) const override { return !tensor_splits_.contains(tensor.name); }
  ElementRuns FindOwnRuns(const WholeTensor& tensor) const override;
  absl::Status GatherTensor(const WholeTensor& tensor) override;
  absl::Status WriteOwn(const WholeTensor& tensor, const HostTensor& value) override;

 private:
  int rank() const { return options_.tensor.index; }
  int size() const { return options_.tensor.count; }
  bool last() const { return rank() + 1 == size(); }

  void ListSplitState(const PreparedModel& whole);
  absl::Status PrepareUpdates();  // of all batches
  absl::Status PrepareBatch(const GlobalBatch& global_batch, ProgramKind first, ProgramKind next);
  absl::Status Update(const GlobalBatch& global_batch) override;
  bool LostRanks(const absl::Status& computed);
  absl::Status CompileOwnNorm();
  absl::Status ScatterRestored();

  Collectives& GroupOfPrograms() { return device_group_ != nullptr ? *device_group_ : *group_; }

  std::unique_ptr<Collectives> group_;         // of programs, which a rank that fails in them closes
  std::unique_ptr<Collectives> device_group_;  // the same, on the memory of the device; null where there is none
  WeightSplits splits_, tensor_splits_;        // of weights; of all tensors of the state
  int64_t sent_bytes_ = 0;                     // within the programs of the current batch
};

struct PartPlan {
  SessionMemory memory;         // of one rank
  int64_t divided_weights = 0;  // trained ones
  int64_t trained_weights = 0;
  int64_t divided_elements = 0, trained_elements = 0;  // counted over whole weights
  int64_t exchanges = 0;                               // sums over the ranks in an update
  int64_t sent_bytes = 0;                              // by a rank in an update, without the exchange of losses
};

// Plans updates over `samples` samples on `options.tensor.count` ranks. Allocates nothing on the device.
absl::StatusOr<PartPlan> PlanPart(const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                  SessionOptions options, int64_t samples);

}  // namespace onnxtrain
