// Reasons why some canonical operators have no gradient, for messages and GRADIENTS.md.
#pragma once

#include <span>
#include <string_view>

namespace onnxtrain {

struct NoGradient {
  std::string_view op, reason;
};

// Returns every row whose status is kNotDifferentiable, in table order.
std::span<const NoGradient> OperatorsWithoutGradient();
// Returns the reason; "" for an operator that is not in the table.
std::string_view NoGradientReason(std::string_view op);

}  // namespace onnxtrain
