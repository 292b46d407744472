// Appends an imported model to a graph.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "frontend/onnx/import.h"
#include "frontend/ops/builder.h"

namespace onnxtrain {

// Appends a copy of the graph of `model` with its inputs replaced by `inputs`; its weights become constants. The
// sources of nodes get the prefix, "loss", and so does the builder in the end. Returns the copies by value id; errors
// are b.status().
std::map<ValueId, Val> SpliceModel(Builder& b, const ImportedModel& model, const std::map<std::string, Val>& inputs,
                                   std::string_view prefix);

}  // namespace onnxtrain
