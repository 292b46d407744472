#include "frontend/base/sha256.h"

#include <openssl/evp.h>

#include <array>

#include "absl/strings/escaping.h"
#include "frontend/base/log.h"

namespace onnxtrain {

std::string Sha256Hex(std::span<const std::byte> bytes) {
  std::array<unsigned char, 32> digest;
  CHECK_EQ(EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr), 1);
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

}  // namespace onnxtrain
