// Collects the elementwise rows of elementwise_{unary,activation,binary}.cc.
#include "frontend/ops/elementwise.h"

namespace onnxtrain {

std::span<const OpRow> ElementwiseOps() {
  static const auto* rows = [] {
    auto* all = new std::vector<OpRow>;
    for (auto part : {UnaryRows, ActivationRows, BinaryRows}) {
      for (OpRow& row : part()) {
        row.elementwise = true;
        all->push_back(std::move(row));
      }
    }
    return all;
  }();
  return *rows;
}

}  // namespace onnxtrain
