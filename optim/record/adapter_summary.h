// Summarizes trained adapters for summary.json and the report.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/edit/model_edits.h"
#include "optim/record/telemetry/summary.h"

namespace onnxtrain {

// Returns a summary per update, in their order, with the singular values of scale·B·A. `weights` holds A and B by name;
// an update without them keeps its initial values.
std::vector<AdapterSummary> SummarizeAdapters(const std::vector<LowRankUpdate>& updates,
                                              const std::map<std::string, HostTensor>& weights);

}  // namespace onnxtrain
