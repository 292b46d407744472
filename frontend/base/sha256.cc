#include "frontend/base/sha256.h"

#include <openssl/evp.h>

#include <array>

#include "absl/strings/escaping.h"
#include "frontend/base/log.h"

namespace onnxtrain {

namespace {

using Digest = std::array<unsigned char, 32>;

std::string ToHex(const Digest& digest) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

EVP_MD_CTX* Context(const std::shared_ptr<void>& context) { return static_cast<EVP_MD_CTX*>(context.get()); }

}  // namespace

std::string Sha256Hex(std::span<const std::byte> bytes) {
  Digest digest;
  CHECK_EQ(EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr), 1);
  return ToHex(digest);
}

Sha256::Sha256() : context_(EVP_MD_CTX_new(), [](void* c) { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(c)); }) {
  CHECK_EQ(EVP_DigestInit_ex(Context(context_), EVP_sha256(), nullptr), 1);
}

void Sha256::Update(std::span<const std::byte> bytes) {
  CHECK_EQ(EVP_DigestUpdate(Context(context_), bytes.data(), bytes.size()), 1);
}

std::string Sha256::Hex() {
  Digest digest;
  CHECK_EQ(EVP_DigestFinal_ex(Context(context_), digest.data(), nullptr), 1);
  return ToHex(digest);
}

}  // namespace onnxtrain
