// SHA-256 (FIPS 180-4).
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace onnxtrain {

std::string Sha256Hex(std::span<const std::byte> bytes);  // 64 lower-case hex digits

}  // namespace onnxtrain
