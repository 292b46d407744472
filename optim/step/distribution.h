// Interfaces between a session and the ranks that it trains with: GradientReducer selects the micro-batches of this
// rank and sums their gradients; StateShards decides which part of the state it holds. The base classes are for a
// single rank; optim/parallel implements the others.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "optim/step/global_batch.h"
#include "optim/step/prepared_models.h"
#include "optim/step/program/programs.h"
#include "optim/step/session.h"
#include "optim/step/state.h"

namespace onnxtrain {

class SessionImpl;
struct CompiledBatchProgram;

// Sums the gradients of an update. The base class runs all micro-batches on this rank and adds their gradients in flat
// memory. An update calls Begin, Accumulate, and Finish with the status of Accumulate; then the session applies the
// pending sums.
class GradientReducer {
 public:
  explicit GradientReducer(SessionImpl* session) : session_(*session) {}
  GradientReducer(const GradientReducer&) = delete;
  virtual ~GradientReducer() = default;

  // Returns true if the reducer needs the gradient between the micro programs and apply, so that no update can run as a
  // single program.
  virtual bool takes_gradients() const { return false; }
  // Returns true if a signal may stop programs between two nodes; false if other ranks wait for them.
  virtual bool may_interrupt() const { return true; }
  virtual bool communicates() const { return false; }
  // Returns true if an update can be repeated with smaller micro-batches after memory has run out.
  virtual bool may_halve() const { return true; }
  virtual int64_t bytes() const { return 0; }  // memory in addition to state and programs

  // Inserts collective operators into a model that is about to become a micro program.
  virtual absl::Status AddCollectives(PreparedModel* prepared) const { return absl::OkStatus(); }
  // Returns the gradients that the reducer copies out of a running micro program, in the order in which they are
  // complete. Empty if programs write all gradients to flat memory.
  virtual OutputGroups taken_outputs() const { return {}; }
  // Registers for the completion of gradients in a new micro program (OutputListener).
  virtual void Watch(CompiledBatchProgram* program) {}

  // Compiles the programs of an update over `samples` samples.
  virtual absl::Status PlanUpdate(int64_t samples);

  // Begins an update on all ranks, or on none.
  virtual absl::Status Begin() { return absl::OkStatus(); }
  // Runs the micro-batches of this rank.
  virtual absl::Status Accumulate(const GlobalBatch& global_batch, int64_t samples);
  // Completes the pending sums of gradients, losses and statistics over all ranks. `ran` is the status of Accumulate.
  virtual absl::Status Finish(const absl::Status& ran) { return ran; }
  // Completes the sums that this rank has accumulated alone (Session::Accumulate).
  virtual absl::Status FinishLocal() { return absl::OkStatus(); }
  // Called before an update is repeated with smaller micro-batches.
  virtual absl::Status Restart() { return absl::OkStatus(); }

  // Called before `micros` are run, after `pending` micro-batches. May drop micro-batches of other ranks.
  virtual void BeginMicros(int64_t pending, std::vector<MicroBatch>* micros) {}
  virtual absl::Status BeginMicro(const MicroBatch& micro, bool last) { return absl::OkStatus(); }
  // Called after a program that reads samples has run or failed.
  virtual void EndProgram(CompiledBatchProgram* program, const absl::Status& ran) {}

  virtual absl::StatusOr<Evaluation> Evaluate(const GlobalBatch& global_batch);

  // Fail if a single rank cannot accumulate, or does not have whole gradients.
  virtual absl::Status CheckAccumulates() const { return absl::OkStatus(); }
  virtual absl::Status CheckWholeGradients() const { return absl::OkStatus(); }

 protected:
  SessionImpl& session_;
};

// Exchanges the parts of the state that ranks divide, after updates and for checkpoints and exports. The base class
// holds the whole state.
class StateShards {
 public:
  StateShards() = default;
  StateShards(const StateShards&) = delete;
  virtual ~StateShards() = default;

  // Inserts gathers of the weights that a program reads and this rank does not hold.
  virtual absl::StatusOr<Graph> AddGathers(Graph graph) const { return graph; }
  // Sends the weights that this rank has updated to the others, and receives theirs.
  virtual absl::Status ExchangeUpdated() { return absl::OkStatus(); }
  // Implement Session::GatherState and Session::GatherWeights.
  virtual absl::Status GatherMoments() { return absl::OkStatus(); }
  virtual absl::Status GatherWeights() { return absl::OkStatus(); }
  // Fails if no rank has whole weights.
  virtual absl::Status CheckWholeWeights() const { return absl::OkStatus(); }
  // Fails if whole tensors of a state can no longer be restored.
  virtual absl::Status CheckRestores() const { return absl::OkStatus(); }
};

}  // namespace onnxtrain
