// A session that has a part of the model, of which the other ranks have the rest. It keeps the names and types of the
// whole state: on rank 0 all of it can be gathered, as one rank has it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/base/status.h"
#include "optim/parallel/data_parallel.h"
#include "optim/parallel/gathered_tensors.h"
#include "optim/parallel/pipeline/message_queue.h"
#include "optim/parallel/whole_state.h"
#include "optim/step/session_impl.h"
#include "optim/step/state.h"

namespace onnxtrain {

// Of a rank whose programs others wait for. The session exchanges gradients by itself: what ranks compute of a model
// decides which.
class PartReducer : public GradientReducer {
 public:
  using GradientReducer::GradientReducer;
  bool may_interrupt() const override { return false; }
};

class PartSession : public SessionImpl {
 public:
  using SessionImpl::SessionImpl;

  const std::vector<WeightDecision>& weights() const override { return whole_weights_; }
  bool holds_partial_weights() const override { return true; }
  bool divides_moments() const override { return true; }
  size_t ExchangedSums() const override { return prepared_.loss.terms.size() + 2; }
  void ReleaseGathered() override { gathered_rest_.reset(); }

  absl::StatusOr<std::map<std::string, HostTensor>> Weights() override;
  absl::StatusOr<std::vector<StateTensor>> State() override;
  absl::StatusOr<std::vector<StateTensor>> StateParts() override;
  absl::Status GatherState() override { return Gather(true); }
  absl::Status GatherWeights() override { return Gather(false); }
  absl::Status Restore(const std::map<std::string, HostTensor>& state, const SessionCounters& counters) override;

  absl::Status Step(const GlobalBatch& global_batch) override;
  absl::Status Accumulate(const GlobalBatch& global_batch) override { return Refuse(); }
  absl::StatusOr<Evaluation> Predict(const GlobalBatch& global_batch) override { return Refuse(); }
  absl::StatusOr<GradientResult> Gradients(const GlobalBatch& global_batch, GradientsOf of) override {
    return Refuse();
  }
  absl::Status VisitGradients(const GlobalBatch& global_batch, const GradientVisitor& visit) override {
    return Refuse();
  }
  absl::StatusOr<double> TrainingLoss(const GlobalBatch& global_batch) override { return Refuse(); }

 protected:
  virtual const char* flag() const = 0;                       // that divides the model
  virtual bool leads() const = 0;                             // rank 0
  virtual bool IsLocal(const WholeTensor& tensor) const = 0;  // has this rank all of it?
  // The elements of a tensor that this rank writes to a checkpoint; none: length 0.
  virtual ElementRuns FindOwnRuns(const WholeTensor& tensor) const = 0;
  // Gathers the tensor on rank 0, which has memory for it, unless that has it already.
  virtual absl::Status GatherTensor(const WholeTensor& tensor) = 0;
  // Writes what this rank has of a tensor.
  virtual absl::Status WriteOwn(const WholeTensor& tensor, const HostTensor& value) = 0;

  bool norm_is_given() const override { return true; }
  absl::Status CheckBatch() override;
  Bindings ApplyBindings() const override;

  absl::Status Refuse() const { return Invalid("`", flag(), "`: a part of the model cannot compute it"); }
  absl::Status VerifyWhole(int64_t exported);
  // Allocates memory for the squared norm of the gradient.
  absl::Status AllocateNorm();
  // Compiles the squared norm of flat gradients, or of single ones with `overrides`.
  absl::Status CompileNorm(const std::vector<FlatGroup>& groups, Bindings overrides);
  // CompileNorm has been called; 0 if it was without gradients.
  absl::StatusOr<double> SquaredNorm();
  virtual absl::Status Update(const GlobalBatch& global_batch) = 0;
  // Ends an update with what all ranks have added up.
  absl::Status ApplySums(std::span<const double> sums);

  absl::Status SendTo(std::string_view what, int rank, const Region& region);
  absl::StatusOr<HostTensor> ReceiveFrom(std::string_view what, int rank, const Type& type);

  // Those of weights, and the counters, which every rank has.
  std::vector<WholeTensor> WholeTensors() const;
  // `all`: else weights and statistics only.
  absl::Status Gather(bool all);
  // Allocates memory on rank 0 for what it does not have.
  absl::Status AllocateGathered(bool all);
  std::optional<Region> FindGathered(const std::string& name) const;
  // Has rank 0 restored a state?
  absl::StatusOr<bool> AgreeOnRestoring();

  // Makes this session one of `ranks`.
  void UseRanks(DataParallel* ranks);

  DataParallel* ranks_ = nullptr;  // null until Distribute
  std::vector<WeightDecision> whole_weights_;
  std::vector<WholeTensor> whole_state_;
  TransferCount transfers_;
  std::shared_ptr<GatheredTensors> gathered_weights_, gathered_rest_;  // tensors of Weights() share them
  std::map<std::string, HostTensor> restored_;  // what Restore has been given, until the ranks have it

 private:
  Arena scalars_;  // kSquaredNorm
  Bindings scalar_bindings_;
  std::unique_ptr<CompiledProgram> squared_norm_;
  bool restores_ = false;
};

inline constexpr char kGathering[] = "gathering of the state", kScattering[] = "scattering of the state";

}  // namespace onnxtrain
