#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

// Computes RandomBlock for kBlocks consecutive blocks. Each round loops over the blocks, so that it is vectorized.
void Words(const PhiloxKey& key, int64_t stream, uint64_t first_block, uint32_t* words) {
  uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
  for (int j = 0; j < kBlocks; ++j) {
    const uint64_t block = first_block + j;
    c0[j] = static_cast<uint32_t>(block);
    c1[j] = static_cast<uint32_t>(block >> 32);
    c2[j] = key.step;
    c3[j] = key.micro;
  }
  const auto s = static_cast<uint32_t>(stream);
  uint32_t k0 = key.seed + 0x9E3779B9u * s, k1 = s * 0x85EBCA6Bu;
  for (int round = 0; round < 10; ++round) {
    for (int j = 0; j < kBlocks; ++j) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c0[j], p1 = uint64_t{0xCD9E8D57} * c2[j];
      c0[j] = static_cast<uint32_t>(p1 >> 32) ^ c1[j] ^ k0;
      c2[j] = static_cast<uint32_t>(p0 >> 32) ^ c3[j] ^ k1;
      c1[j] = static_cast<uint32_t>(p1);
      c3[j] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int j = 0; j < kBlocks; ++j) {
    words[4 * j] = c0[j];
    words[4 * j + 1] = c1[j];
    words[4 * j + 2] = c2[j];
    words[4 * j + 3] = c3[j];
  }
}

void Dropout(const uint32_t* words, const float* x, int64_t n, float ratio, float keep, float* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float u = static_cast<float>(static_cast<int32_t>(words[i] >> 8)) * 0x1p-24f;
    y[i] = (u >= ratio ? 1.0f : 0.0f) * x[i] / keep;
  }
}

void Round(const uint32_t* words, const uint32_t* x, int64_t n, uint16_t* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = x[i] & 0x7FFFFFFFu, special = (x[i] >> 16) | (magnitude > 0x7F800000u ? 0x40u : 0u);
    y[i] = static_cast<uint16_t>(magnitude >= 0x7F800000u ? special : (x[i] + (words[i] >> 16)) >> 16);
  }
}

}  // namespace

const RandomSimd& RandomTable() {
  static constexpr RandomSimd kTable = {Words, Dropout, Round};
  return kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();
