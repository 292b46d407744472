#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {

std::vector<Case> QuantizeCases() {
  return {
      {"StraightThrough", "StraightThrough", {Fixed(Normal({3, 5})), Normal({3, 5})}, {}},
      {"StraightThrough_stop", "StraightThrough", {Fixed(Normal({4}))}, {}},
  };
}

}  // namespace onnxtrain::cases
