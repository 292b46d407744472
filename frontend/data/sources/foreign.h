// Files of other programs, which no source reads.
#pragma once

#include <string>

namespace onnxtrain {

// Returns what makes data of such a file; "" where its ending says nothing.
std::string AdviseConversion(const std::string& path);

}  // namespace onnxtrain
