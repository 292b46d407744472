// How the gradients of an update come together: a session runs programs, and leaves to its reducer which micro-batches
// it runs and what becomes of their gradients. Reducers for several machines are in optim/parallel.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/step/global_batch.h"
#include "optim/step/prepared_models.h"
#include "optim/step/program/programs.h"
#include "optim/step/session.h"

namespace onnxtrain {

class SessionImpl;
struct ReadyProgram;

// The base class is the local one: this machine runs all micro-batches, and adds their gradients in flat memory.
//
// An update is Begin, Accumulate, and Finish with the status of Accumulate; then the session applies what is pending.
class GradientReducer {
 public:
  explicit GradientReducer(SessionImpl* session) : session_(*session) {}
  GradientReducer(const GradientReducer&) = delete;
  virtual ~GradientReducer() = default;

  // Does it take the gradient between micro programs and apply? Then no update is a single program.
  virtual bool takes_gradients() const { return false; }
  // Does a signal end programs between two nodes? Not where other machines wait for them.
  virtual bool may_interrupt() const { return true; }
  virtual bool communicates() const { return false; }
  // Can an update be repeated with smaller micro-batches, where memory runs out?
  virtual bool may_halve() const { return true; }
  virtual int64_t bytes() const { return 0; }  // beside the state and programs

  // Has a model that is about to become a micro program exchange values with other machines.
  virtual absl::Status AddCollectives(PreparedModel* prepared) const { return absl::OkStatus(); }
  // The gradients that it takes out of a micro program while that runs, in the order in which they are complete. Empty:
  // programs write all gradients to flat memory.
  virtual OutputGroups taken_outputs() const { return {}; }
  // Has a new micro program say when gradients are complete (OutputListener).
  virtual void Watch(ReadyProgram* program) {}

  // Compiles the programs of an update over `samples` samples.
  virtual absl::Status PlanUpdate(int64_t samples);

  // Begins an update on all machines, or on none.
  virtual absl::Status Begin() { return absl::OkStatus(); }
  // Runs the micro-batches of this machine.
  virtual absl::Status Accumulate(const GlobalBatch& global_batch, int64_t samples);
  // Completes what is pending: gradients, losses and statistics of all machines. `ran`: how Accumulate has ended.
  virtual absl::Status Finish(const absl::Status& ran) { return ran; }
  // The same of what this machine has accumulated by itself (Session::Accumulate).
  virtual absl::Status FinishLocal() { return absl::OkStatus(); }
  // Called before an update is repeated with smaller micro-batches.
  virtual absl::Status Restart() { return absl::OkStatus(); }

  // Called before `micros` are run, with `pending` micro-batches before them. May drop those of other machines.
  virtual void BeginMicros(int64_t pending, std::vector<MicroBatch>* micros) {}
  virtual absl::Status BeginMicro(const MicroBatch& micro, bool last) { return absl::OkStatus(); }
  // Called after a program for samples has run, or has failed.
  virtual void EndProgram(ReadyProgram* program, const absl::Status& ran) {}

  virtual absl::StatusOr<Evaluation> Evaluate(const GlobalBatch& global_batch);

  // Fails where a machine is to do by itself what only all can do.
  virtual absl::Status CheckAccumulates() const { return absl::OkStatus(); }
  virtual absl::Status CheckWholeGradients() const { return absl::OkStatus(); }

 protected:
  SessionImpl& session_;
};

}  // namespace onnxtrain
