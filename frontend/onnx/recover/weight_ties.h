// Ties what an exporter computed as 1 − p to the parameter p that the file also holds.
#pragma once

#include <string>
#include <unordered_set>

#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/write/lazy_tensor.h"

namespace onnxtrain {

// A program that blends by a parameter, p·a + (1 − p)·b, has its 1 − p folded: as a number that is not trained, or as a
// second weight. Each initializer that the exporter computed and that is 1 − p for exactly one named parameter becomes
// a node over it. Numbers that are equal by chance, such as those of p = 1 and p = 0, are left alone. The names stay in
// the order of the initializers. `fixed`: names that must remain initializers.
void TieComplements(const std::unordered_set<std::string>& fixed, ParsedGraph* graph);

// 1 − p for every element, rounded to the element type.
LazyTensor MakeComplement(const LazyTensor& weight);

}  // namespace onnxtrain
