// The state of a model whose parts live on several ranks, as that of one rank (TrainingState::Tensors).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "optim/step/prepared_models.h"
#include "optim/step/rules/rule.h"
#include "optim/step/training_state.h"

namespace onnxtrain {

inline constexpr int kEveryRank = -1;

struct WholeTensor {
  std::string name;
  bool of_model = false;
  Type type;
  int owner = 0;  // the rank that updates it, or kEveryRank
};

// Tensors of weights, statistics, averages and moments, in the order of one rank. `dtype`: of the state; `owner`: of a
// weight.
std::vector<WholeTensor> ListWholeState(const PreparedModel& whole, const std::function<int(const std::string&)>& owner,
                                        const OptimizerSpec& optimizer, DType dtype);

}  // namespace onnxtrain
