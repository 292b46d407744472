// Default values for inputs of generative exports that training has no data for.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "frontend/onnx/import.h"

namespace onnxtrain {

struct DefaultInputs {
  std::map<std::string, HostTensor> fixed;  // for ImportOptions: constants of the graph
  std::map<std::string, int> batch_axes;    // of caches
  std::vector<std::string> notes;           // one line per input, for people
};

// Attention caches (past_key_values.*) are empty: their free extents become 0. The switch of merged decoders
// (use_cache_branch) is false. Skips inputs that are `taken`, which have data.
DefaultInputs FindDefaultInputs(const std::vector<OnnxModel::Input>& inputs,
                                const std::function<bool(const std::string&)>& taken = nullptr);

// The inputs that a run needs: those that `outputs` (LossOutputs in loss.h) are computed from; all where it is empty.
std::vector<OnnxModel::Input> NeededInputs(const OnnxModel& model, const std::vector<std::string>& outputs);

// Those of `inputs` that are not fixed.
std::vector<OnnxModel::Input> WithoutFixed(const std::vector<OnnxModel::Input>& inputs, const DefaultInputs& natural);

}  // namespace onnxtrain
