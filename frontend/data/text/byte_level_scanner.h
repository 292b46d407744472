// Hand-coded scanners for the regular expressions by which byte-level tokenizers split text. Equal to the expressions
// on valid UTF-8, and linear in the length of the text.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "frontend/data/text/pipeline.h"

namespace onnxtrain {

struct PieceScanners {
  PieceScanner one = nullptr;  // null if the expression is unknown
  BatchScanner many = nullptr;
};
PieceScanners FindPieceScanners(std::string_view expression);

// Returns the end of the piece at `begin`. GPT-2's expression: '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+|
// ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t ScanGpt2(std::string_view text, size_t begin);
// The same for cl100k's expression, with 1 to `digits` digits per piece:
// (?i:'s|…)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
size_t ScanCl100k(std::string_view text, size_t begin, size_t digits);

// Fill `ends` with the ends of consecutive pieces of text[begin …], until it is full or the text ends, and return their
// number. Vector code classifies 64 bytes of ASCII at once; the scanners of single pieces handle what it cannot decide.
size_t ScanGpt2Batch(std::string_view text, size_t begin, std::span<size_t> ends);
size_t ScanCl100kBatch(std::string_view text, size_t begin, std::span<size_t> ends);        // \p{N}{1,3}
size_t ScanCl100kDigitsBatch(std::string_view text, size_t begin, std::span<size_t> ends);  // \p{N}

}  // namespace onnxtrain
