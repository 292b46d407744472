#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/onnx/import/notes.h"
#include "frontend/onnx/read/resident_pages.h"
#include "frontend/onnx/recover/tensor_compare.h"

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

// What a matrix and its transpose have in common: the extents, the type and the elements of the diagonal.
std::string TransposeInvariant(const HostTensor& matrix) {
  constexpr int64_t kMaxElements = 16;
  const auto [rows, columns] = std::pair(matrix.shape()[0], matrix.shape()[1]);
  const size_t size = DTypeSize(matrix.dtype());
  std::string key = StrCat(std::min(rows, columns), "x", std::max(rows, columns), ToString(matrix.dtype()), ":");
  for (int64_t i = 0; i < std::min({rows, columns, kMaxElements}); ++i) {
    const std::byte* element = matrix.bytes().data() + size * (i * columns + i);
    key.append(reinterpret_cast<const char*>(element), size);
  }
  return key;
}

// "'a' and 'b'" for each matrix b that equals an earlier one, a, up to a transpose. Constant fills prove nothing.
class EqualPairs {
 public:
  void Add(const ImportWeight& weight) {
    if (weight.tensor.shape().size() != 2 || IsSplat(weight.tensor)) return;
    std::vector<const ImportWeight*>& candidates = different_[TransposeInvariant(weight.tensor)];
    for (const ImportWeight* other : candidates) {
      const HostTensor &a = other->tensor, &b = weight.tensor;
      const bool transposed = IsTransposeOf(a, b);
      const bool equal = transposed || (a.type() == b.type() && a.SameBytes(b));
      ReleaseMappedPages(a.bytes());
      if (!equal) continue;
      pairs_.push_back(StrCat("'", Printable(other->name), "' and '", Printable(weight.name), "'",
                              transposed ? " (transposed)" : ""));
      return;
    }
    if (candidates.size() < kMaxCandidates) candidates.push_back(&weight);
  }

  std::vector<std::string> Take() && { return std::move(pairs_); }

 private:
  // Bounds the comparisons for files whose matrices have one diagonal in common.
  static constexpr size_t kMaxCandidates = 16;

  std::map<std::string, std::vector<const ImportWeight*>> different_;
  std::vector<std::string> pairs_;
};

}  // namespace

void NoteTiedWeights(const WeightTable& weights, const LiveGraph& live, std::vector<std::string>* notes) {
  const std::vector<const ImportWeight*> floats = FloatWeights(weights);
  const auto tied = std::ranges::count_if(floats, [&](auto* w) { return live.Users(w->name).size() > 1; });
  if (tied > 0)
    notes->push_back(StrCat("weights with several readers: ", tied, ", each one weight (its gradients are summed)"));
  EqualPairs equal;
  for (const ImportWeight* weight : floats) {
    equal.Add(*weight);
    ReleaseMappedPages(weight->tensor.bytes());
  }
  std::vector<std::string> pairs = std::move(equal).Take();
  if (pairs.empty()) return;
  const std::string more = pairs.size() > kMaxShown ? StrCat(" and ", pairs.size() - kMaxShown, " more pairs") : "";
  pairs.resize(std::min(pairs.size(), kMaxShown));
  notes->push_back(StrCat("weights with equal values, possibly tied: ", absl::StrJoin(pairs, ", "), more,
                          "; each is trained separately (`tie` A=B trains two as one)"));
}

}  // namespace onnxtrain
