// Chooses default values for the inputs of generative exports that have no training data, and finds constant inputs
// that refer to samples by position in the data, such as the edges or the adjacency matrix of a graph whose nodes are
// the samples.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "frontend/onnx/import.h"

namespace onnxtrain {

struct DefaultInputs {
  std::map<std::string, HostTensor> fixed;  // for ImportOptions: constants of the graph
  std::map<std::string, int> batch_axes;    // batch axes of caches
  std::vector<std::string> notes;           // one line per input, for people
};

// Returns constants for inputs that have a natural default: attention caches (past_key_values.*) are empty, their free
// extents 0, and the switch of merged decoders (use_cache_branch) is false. Skips inputs that are `taken`, which have
// data.
DefaultInputs FindDefaultInputs(const std::vector<OnnxModel::Input>& inputs,
                                const std::function<bool(const std::string&)>& taken = nullptr);

// Returns the inputs that `outputs` (LossOutputs in loss.h) depend on; all inputs if `outputs` is empty.
std::vector<OnnxModel::Input> NeededInputs(const OnnxModel& model, const std::vector<std::string>& outputs);

// Returns the `inputs` for which `natural.fixed` has no constant.
std::vector<OnnxModel::Input> WithoutFixed(const std::vector<OnnxModel::Input>& inputs, const DefaultInputs& natural);

// Returns the first of the inputs `constants` whose integers index the batch axis, or that accepts only one batch of
// all `samples`; "" if there is none. If the model cannot be imported without the values of the constants, treats
// integers below `samples` as indices. `import` has these values and the outputs of the run.
std::string FindInputOfPlaces(const OnnxModel& model, const ImportOptions& import,
                              const std::vector<std::string>& constants, int64_t samples);

// Returns the note for users.
std::string DescribePlaces(const std::string& input, int64_t samples);

}  // namespace onnxtrain
