// The files of a model.
#pragma once

#include <string>
#include <vector>

namespace onnxtrain {

// Returns the files that a model is read from: its own, external data, and of artifacts of ONNX Runtime's training API
// the eval model and the checkpoints beside it. Reads the model. Of one that cannot be read, `path` alone: loading it
// tells why.
std::vector<std::string> ListModelFiles(const std::string& path);

}  // namespace onnxtrain
