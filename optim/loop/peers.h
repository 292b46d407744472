// The other processes of a run, which make the same updates and run the same loop: what one of them finds out, all must
// act on alike. Those of distributed runs are in optim/parallel.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "frontend/data/load/loader.h"
#include "optim/loop/evaluate.h"
#include "optim/step/session.h"

namespace onnxtrain {

// What a process spends on communication in updates, without the first one, in which programs are compiled. With waits
// for others.
struct CommunicationTime {
  int64_t updates = 0;
  double seconds = 0;      // in collectives
  double exposed = 0;      // of these, while nothing is computed
  int64_t bytes = 0;       // of gradients that are summed
  int64_t sent_bytes = 0;  // by this process: gradients, and weights where moments are divided
};

// What one process knows and all must do: bits.
enum LoopRequest : unsigned { kRequestStop = 1, kRequestEndOfTime = 2, kRequestEvaluation = 4, kRequestSave = 8 };

// The base class is that of a process that is alone.
class Peers {
 public:
  Peers() = default;
  Peers(const Peers&) = delete;
  virtual ~Peers() = default;

  virtual int size() const { return 1; }  // with this process
  virtual bool alone() const { return true; }

  // Asks all for what the bits say, with the next update.
  virtual void Ask(unsigned requests) {}
  // Is the request to be followed now? `own`: whether this process makes it. Several follow what any of them had asked
  // for by the last update.
  virtual bool Follows(LoopRequest request, bool own) const { return own; }

  // Tells the others of an error before an update, and returns the one that all return.
  virtual absl::Status ExchangeFailure(const absl::Status& own) { return own; }
  // Has the last exchange or agreement returned an error, the same to all?
  virtual bool failed_together() const { return false; }
  // To be called with the end of the training loop. The others fail with an error that they do not know.
  virtual void EndLoop(const absl::Status& ended) {}

  // Fails, alike for all, where the weights of two differ.
  virtual absl::Status CompareWeights(Session& session) { return absl::OkStatus(); }
  // Adds the evaluations of all batches to *total, and their samples to *samples, the same for all. `load`: of one
  // process that is alone.
  virtual absl::Status Evaluate(Session& session, EvaluatedBatches& batches, const LoaderOptions& load,
                                Evaluation* total, int64_t* samples);

  // Has each save its parts of the state, at the same time as the others. `finish` waits for what goes on meanwhile.
  virtual void SaveParts(const std::function<void()>& finish) {}
  virtual bool saves_parts() const { return false; }
  // Sets where what is gathered is kept, in files without a name; "": in memory.
  virtual void SetScratchFolder(const std::string& folder) {}

  virtual CommunicationTime time() const { return {}; }
};

}  // namespace onnxtrain
