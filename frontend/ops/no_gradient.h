// Why some canonical operators have no gradient: for people, in messages and in GRADIENTS.md.
#pragma once

#include <span>
#include <string_view>

namespace onnxtrain {

struct NoGradient {
  std::string_view op, reason;
};

// Every row whose status is kNotDifferentiable, in table order.
std::span<const NoGradient> OperatorsWithoutGradient();
// The reason; "" of an operator that is not in the table.
std::string_view WhyNoGradient(std::string_view op);

}  // namespace onnxtrain
