#include "optim/auto/default_inputs.h"

#include <algorithm>
#include <optional>

#include "frontend/base/strings.h"

namespace onnxtrain {
namespace {

bool IsCache(const std::string& name) {
  return name.starts_with("past_key_values") || name.starts_with("past_key_") || name.starts_with("past_value_") ||
         name == "past" || (name.starts_with("past_") && name.find_first_not_of("0123456789", 5) == std::string::npos);
}

// A cache has the batch as its first axis and at least one free extent after it, the length.
std::optional<HostTensor> EmptyCache(const OnnxModel::Input& input) {
  if (input.dims.size() < 3) return std::nullopt;
  Shape shape = {1};
  bool free = false;
  for (size_t i = 1; i < input.dims.size(); ++i) {
    free |= input.dims[i] < 0;
    shape.push_back(std::max<int64_t>(input.dims[i], 0));
  }
  return free ? std::optional(HostTensor({input.dtype, shape})) : std::nullopt;
}

}  // namespace

DefaultInputs FindDefaultInputs(const std::vector<OnnxModel::Input>& inputs,
                                const std::function<bool(const std::string&)>& taken) {
  DefaultInputs natural;
  for (const OnnxModel::Input& input : inputs) {
    if (taken != nullptr && taken(input.name)) continue;
    if (input.name == "use_cache_branch" && input.dtype == DType::kBool) {
      natural.fixed.emplace(input.name, HostTensor({input.dtype, Shape(input.dims.size(), 1)}));
      natural.notes.push_back("input 'use_cache_branch' is not in the data: false");
    } else if (auto empty = IsCache(input.name) ? EmptyCache(input) : std::nullopt) {
      natural.notes.push_back(StrCat("input '", input.name, "' is not in the data: empty ", ToString(empty->type())));
      natural.fixed.emplace(input.name, *std::move(empty));
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
