// Scanners for the regular expressions that byte-level tokenizers split text by, equal to them on valid UTF-8 and
// linear in the length of the text.
#pragma once

#include <cstddef>
#include <string_view>

#include "frontend/data/text/pipeline.h"

namespace onnxtrain {

struct PieceScanners {
  PieceScanner one = nullptr;  // null where the expression is not known
  BatchScanner many = nullptr;
};
PieceScanners FindPieceScanners(std::string_view expression);

// '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t ScanGpt2(std::string_view text, size_t begin);
// (?i:'s|…)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
size_t ScanCl100k(std::string_view text, size_t begin, size_t digits);

}  // namespace onnxtrain
