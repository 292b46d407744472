#include "optim/plan/default_inputs.h"

#include <algorithm>
#include <optional>

#include "frontend/base/strings.h"
#include "optim/plan/batch_axes.h"

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

}  // namespace onnxtrain
