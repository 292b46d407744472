// Declares the communication of the training loop with the other processes of a run, which make the same updates in the
// same loop, so that all act alike on what one finds out. optim/parallel implements it for distributed runs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "frontend/data/load/loader.h"
#include "optim/loop/evaluate.h"
#include "optim/step/session.h"

namespace onnxtrain {

// Communication of one process during updates, including waits for other ranks. Excludes the first update, which
// compiles programs.
struct CommunicationTime {
  int64_t updates = 0;
  double seconds = 0;      // time in collectives
  double exposed = 0;      // the part of `seconds` in which nothing is computed
  int64_t bytes = 0;       // bytes of summed gradients
  int64_t sent_bytes = 0;  // bytes that this process sent: gradients, and weights if moments are sharded
};

// Requests of one process that all ranks follow; a bit mask.
enum LoopRequest : unsigned { kRequestStop = 1, kRequestEndOfTime = 2, kRequestEvaluation = 4, kRequestSave = 8 };

// Communication of the training loop with other ranks. The base class serves a run of one process.
class Peers {
 public:
  Peers() = default;
  Peers(const Peers&) = delete;
  virtual ~Peers() = default;

  virtual int size() const { return 1; }  // including this process
  virtual bool alone() const { return true; }

  // Sends the LoopRequest bits to all ranks with the next update.
  virtual void Ask(unsigned requests) {}
  // Returns true if the request takes effect now. `own`: this process makes the request. With several ranks, a request
  // takes effect if any rank had made it by the last update.
  virtual bool Follows(LoopRequest request, bool own) const { return own; }

  // Reports this rank's error before an update to the other ranks; returns the error that all ranks return.
  virtual absl::Status ExchangeFailure(const absl::Status& own) { return own; }
  // Returns true if the last exchange or agreement returned the same error to all ranks.
  virtual bool failed_together() const { return false; }
  // Must be called with the result of the training loop. The other ranks fail if they do not know the error.
  virtual void EndLoop(const absl::Status& ended) {}

  // Fails on all ranks if the weights of two ranks differ.
  virtual absl::Status CompareWeights(Session& session) { return absl::OkStatus(); }
  // Adds the evaluations of all batches to *total, and their samples to *samples, with the same result on all ranks.
  // `load` has the options of a single process.
  virtual absl::Status Evaluate(Session& session, EvaluatedBatches& batches, const LoaderOptions& load,
                                Evaluation* total, int64_t* samples);

  // Makes each rank save its parts of the state, all at the same time. `finish` waits for concurrent work.
  virtual void SaveParts(const std::function<void()>& finish) {}
  virtual bool saves_parts() const { return false; }
  // Sets the folder for gathered tensors, kept in unnamed files; "": in memory.
  virtual void SetScratchFolder(const std::string& folder) {}

  virtual CommunicationTime time() const { return {}; }
};

}  // namespace onnxtrain
