#include "backends/cpu/runtime/parallel.h"

#include "frontend/base/log.h"

namespace onnxtrain::cpu {

int64_t Loop::rows() const {
  int64_t n = 1;
  for (size_t a = 0; a + 1 < extents.size(); ++a) n *= extents[a];
  return n;
}

Loop MakeLoop(const Shape& extents, std::span<const Shape> strides) {
  CHECK_LE(strides.size(), static_cast<size_t>(kMaxOperands));
  Loop loop{.operands = static_cast<int>(strides.size())};
  for (size_t a = 0; a < extents.size(); ++a) {
    if (extents[a] == 1) continue;
    OperandOffsets here{};
    for (size_t k = 0; k < strides.size(); ++k) here[k] = strides[k][a];
    bool merges = !loop.extents.empty();
    for (size_t k = 0; k < strides.size() && merges; ++k) merges = loop.strides.back()[k] == here[k] * extents[a];
    if (merges) {
      loop.extents.back() *= extents[a];
      loop.strides.back() = here;
    } else {
      loop.extents.push_back(extents[a]);
      loop.strides.push_back(here);
    }
  }
  if (loop.extents.empty()) {  // one element
    loop.extents.push_back(1);
    loop.strides.push_back({});
  }
  return loop;
}

Shape BroadcastStrides(const Shape& from, const Shape& to) {
  Shape strides(to.size(), 0);
  const Shape dense = Strides(from);
  const size_t missing = to.size() - from.size();
  for (size_t a = 0; a < from.size(); ++a) strides[missing + a] = from[a] == 1 ? 0 : dense[a];
  return strides;
}

Loop BroadcastLoop(const Shape& output, std::span<const Shape> inputs) {
  std::vector<Shape> strides = {Strides(output)};
  for (const Shape& input : inputs) strides.push_back(BroadcastStrides(input, output));
  return MakeLoop(output, strides);
}

}  // namespace onnxtrain::cpu
