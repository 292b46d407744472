// SHA-256 (FIPS 180-4), by libcrypto.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace onnxtrain {

// Returns the digest as 64 lower-case hex digits.
std::string Sha256Hex(std::span<const std::byte> bytes);

}  // namespace onnxtrain
