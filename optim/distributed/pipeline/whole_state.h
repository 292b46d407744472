// The state of a model whose stages live on several ranks, as that of one rank (TrainingState::Tensors).
#pragma once

#include <string>
#include <vector>

#include "optim/distributed/pipeline/placement.h"
#include "optim/prepare.h"
#include "optim/rules/rule.h"
#include "optim/training_state.h"

namespace onnxtrain {

inline constexpr int kEveryRank = -1;

struct WholeTensor {
  std::string name;
  bool of_model = false;
  Type type;
  int owner = 0;  // the stage that updates it, or kEveryRank
};

// Tensors of weights, statistics, averages and moments, in the order of one rank. `dtype`: of the state.
std::vector<WholeTensor> ListWholeState(const PreparedModel& whole, const Placement& placement,
                                        const OptimizerSpec& optimizer, DType dtype);

}  // namespace onnxtrain
