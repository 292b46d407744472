#include "tools/onnxtrain/report/named_results.h"

#include <set>

#include "frontend/base/strings.h"

namespace onnxtrain::cli {

NamedArrays NamedResults(const GradientResult& result) {
  constexpr char kLoss[] = "loss";
  std::set<std::string> others = {kLoss};
  for (const auto& [name, value] : result.gradients) others.insert(kGradPrefix + name);
  for (const auto& [name, value] : result.input_gradients) others.insert(kGradPrefix + name);
  NamedArrays named = {{kLoss, HostTensor::Scalar(DType::kFloat64, result.loss)}};
  for (const auto& [output, value] : result.outputs) {
    std::string name = output;
    while (others.contains(name) || (name != output && result.outputs.contains(name))) name = StrCat("output:", name);
    named.emplace_back(name, value);
  }
  for (const auto* gradients : {&result.gradients, &result.input_gradients}) {
    for (const auto& [name, value] : *gradients) named.emplace_back(kGradPrefix + name, value);
  }
  return named;
}

}  // namespace onnxtrain::cli
