// Scanners for the regular expressions that byte-level tokenizers split text by, equal to them on valid UTF-8 and
// linear in the length of the text.
#pragma once

#include <cstddef>
#include <string_view>

#include "frontend/data/text/pipeline.h"

namespace onnxtrain {

// Null where the expression is not known.
PieceScanner FindPieceScanner(std::string_view expression);

// '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t ScanGpt2(std::string_view text, size_t begin);

}  // namespace onnxtrain
