// Names modules as the library of a model does, without a module that wraps the model for the export.
#pragma once

#include <string>
#include <vector>

#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

// Returns "model." where a module of that name wraps a model of a library, as one that returns logits alone for the
// export: the metadata says so, or all names begin with it, and a stack of layers follows. Returns "" otherwise.
std::string FindWrapper(const ParsedGraph& graph, const std::vector<std::string>& names);

std::string WithoutPrefix(const std::string& name, const std::string& prefix);

}  // namespace onnxtrain
