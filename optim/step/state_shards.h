// Which part of the state this machine holds, and how machines that divide it exchange their parts: after updates, and
// for checkpoints and exports. Divided state is in optim/parallel.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "optim/step/state.h"

namespace onnxtrain {

// The base class holds all of the state.
class StateShards {
 public:
  StateShards() = default;
  StateShards(const StateShards&) = delete;
  virtual ~StateShards() = default;

  // Has a program gather the weights that it reads and this machine has not.
  virtual absl::StatusOr<Graph> AddGathers(Graph graph) const { return graph; }
  // Exchanges the weights that an update has changed.
  virtual absl::Status ExchangeUpdated() { return absl::OkStatus(); }
  // As Session::GatherState and Session::GatherWeights.
  virtual absl::Status GatherMoments() { return absl::OkStatus(); }
  virtual absl::Status GatherWeights() { return absl::OkStatus(); }
  // Fails where no machine has whole weights.
  virtual absl::Status CheckWholeWeights() const { return absl::OkStatus(); }
  // Fails where whole tensors of a state can no longer be taken over.
  virtual absl::Status CheckRestores() const { return absl::OkStatus(); }
};

}  // namespace onnxtrain
