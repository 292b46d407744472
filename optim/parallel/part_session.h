// Base of sessions that hold a part of the model while other ranks hold the rest. It knows the names and types of the
// whole state, which can be gathered on rank 0.
#pragma once

#include <functional>
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
#include "optim/step/prepared_models.h"
#include "optim/step/rules/rule.h"
#include "optim/step/session_impl.h"
#include "optim/step/state.h"
#include "optim/step/training_state.h"

namespace onnxtrain {

inline constexpr int kEveryRank = -1;

struct WholeTensor {
  std::string name;
  bool of_model = false;
  Type type;
  int owner = 0;  // the rank that updates it, or kEveryRank
};

// Returns the tensors of weights, statistics, averages and moments, in the order of a session with the whole model.
// `dtype` is the type of the state; `owner` returns the rank that updates a weight.
std::vector<WholeTensor> ListWholeState(const PreparedModel& whole, const std::function<int(const std::string&)>& owner,
                                        const OptimizerSpec& optimizer, DType dtype);

// The reducer of a PartSession. It does nothing but forbid interruptions, because other ranks wait for the programs;
// the session itself exchanges gradients.
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
  virtual const char* flag() const = 0;                       // the command-line flag that divides the model
  virtual bool leads() const = 0;                             // true on rank 0
  virtual bool IsLocal(const WholeTensor& tensor) const = 0;  // true if this rank holds the whole tensor
  // Returns the elements of a tensor that this rank writes to a checkpoint; length 0 if none.
  virtual ElementRuns FindOwnRuns(const WholeTensor& tensor) const = 0;
  // Gathers the tensor in the memory that rank 0 has allocated, unless rank 0 already holds it.
  virtual absl::Status GatherTensor(const WholeTensor& tensor) = 0;
  // Writes this rank's part of a tensor from the whole value.
  virtual absl::Status WriteOwn(const WholeTensor& tensor, const HostTensor& value) = 0;

  bool norm_is_given() const override { return true; }
  absl::Status CheckBatch() override;

  absl::Status Refuse() const { return Invalid("`", flag(), "`: a part of the model cannot compute it"); }
  absl::Status VerifyWhole(int64_t exported);
  // Compiles the squared norm of the flat gradients of `groups`, or of the gradients that `overrides` binds.
  absl::Status CompileNorm(const std::vector<FlatGroup>& groups, const Bindings& overrides);
  // Runs the program of CompileNorm; returns 0 if that had no gradients.
  absl::StatusOr<double> SquaredNorm();
  virtual absl::Status Update(const GlobalBatch& global_batch) = 0;
  // Applies an update with the sums over all ranks.
  absl::Status ApplySums(std::span<const double> sums);

  absl::Status SendTo(std::string_view what, int rank, const Region& region);
  absl::StatusOr<HostTensor> ReceiveFrom(std::string_view what, int rank, const Type& type);

  // Returns the whole tensors of the state and the counters, which every rank holds.
  std::vector<WholeTensor> WholeTensors() const;
  // Gathers the whole state on rank 0, or only weights and statistics if `all` is false.
  absl::Status Gather(bool all);
  // Allocates memory on rank 0 for the tensors that it does not hold.
  absl::Status AllocateGathered(bool all);
  std::optional<Region> FindGathered(const std::string& name) const;
  // Returns true on all ranks if rank 0 has restored a state.
  absl::StatusOr<bool> AgreeOnRestoring();

  // Makes this session one of `ranks`.
  void UseRanks(DataParallel* ranks);

  DataParallel* ranks_ = nullptr;  // null until Distribute
  std::vector<WeightDecision> whole_weights_;
  std::vector<WholeTensor> whole_state_;
  TransferCount transfers_;
  std::shared_ptr<GatheredTensors> gathered_weights_, gathered_rest_;  // tensors of Weights() share them
  std::map<std::string, HostTensor> restored_;  // argument of Restore, until it is sent to the ranks

 private:
  std::unique_ptr<CompiledProgram> squared_norm_;
  bool restores_ = false;
};

inline constexpr char kGathering[] = "gathering of the state", kScattering[] = "scattering of the state";

}  // namespace onnxtrain
