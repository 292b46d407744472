// A session that computes one stage of a model; the other ranks compute the others.
//
// An update: every stage runs the forward and backward passes of all micro-batches in the order of `schedule.h`,
// sends activations to the next stage and gradients to the one before; the stages of a weight that several read sum its
// gradient; the squared norms and the losses are exchanged, so that all clip, skip and report alike; each stage updates
// its own weights.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "frontend/base/status.h"
#include "optim/distributed/pipeline/message_queue.h"
#include "optim/distributed/pipeline/placement.h"
#include "optim/distributed/pipeline/schedule.h"
#include "optim/distributed/pipeline/stage.h"
#include "optim/distributed/pipeline/stage_graphs.h"
#include "optim/distributed/pipeline/whole_state.h"
#include "optim/session_impl.h"

namespace onnxtrain {

class PipelineSession : public SessionImpl {
 public:
  using SessionImpl::SessionImpl;

  const std::vector<WeightDecision>& weights() const override { return whole_weights_; }
  bool is_stage() const override { return true; }
  bool divides_moments() const override { return true; }
  SessionMemory memory() const override;
  std::vector<ProgramProfile> Profile() const override;
  const Placement& placement() const { return placement_; }

  absl::Status Distribute(DataParallel* ranks, ShardLevel shard) override;
  size_t ExchangedSums() const override { return prepared_.loss.terms.size() + 2; }
  absl::Status GatherState() override;
  void ReleaseGathered() override;

  absl::Status Plan(int64_t samples) override;
  absl::Status Step(const GlobalBatch& global_batch) override;
  absl::StatusOr<Evaluation> Evaluate(const GlobalBatch& global_batch) override;
  absl::Status UseAverage(bool use) override;

  absl::StatusOr<std::map<std::string, HostTensor>> Weights() override;
  absl::Status SetWeights(const std::map<std::string, HostTensor>& weights) override;
  absl::StatusOr<std::vector<StateTensor>> State() override;
  absl::Status Restore(const std::map<std::string, HostTensor>& state, const SessionCounters& counters) override;

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
  absl::StatusOr<PreparedModel> PrepareTrained() override;
  absl::Status CheckBatch() override;
  Bindings ApplyBindings() const override;

 private:
  // A value in a message or in the memory of a micro-batch.
  struct Place {
    std::string name;
    size_t offset = 0, bytes = 0;
  };
  struct Layout {
    std::vector<Place> places;
    size_t bytes = 0;
    void Add(const std::string& name, const Type& type);
  };
  // The programs for micro-batches of one size. Both passes are one program in the last stage.
  struct StagePrograms {
    ProgramKind kind;
    int64_t samples;
    VariableExtents extents;
    std::unique_ptr<CompiledProgram> forward, backward;  // `backward`: null where it computes nothing
    std::unique_ptr<BatchFeeds> forward_feeds, backward_feeds;
    Layout received, sent;  // activations
    Layout received_gradients, sent_gradients;
    Layout saved;
  };
  // What a stage shares the gradient of with another one.
  struct Mirror {
    std::string weight;
    int owner = 0, stage = 0;
  };

  static constexpr size_t kGradientMessages = 2;  // one on its way, one that is read or written

  static absl::Status Refuse() { return Invalid("`pipeline`: a single stage cannot compute it"); }
  int stage() const { return options_.pipeline.index; }
  int stages() const { return options_.pipeline.count; }
  bool last() const { return stage() + 1 == stages(); }
  bool first() const { return stage() == 0; }

  absl::Status VerifyWhole(int64_t exported);
  absl::StatusOr<Stage> CutAt(ProgramKind kind, int64_t samples, const VariableExtents& extents, bool values);
  absl::Status EnsureWeights(const Stage& stage, ProgramKind kind, int64_t samples, const VariableExtents& extents);
  absl::StatusOr<StagePrograms*> GetPrograms(ProgramKind kind, const MicroBatch& micro);
  absl::StatusOr<StagePrograms*> GetPrograms(ProgramKind kind, int64_t samples, const VariableExtents& extents);
  absl::StatusOr<StagePrograms*> CompilePrograms(ProgramKind kind, int64_t samples, const VariableExtents& extents);
  absl::StatusOr<std::unique_ptr<CompiledProgram>> CompilePass(const Graph& graph, const char* name, int64_t samples,
                                                               const Bindings& overrides);
  void LayOutMessages(const Stage& stage, StagePrograms* programs) const;
  Bindings OverridesOf(ProgramKind kind);
  absl::Status EnsureSaved(size_t count, size_t bytes);
  absl::Status BindSaved(const StagePrograms& programs, int64_t micro);

  absl::Status PrepareUpdate(const GlobalBatch& global_batch);
  absl::Status Update(const GlobalBatch& global_batch);
  absl::Status Compute(std::span<double> sums);
  absl::Status Forward(int64_t micro, const StagePrograms& programs, absl::Status* computed);
  absl::Status Backward(int64_t micro, const StagePrograms& programs, absl::Status* computed);
  absl::Status ComputeForward(int64_t micro, const StagePrograms& programs);
  absl::Status ComputeBackward(int64_t micro, const StagePrograms& programs);
  absl::Status Feed(const CompiledProgram& program, const Layout& layout, std::span<const std::byte> message);
  absl::Status ReadOutputs(const CompiledProgram& program, const Layout& layout, std::span<std::byte> message);
  absl::Status ReserveMemory();
  absl::Status FinishQueues();
  absl::StatusOr<double> SquaredNorm();

  std::vector<Mirror> ListMirrors() const;
  absl::Status AllocateMirrors();
  absl::Status SumMirroredGradients();
  absl::Status SendMirroredWeights();
  absl::Status SendTo(std::string_view what, int rank, const Region& region);
  absl::StatusOr<HostTensor> ReceiveFrom(std::string_view what, int rank, const Type& type);

  absl::Status Gather(const WholeTensor& tensor);
  absl::Status ScatterRestored();
  bool IsLocal(const WholeTensor& tensor) const { return tensor.owner == kEveryRank || tensor.owner == stage(); }
  std::vector<WholeTensor> WholeTensors() const;
  std::optional<Region> FindGathered(const std::string& name) const;

  Placement placement_;
  std::vector<WeightDecision> whole_weights_;
  std::vector<WholeTensor> whole_state_;
  std::vector<Mirror> mirrors_;
  Arena mirrored_gradients_;  // of weights that an earlier stage updates
  Arena scalars_;             // kSquaredNorm
  Bindings scalar_bindings_, mirror_bindings_;
  bool mirrors_differ_ = false;  // from the weights that their owners have
  std::vector<std::unique_ptr<StagePrograms>> stage_programs_;
  std::vector<StagePrograms*> micro_programs_;  // of the micro-batches of the current batch
  std::unique_ptr<CompiledProgram> squared_norm_;
  std::vector<std::unique_ptr<Buffer>> slots_;  // saved values of the micro-batches that are kept
  size_t slot_bytes_ = 0;
  TransferCount transfers_;
  std::unique_ptr<MessageQueue> received_, sent_, received_gradients_, sent_gradients_;
  size_t planned_messages_ = 0;  // bytes, of a session that only plans
  std::unique_ptr<Arena> gathered_weights_, gathered_rest_;
  std::map<std::string, HostTensor> restored_;  // what Restore has been given, until the ranks have it
  bool restores_ = false;
};

}  // namespace onnxtrain
