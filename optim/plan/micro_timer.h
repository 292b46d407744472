// Times a micro-batch for choices that depend on the machine.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "optim/memory/policy.h"
#include "optim/step/session.h"

namespace onnxtrain {

// Returns forward and backward pass of a micro-batch of options.micro_batch samples.
absl::StatusOr<Graph> BuildMicroGraph(PreparedModels& models, const SessionOptions& options);

// Times forward and backward pass of one micro-batch with the recomputation of a session that holds `session_bytes`
// beside its programs.
class MicroTimer {
 public:
  // The graph and the backend must outlive it.
  MicroTimer(const Graph& graph, const RecomputeSpec& recompute, int64_t session_bytes, Backend& backend)
      : graph_(graph), recompute_(recompute), session_bytes_(session_bytes), backend_(backend) {}

  // Returns the seconds of several runs, the fastest first. Each call allocates and frees its own memory.
  absl::StatusOr<std::vector<double>> Time(DType compute) const;

 private:
  const Graph& graph_;
  const RecomputeSpec recompute_;
  const int64_t session_bytes_;
  Backend& backend_;
};

}  // namespace onnxtrain
