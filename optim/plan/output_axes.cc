#include "optim/plan/output_axes.h"

#include <algorithm>
#include <set>

#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

BatchAxes FindTimeFirstOutputs(const OnnxModel& model) {
  std::set<std::string> batches;
  for (const ModelInput& input : model.inputs()) {
    if (!input.dim_names.empty() && !input.dim_names[0].empty()) batches.insert(input.dim_names[0]);
  }
  BatchAxes axes;
  for (const ParsedValue& output : model.parsed().graph.outputs) {
    const std::vector<std::string>& names = output.dim_names;
    if (names.size() == 3 && batches.contains(names[1]) && !batches.contains(names[0])) axes[output.name] = 1;
  }
  return axes;
}

}  // namespace onnxtrain
