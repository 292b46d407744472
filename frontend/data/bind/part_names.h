// The names of the parts that data sets are divided into.
#pragma once

#include <string_view>

namespace onnxtrain {

// Parts for evaluation while a model is trained, the preferred ones first: what is called validation, then tests.
inline constexpr std::string_view kEvalPartNames[] = {"val", "valid", "validation", "dev", "eval", "test"};

}  // namespace onnxtrain
