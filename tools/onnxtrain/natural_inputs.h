// Inputs of generative exports that training has no data for and that have one sensible value.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "frontend/onnx/import.h"

namespace onnxtrain::cli {

struct NaturalInputs {
  std::map<std::string, HostTensor> fixed;  // for ImportOptions: constants of the graph
  std::vector<std::string> notes;           // one line per input, for people
};

// The caches of attention (past_key_values.*), which are empty: their free extents become 0; and the switch of merged
// decoders (use_cache_branch), which is false. `taken` says which inputs have data after all.
NaturalInputs FindNaturalInputs(const std::vector<OnnxModel::Input>& inputs,
                                const std::function<bool(const std::string&)>& taken = nullptr);

// The inputs that a run needs: all, or where `outputs` names other ones than the model's own (LossOutputs in loss.h), those
// that they are computed from.
std::vector<OnnxModel::Input> NeededInputs(const OnnxModel& model, const std::vector<std::string>& outputs);

// Those of `inputs` that are not fixed.
std::vector<OnnxModel::Input> WithoutFixed(const std::vector<OnnxModel::Input>& inputs, const NaturalInputs& natural);

}  // namespace onnxtrain::cli
