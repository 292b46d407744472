// Mixes the samples of a batch with each other: mixup (Zhang et al., 2017) and cutmix (Yun et al., 2019).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// What becomes of a feed where samples are mixed.
enum class Mixing : uint8_t {
  kNone,
  kPixels,  // mixup: the weighted mean of both samples; cutmix: a box of the other one
  kShares   // labels: the weighted mean, by the share of the pixels
};

struct MixOptions {
  double mixup = 0,
         cutmix = 0;  // α of the Beta(α, α) that shares are drawn from; 0: off; both on: one of them by chance
  int height = 0, width = 0;  // of the feeds of pixels
  bool channels_last = false;

  bool on() const { return mixup > 0 || cutmix > 0; }
};

struct MixedFeed {
  Mixing mixing = Mixing::kNone;
  DType dtype = DType::kFloat32;
  std::span<std::byte> rows;  // of all samples
};

// Mixes the first sample with the last one, the second with the one before that, and so on; the one in the middle of an
// odd number stays. Choices are a function of (pass, sample) alone, in which a sample's own share is at least a half.
void MixBatch(const MixOptions& options, const ReadPass& pass, std::span<const int64_t> samples,
              std::span<const MixedFeed> feeds);

}  // namespace onnxtrain
