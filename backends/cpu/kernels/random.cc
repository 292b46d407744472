// Computes dropout and random tensors as pure functions of key, stream and element index (frontend/ops/README.md).
#include <algorithm>
#include <bit>

#include "backends/cpu/kernels/row_functions.h"
#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/ops/random.h"

namespace onnxtrain::cpu {

constexpr int kBlocks = 64;
constexpr int64_t kWords = 4 * kBlocks;

struct RandomSimd {
  // Computes the random words of elements [4·first_block, 4·first_block + kWords).
  void (*words)(const PhiloxKey& key, int64_t stream, uint64_t first_block, uint32_t* words);
  void (*dropout)(const uint32_t* words, const float* x, int64_t n, float ratio, float keep, float* y);
  void (*round)(const uint32_t* words, const uint32_t* x, int64_t n, uint16_t* y);  // f32 bits → bf16 bits
};

}  // namespace onnxtrain::cpu

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/random-inl.h"
#include "hwy/foreach_target.h"

#include "backends/cpu/kernels/random-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(RandomTable);
namespace {

constexpr int64_t kCost = 16;

// Calls f(words, odd, first, count) for the elements [0, n), at most kWords at a time. Element first + i has word
// i + odd; pairs of words begin at even ones.
template <typename F>
void ForWords(const uint32_t* key_words, int64_t stream, int64_t n, F f) {
  constexpr int64_t kStep = kWords - 4;  // the first words may belong to elements of another piece
  const PhiloxKey key = PhiloxKey::From(key_words);
  const uint64_t origin = FirstElement(key.piece, n);
  const auto words_of = HWY_DYNAMIC_DISPATCH(RandomTable)().words;
  Parallel((n + kStep - 1) / kStep, kStep * kCost, [&](int64_t begin, int64_t end) {
    alignas(64) uint32_t words[kWords];
    for (int64_t b = begin; b < end; ++b) {
      const uint64_t at = origin + static_cast<uint64_t>(b * kStep), skipped = at % 4;
      words_of(key, stream, at / 4, words);
      f(words + skipped / 2 * 2, static_cast<int64_t>(skipped % 2), b * kStep, std::min(kStep, n - b * kStep));
    }
  });
}

absl::StatusOr<Kernel> PrepareDropout(const KernelContext& c) {
  const int64_t n = c.out().elements();
  const DropoutSpan dropout(c.attrs(), n);
  return Kernel{.run = [=](const Args& args) {
    Parallel(n, kCost, [&](int64_t begin, int64_t end) {
      dropout.Run(args.in<uint32_t>(1), begin, args.in() + begin, end - begin, args.out() + begin);
    });
  }};
}

absl::StatusOr<Kernel> PrepareDoubleDropout(const KernelContext& c) {
  const int64_t n = c.out().elements(), stream = c.attrs().Int("stream");
  const double ratio = c.attrs().Float("ratio"), keep = 1 - ratio;
  return Kernel{.run = [=](const Args& args) {
    ForWords(args.in<uint32_t>(1), stream, n, [&](const uint32_t* words, int64_t odd, int64_t first, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const bool kept = WordToUniform(words[i + odd]) >= static_cast<float>(ratio);
        args.out<double>()[first + i] = (kept ? 1.0 : 0.0) * args.in<double>()[first + i] / keep;
      }
    });
  }};
}

template <typename T>
Kernel UniformKernel(const KernelContext& c) {
  const int64_t n = c.out().elements(), stream = c.attrs().Int("stream");
  const double low = c.attrs().Float("low"), high = c.attrs().Float("high");
  return {.run = [=](const Args& args) {
    ForWords(args.in<uint32_t>(0), stream, n, [&](const uint32_t* words, int64_t odd, int64_t first, int64_t count) {
      T* y = args.out<T>() + first;
      for (int64_t i = 0; i < count; ++i) y[i] = static_cast<T>(low + (high - low) * WordToUniform(words[i + odd]));
    });
  }};
}

template <typename T>
Kernel NormalKernel(const KernelContext& c) {
  const int64_t n = c.out().elements(), stream = c.attrs().Int("stream");
  const double mean = c.attrs().Float("mean"), scale = c.attrs().Float("scale");
  return {.run = [=](const Args& args) {
    ForWords(args.in<uint32_t>(0), stream, n, [&](const uint32_t* words, int64_t odd, int64_t first, int64_t count) {
      T* y = args.out<T>() + first - odd;
      for (int64_t pair = 0; pair < count + odd; pair += 2) {
        const auto normals = BoxMuller(words[pair], words[pair + 1]);
        for (int64_t k = std::max(pair, odd); k < std::min(pair + 2, count + odd); ++k)
          y[k] = static_cast<T>(mean + scale * normals[k - pair]);
      }
    });
  }};
}

absl::StatusOr<Kernel> PrepareRounding(const KernelContext& c) {
  const int64_t n = c.out().elements(), seed = c.attrs().Int("seed"), stream = c.attrs().Int("stream");
  const bool wide = c.in().dtype == DType::kFloat64;
  return Kernel{.run = [=, &simd = HWY_DYNAMIC_DISPATCH(RandomTable)()](const Args& args) {
    const PhiloxKey key = UpdateKey(seed, *args.in<int64_t>(1));
    Parallel((n + kWords - 1) / kWords, kWords * kCost, [&](int64_t begin, int64_t end) {
      alignas(64) uint32_t words[kWords], floats[kWords];
      for (int64_t b = begin; b < end; ++b) {
        const int64_t first = b * kWords, count = std::min(kWords, n - first);
        const uint32_t* x = wide ? floats : args.in<uint32_t>() + first;
        for (int64_t i = 0; wide && i < count; ++i)
          floats[i] = std::bit_cast<uint32_t>(static_cast<float>(args.in<double>()[first + i]));
        simd.words(key, stream, static_cast<uint64_t>(first / 4), words);
        simd.round(words, x, count, args.out<uint16_t>() + first);
      }
    });
  }};
}

absl::StatusOr<Kernel> PrepareUniform(const KernelContext& c) {
  return ForReal(c.out().dtype, [&]<typename T>(T) { return UniformKernel<T>(c); });
}
absl::StatusOr<Kernel> PrepareNormal(const KernelContext& c) {
  return ForReal(c.out().dtype, [&]<typename T>(T) { return NormalKernel<T>(c); });
}

}  // namespace

DropoutSpan::DropoutSpan(const Attrs& attrs, int64_t elements)
    : stream_(attrs.Int("stream")),
      elements_(elements),
      ratio_(static_cast<float>(attrs.Float("ratio"))),
      keep_(static_cast<float>(1 - attrs.Float("ratio"))) {}

// Words are computed in blocks of four; those before the first element are discarded.
void DropoutSpan::Run(const uint32_t* key_words, int64_t first, const float* x, int64_t n, float* y) const {
  const PhiloxKey key = PhiloxKey::From(key_words);
  const RandomSimd& simd = HWY_DYNAMIC_DISPATCH(RandomTable)();
  const auto origin = static_cast<int64_t>(FirstElement(key.piece, elements_));
  alignas(64) uint32_t words[kWords];
  for (int64_t done = 0; done < n;) {
    const int64_t at = origin + first + done, skipped = at % 4, count = std::min(n - done, kWords - skipped);
    simd.words(key, stream_, static_cast<uint64_t>(at / 4), words);
    simd.dropout(words + skipped, x + done, count, ratio_, keep_, y + done);
    done += count;
  }
}

std::span<const KernelRow> RandomKernels() {
  constexpr TypeSet kKey = Only(DType::kUInt32);
  static constexpr KernelRow kRows[] = {
      {"Dropout", PrepareDropout, kFloat | kKey},
      {"Dropout", PrepareDoubleDropout, kDouble | kKey},
      {"RandomUniform", PrepareUniform, kReals | kKey},
      {"RandomNormal", PrepareNormal, kReals | kKey},
      {"RoundStochastic", PrepareRounding, kReals | Only(DType::kInt64) | Only(DType::kBFloat16)},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
