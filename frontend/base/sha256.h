// SHA-256 (FIPS 180-4), by libcrypto.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace onnxtrain {

// Returns the digest as 64 lower-case hex digits.
std::string Sha256Hex(std::span<const std::byte> bytes);

// Computes the digest of bytes that arrive in parts.
class Sha256 {
 public:
  Sha256();
  void Update(std::span<const std::byte> bytes);
  std::string Hex();  // the digest of all bytes so far; Update() must not follow

 private:
  std::shared_ptr<void> context_;
};

}  // namespace onnxtrain
