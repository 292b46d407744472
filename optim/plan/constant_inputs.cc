#include "optim/plan/constant_inputs.h"

#include <algorithm>
#include <optional>

#include "frontend/base/strings.h"
#include "optim/plan/input_plan.h"

namespace onnxtrain {
namespace {

bool IsCache(const std::string& name) {
  return name.starts_with("past_key_values") || name.starts_with("past_key_") || name.starts_with("past_value_") ||
         name == "past" || (name.starts_with("past_") && name.find_first_not_of("0123456789", 5) == std::string::npos);
}

// Returns the batch axis of a cache: the dimension with the name of a batch, else the first one if it is free or 1,
// else the first free one if several are free.
std::optional<size_t> FindCacheBatch(const OnnxModel::Input& input) {
  const auto free = std::ranges::count_if(input.dims, [](int64_t d) { return d < 0; });
  for (size_t i = 0; i < input.dim_names.size(); ++i) {
    if (NamesBatch(input.dim_names[i])) return i;
  }
  if (input.dims[0] < 0 || input.dims[0] == 1) return 0;
  return free < 2 ? std::nullopt : std::optional<size_t>(std::ranges::find(input.dims, -1) - input.dims.begin());
}

struct EmptyCache {
  HostTensor tensor;
  int batch_axis;
};

// Returns a cache of length 0. Its free extents, except the batch, are its length.
std::optional<EmptyCache> MakeEmptyCache(const OnnxModel::Input& input) {
  if (input.dims.size() < 3) return std::nullopt;
  const std::optional<size_t> batch = FindCacheBatch(input);
  if (!batch) return std::nullopt;
  Shape shape = input.dims;
  std::ranges::replace_if(
      shape, [](int64_t d) { return d < 0; }, 0);
  shape[*batch] = 1;
  if (NumElements(shape) > 0) return std::nullopt;
  return EmptyCache{HostTensor({input.dtype, shape}), static_cast<int>(*batch)};
}

}  // namespace

DefaultInputs FindDefaultInputs(const std::vector<OnnxModel::Input>& inputs,
                                const std::function<bool(const std::string&)>& taken) {
  DefaultInputs natural;
  for (const OnnxModel::Input& input : inputs) {
    if (taken != nullptr && taken(input.name)) continue;
    if (input.name == "use_cache_branch" && input.dtype == DType::kBool) {
      natural.fixed.emplace(input.name, HostTensor({input.dtype, Shape(input.dims.size(), 1)}));
      natural.notes.emplace_back("input 'use_cache_branch' is not in the data: false");
    } else if (auto empty = IsCache(input.name) ? MakeEmptyCache(input) : std::nullopt) {
      natural.notes.push_back(
          StrCat("input '", input.name, "' is not in the data: empty ", ToString(empty->tensor.type())));
      natural.fixed.emplace(input.name, std::move(empty->tensor));
      natural.batch_axes.emplace(input.name, empty->batch_axis);
    }
  }
  return natural;
}

std::vector<OnnxModel::Input> NeededInputs(const OnnxModel& model, const std::vector<std::string>& outputs) {
  return outputs.empty() ? model.inputs() : model.FindInputs(outputs);
}

std::vector<OnnxModel::Input> WithoutFixed(const std::vector<OnnxModel::Input>& inputs, const DefaultInputs& natural) {
  std::vector<OnnxModel::Input> rest;
  std::ranges::copy_if(inputs, std::back_inserter(rest),
                       [&](const auto& input) { return !natural.fixed.contains(input.name); });
  return rest;
}

namespace {

constexpr int64_t kTracedBatch = 101;  // a prime: extents that are multiples of it depend on the batch

bool Imports(const OnnxModel& model, ImportOptions import, int64_t batch) {
  import.batch = batch;
  import.half_weights = true;
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
  open.half_weights = true;
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
