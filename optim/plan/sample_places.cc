#include "optim/plan/sample_places.h"

#include <algorithm>

#include "frontend/base/strings.h"
#include "optim/plan/batch_axes.h"

namespace onnxtrain {
namespace {

constexpr int64_t kTracedBatch = 101;  // a prime: extents that are multiples of it depend on the batch

bool Imports(const OnnxModel& model, ImportOptions import, int64_t batch) {
  import.batch = batch;
  return Import(model, import).ok();
}

// Returns true if integers computed from the feed `name` index an axis whose extent depends on kTracedBatch.
bool IndexesBatch(const Graph& graph, const std::string& name) {
  std::vector<bool> computed(graph.values().size());
  const auto follows = [&](ValueId value, int64_t axis) {
    const Type& type = graph.type(value);
    return IsFloat(type.dtype) && axis < type.rank() && type.shape[axis] % kTracedBatch == 0;
  };
  if (const GraphInput* input = graph.FindInput(name); input != nullptr) computed[input->value] = true;
  for (const Node& node : graph.nodes()) {
    const bool any = std::ranges::any_of(node.inputs, [&](ValueId v) { return v != kNoValue && computed[v]; });
    for (const ValueId output : node.outputs) computed[output] = any;
    if (!any || node.inputs.size() < 2 || !node.attrs.Has("axis")) continue;
    const ValueId index = node.inputs[1];
    const int64_t axis = node.attrs.Int("axis");
    const bool indexes = index != kNoValue && computed[index] && IsInteger(graph.type(index).dtype);
    if (indexes && (follows(node.inputs[0], axis) || follows(node.outputs[0], axis))) return true;
  }
  return false;
}

// Returns true if the elements are integers from 0 to samples - 1 and include the largest.
bool NumbersSamples(const HostTensor& constant, int64_t samples) {
  if (!IsInteger(constant.dtype()) || constant.size() < 2) return false;
  int64_t smallest = constant.IntAt(0), largest = smallest;
  for (int64_t i = 1; i < constant.size(); ++i) {
    smallest = std::min(smallest, constant.IntAt(i));
    largest = std::max(largest, constant.IntAt(i));
  }
  return smallest >= 0 && largest == samples - 1;
}

}  // namespace

std::string FindInputOfPlaces(const OnnxModel& model, const ImportOptions& import,
                              const std::vector<std::string>& constants, int64_t samples) {
  if (HasAddedAxis(import.batch_axes)) return "";
  ImportOptions open = import;  // integers are feeds, so that their values are not part of the graph
  open.batch = kTracedBatch;
  for (const std::string& name : constants) {
    const HostTensor& constant = import.fixed_inputs.at(name);
    if (!IsInteger(constant.dtype()) || constant.size() < 2) continue;
    open.fixed_inputs.erase(name);
    open.batch_axes[name] = kNoBatchAxis;
    open.input_shapes[name] = constant.shape();
  }
  const auto imported = Import(model, open);
  for (const std::string& name : constants) {
    if (imported.ok() && IndexesBatch(imported->graph, name)) return name;
    const HostTensor& constant = import.fixed_inputs.at(name);
    if (!imported.ok() && NumbersSamples(constant, samples)) return name;
    if (std::ranges::find(constant.shape(), samples) == constant.shape().end()) continue;
    if (Imports(model, import, samples) && !Imports(model, import, samples + 1)) return name;
  }
  return "";
}

std::string DescribePlaces(const std::string& input, int64_t samples) {
  return StrCat("constant input '", input, "' refers to the samples by their places: all ", samples,
                " are one batch, in their order");
}

}  // namespace onnxtrain
