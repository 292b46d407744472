// CRC-64/XZ (ECMA-182, reflected), by ISA-L: finds every run of at most 64 changed bits, and all but 2^-64 of any other
// damage, at the speed of memory. No protection against intent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace onnxtrain {

// Returns the checksum of bytes whose beginning has the checksum `crc` and whose end is `bytes`; 0: of no bytes.
uint64_t ExtendCrc64(uint64_t crc, std::span<const std::byte> bytes);

// 16 lower-case hex digits.
std::string Crc64Text(uint64_t crc);

}  // namespace onnxtrain
