#include <algorithm>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/onnx/importer/notes.h"
#include "frontend/onnx/tensor_compare.h"

namespace onnxtrain {
namespace {

constexpr size_t kMaxShown = 4;

std::vector<const ImportWeight*> FloatWeights(const WeightTable& table) {
  std::vector<const ImportWeight*> weights;
  for (const ImportWeight& weight : table.weights()) {
    if (!weight.state && IsFloat(weight.tensor.dtype())) weights.push_back(&weight);
  }
  return weights;
}

// "'a' and 'b'" for each two matrices with equal values, up to a transpose. Constant fills prove nothing.
std::vector<std::string> FindEqualPairs(std::vector<const ImportWeight*> weights) {
  std::erase_if(weights, [](auto* w) { return w->tensor.shape().size() != 2 || IsSplat(w->tensor); });
  std::ranges::stable_sort(weights, {}, [](auto* w) { return w->tensor.size(); });
  std::vector<std::string> pairs;
  for (size_t i = 0; i < weights.size(); ++i) {
    for (size_t k = i + 1; k < weights.size() && weights[k]->tensor.size() == weights[i]->tensor.size(); ++k) {
      const HostTensor &a = weights[i]->tensor, &b = weights[k]->tensor;
      const bool transposed = IsTransposeOf(a, b);
      if (!transposed && !(a.type() == b.type() && a.SameBytes(b))) continue;
      pairs.push_back(StrCat("'", Printable(weights[i]->name), "' and '", Printable(weights[k]->name), "'",
                             transposed ? " (transposed)" : ""));
    }
  }
  return pairs;
}

}  // namespace

void NoteTiedWeights(const WeightTable& weights, const LiveGraph& live, std::vector<std::string>* notes) {
  const std::vector<const ImportWeight*> floats = FloatWeights(weights);
  const auto tied = std::ranges::count_if(floats, [&](auto* w) { return live.Users(w->name).size() > 1; });
  if (tied > 0)
    notes->push_back(
        StrCat("weights with several readers: ", tied, ", trained as one each (their gradients are summed)"));
  std::vector<std::string> pairs = FindEqualPairs(floats);
  if (pairs.empty()) return;
  const std::string more = pairs.size() > kMaxShown ? StrCat(" and ", pairs.size() - kMaxShown, " more pairs") : "";
  pairs.resize(std::min(pairs.size(), kMaxShown));
  notes->push_back(StrCat("weights with equal values, possibly tied: ", absl::StrJoin(pairs, ", "), more,
                          "; each is trained separately (`tie` A=B trains two as one)"));
}

}  // namespace onnxtrain
