// Collective operators in the programs of an update, of which every rank runs as many rounds: one micro-batch each, or
// none. A rank without a micro-batch in a round takes part with its weights, and with zeros for samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/collectives.h"
#include "frontend/graph/graph.h"
#include "optim/step/state.h"

namespace onnxtrain {

class GraphExchange {
 public:
  // Meets all ranks in a group of its own, since gradients are summed while programs run, and since a rank that fails
  // closes it. `number`: of the group, another one each time.
  static absl::StatusOr<std::unique_ptr<GraphExchange>> Create(Collectives& ranks, int64_t number = 0);

  Collectives* ranks() { return ranks_.get(); }

  // Begins an update.
  void Begin(int64_t rounds) { missing_ = rounds, broken_ = false; }
  // A program has run, or has failed at any of its operators.
  void AddIteration(const absl::Status& ran);
  // This rank takes part in no round any more, for an error of its own or of another: all ranks fail in theirs at once.
  void Break(const absl::Status& why);
  // Has an operation failed since ranks do not answer? If not, those of the whole training can still agree.
  bool LostRanks() const { return broken_ && !ranks_->closed(); }
  // Does this rank owe rounds that it can take part in?
  bool IsBehind() const { return missing_ > 0 && !broken_; }
  // Takes part in a round: with what this rank has of inputs in `state`, in host memory, and with zeros for values that
  // are computed. `program`: as ranks with samples run it, of any batch size.
  absl::Status RunIdle(const Graph& program, const Bindings& state);

 private:
  explicit GraphExchange(std::unique_ptr<Collectives> ranks) : ranks_(std::move(ranks)) {}

  std::unique_ptr<Collectives> ranks_;
  int64_t missing_ = 0;
  bool broken_ = false;
  std::vector<std::byte> zeros_, result_, workspace_;
};

}  // namespace onnxtrain
