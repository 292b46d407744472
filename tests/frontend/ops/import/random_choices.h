// Repeatable random choices for tests that draw their cases.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>

#include "frontend/graph/type.h"

namespace onnxtrain {

class RandomChoices {
 public:
  explicit RandomChoices(uint64_t seed) : engine_(seed) {}

  int64_t Below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  bool Chance(int percent) { return Below(100) < percent; }
  template <typename T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[Below(static_cast<int64_t>(values.size()))];
  }
  // Often f32, else anything that can be computed with.
  DType AnyDType() {
    return Chance(60) ? DType::kFloat32 : static_cast<DType>(Below(static_cast<int64_t>(DType::kBool) + 1));
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace onnxtrain
