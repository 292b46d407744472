#include <array>
#include <numeric>

#include "frontend/base/strings.h"
#include "optim/step/losses/loss_function.h"

namespace onnxtrain {
namespace {

std::array<std::span<const LossFunction>, 4> Tables() {
  return {ClassLosses(), ElementLosses(), RegionLosses(), SequenceLosses()};
}

}  // namespace

const LossFunction* FindLoss(std::string_view name) {
  for (const auto& table : Tables()) {
    for (const LossFunction& loss : table) {
      if (loss.name == name || (!loss.alias.empty() && loss.alias == name)) return &loss;
    }
  }
  return nullptr;
}

std::string LossNames() {
  std::string names;
  for (const auto& table : Tables()) {
    for (const LossFunction& loss : table) {
      if (loss.name != "output" && loss.name != "onnx") StrAppend(&names, loss.name, ", ");
    }
  }
  return names + "output:NAME, onnx:FILE";
}

std::optional<int> ClassAxis(const Shape& logits, Shape label) {
  if (logits.size() < 2) return std::nullopt;
  if (!label.empty() && label.back() == 1 && label.size() + 1 == logits.size())
    label.pop_back();  // [N,1] instead of [N]
  const Shape sample(logits.begin() + 1, logits.end());
  if (Shape(sample.begin(), sample.end() - 1) == label) return static_cast<int>(logits.size()) - 1;
  if (Shape(sample.begin() + 1, sample.end()) == label) return 1;
  return std::nullopt;
}

Val ClassIndices(Builder& b, int64_t classes, int rank, int axis) {
  std::vector<int64_t> index(classes);
  std::iota(index.begin(), index.end(), 0);
  Shape along(rank, 1);
  along[axis] = classes;
  return Reshape(b.Ints(index), along);
}

}  // namespace onnxtrain
