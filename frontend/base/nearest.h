// Proposes what a misspelled word was meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace onnxtrain {

// Returns the candidate that is nearest to `word` (edit distance with transpositions), or "" where none is near.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace onnxtrain
