// A session that computes one stage of a model; each other rank computes another stage.
//
// In an update, every stage runs the forward and backward passes of all micro-batches in the order of
// OneForwardOneBackward, and sends activations to the next stage and gradients to the previous one. Stages that share a
// weight sum its gradient. All exchange squared norms and losses, so that they clip, skip and report alike. Then each
// stage updates its own weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/base/status.h"
#include "optim/parallel/part_session.h"
#include "optim/parallel/pipeline/message_queue.h"
#include "optim/parallel/pipeline/placement.h"
#include "optim/parallel/pipeline/stage.h"
#include "optim/step/session.h"

namespace onnxtrain {

// The order in which a pipeline stage computes the micro-batches of an update: one forward, one backward (1F1B).
//
// A stage first runs the forward passes of as many micro-batches as there are stages after it, then one backward pass
// after every forward pass. It keeps at most `InFlight` micro-batches at a time. Source: Narayanan et al., "PipeDream:
// Generalized Pipeline Parallelism for DNN Training" (2019), with a flush per update.

struct PassOfMicro {
  bool backward = false;
  int64_t micro = 0;

  bool operator==(const PassOfMicro&) const = default;
};

// Returns the maximum number of micro-batches that a stage keeps at a time.
inline int64_t InFlight(int stage, int stages, int64_t micros) { return std::min<int64_t>(stages - stage, micros); }

inline std::vector<PassOfMicro> OneForwardOneBackward(int stage, int stages, int64_t micros) {
  const int64_t ahead = InFlight(stage, stages, micros) - 1;
  std::vector<PassOfMicro> passes;
  for (int64_t i = 0; i < micros + ahead; ++i) {
    if (i < micros) passes.push_back({false, i});
    if (i >= ahead) passes.push_back({true, i - ahead});
  }
  return passes;
}

// Returns the fraction of an update in which a stage waits if all stages take equal times.
inline double BubbleShare(int stages, int64_t micros) {
  return static_cast<double>(stages - 1) / static_cast<double>(micros + stages - 1);
}

class PipelineSession : public PartSession {
 public:
  using PartSession::PartSession;

  SessionMemory memory() const override;
  std::vector<ProgramProfile> Profile() const override;
  const Placement& placement() const { return placement_; }

  absl::Status Distribute(DataParallel* ranks, ShardLevel shard) override;

  absl::Status Plan(int64_t samples) override;
  absl::StatusOr<Evaluation> Evaluate(const GlobalBatch& global_batch) override;
  absl::Status UseAverage(bool use) override;

  absl::Status SetWeights(const std::map<std::string, HostTensor>& weights) override;

 protected:
  absl::StatusOr<PreparedModel> PrepareTrained() override;
  const char* flag() const override { return "pipeline"; }
  bool leads() const override { return first(); }
  bool IsLocal(const WholeTensor& tensor) const override {
    return tensor.owner == kEveryRank || tensor.owner == stage();
  }
  ElementRuns FindOwnRuns(const WholeTensor& tensor) const override;
  absl::Status GatherTensor(const WholeTensor& tensor) override;
  absl::Status WriteOwn(const WholeTensor& tensor, const HostTensor& value) override;

 private:
  // The position of a value in a message or in the memory of a micro-batch.
  struct Place {
    std::string name;
    size_t offset = 0, bytes = 0;
  };
  struct Layout {
    std::vector<Place> places;
    size_t bytes = 0;
    void Add(const std::string& name, const Type& type);
  };
  // The programs for micro-batches of one size. In the last stage one program computes both passes.
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
  // A weight whose gradient this stage sums with another stage.
  struct Mirror {
    std::string weight;
    int owner = 0, stage = 0;
  };

  static constexpr size_t kGradientMessages = 2;  // one in flight, one that is read or written

  int stage() const { return options_.pipeline.index; }
  int stages() const { return options_.pipeline.count; }
  bool last() const { return stage() + 1 == stages(); }
  bool first() const { return stage() == 0; }

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

  absl::Status PrepareUpdates();  // of all batches
  absl::Status PrepareUpdate(const GlobalBatch& global_batch);
  absl::Status Update(const GlobalBatch& global_batch) override;
  absl::Status Compute(std::span<double> sums);
  absl::Status Forward(int64_t micro, const StagePrograms& programs, absl::Status* computed);
  absl::Status Backward(int64_t micro, const StagePrograms& programs, absl::Status* computed);
  absl::Status ComputeForward(int64_t micro, const StagePrograms& programs);
  absl::Status ComputeBackward(int64_t micro, const StagePrograms& programs);
  absl::Status Feed(const CompiledProgram& program, const Layout& layout, std::span<const std::byte> message);
  absl::Status ReadOutputs(const CompiledProgram& program, const Layout& layout, std::span<std::byte> message);
  absl::Status ReserveMemory();
  absl::Status FinishQueues();

  std::vector<Mirror> ListMirrors() const;
  absl::Status AllocateMirrors();
  absl::Status SumMirroredGradients();
  absl::Status SendMirroredWeights();

  absl::Status ScatterRestored();

  Placement placement_;
  std::vector<Mirror> mirrors_;
  Arena mirrored_gradients_;  // of weights that an earlier stage updates
  Bindings mirror_bindings_;
  bool mirrors_allocated_ = false;
  bool mirrors_differ_ = false;  // copies of weights differ from those of the stages that update them
  std::vector<std::unique_ptr<StagePrograms>> stage_programs_;
  std::vector<StagePrograms*> micro_programs_;  // of the micro-batches of the current batch
  std::vector<std::unique_ptr<Buffer>> slots_;  // saved values of the micro-batches that are kept
  size_t slot_bytes_ = 0;
  std::unique_ptr<MessageQueue> received_, sent_, received_gradients_, sent_gradients_;
  size_t planned_messages_ = 0;  // bytes, of a session that only plans
};

struct StagePlan {
  double time_share = 0;  // of the predicted time of a micro-batch
  SessionMemory memory;
  int64_t sent_bytes = 0;  // in an update, without the exchange of losses
};

// Plans updates over `samples` samples on `options.pipeline.count` ranks. Allocates nothing on the device.
absl::StatusOr<std::vector<StagePlan>> PlanStages(const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                                  SessionOptions options, int64_t samples);

}  // namespace onnxtrain
