// Finds several pieces of the known expressions (byte_level_scanner.h) at a time.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace onnxtrain {

// Each fills `ends` with the ends of the pieces of text[begin …], one behind the other, until it is full or the text
// ends, and returns how many there are. Vector code classifies 64 bytes of ASCII at once; what it cannot decide is left
// to the scanner of single pieces.
size_t ScanGpt2Batch(std::string_view text, size_t begin, std::span<size_t> ends);
size_t ScanCl100kBatch(std::string_view text, size_t begin, std::span<size_t> ends);        // \p{N}{1,3}
size_t ScanCl100kDigitsBatch(std::string_view text, size_t begin, std::span<size_t> ends);  // \p{N}

}  // namespace onnxtrain
