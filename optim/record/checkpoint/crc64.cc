#include "optim/record/checkpoint/crc64.h"

#include <isa-l/crc64.h>

#include "absl/strings/str_format.h"

namespace onnxtrain {

uint64_t ExtendCrc64(uint64_t crc, std::span<const std::byte> bytes) {
  return crc64_ecma_refl(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

std::string Crc64Text(uint64_t crc) { return absl::StrFormat("%016x", crc); }

}  // namespace onnxtrain
