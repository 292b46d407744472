// Philox4x32-10 in 64-bit integer tensors, bit for bit as specified in frontend/ops/README.md. The key stays on the
// device. Words are i64 in [0, 2^32).
#include <cmath>

#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/log.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include "backends/torch/kernel.h"

namespace onnxtrain::aten {
namespace {

constexpr int64_t kMask = 0xFFFFFFFF;

at::Tensor Low32(const at::Tensor& x) { return x.bitwise_and(kMask); }

struct Product {
  at::Tensor high, low;
};

// Returns the high and low word of m·x. m·x may exceed 2^63, so the high word is computed from two halves of x: for x =
// 2^16·h + l, both m·h and m·l stay below 2^48. The low 32 bits are right even if m·x wraps.
Product Multiply(int64_t m, const at::Tensor& x) {
  const at::Tensor low_part = x.bitwise_and(0xFFFF).mul_(m).bitwise_right_shift_(16);
  const at::Tensor high = x.bitwise_right_shift(16).mul_(m).add_(low_part).bitwise_right_shift_(16);
  return {high, Low32(x * m)};
}

// Returns four words per block. `counter` has four tensors with one element per block; the key words are scalars.
std::vector<at::Tensor> Philox(std::vector<at::Tensor> counter, at::Tensor key0, at::Tensor key1) {
  for (int round = 0; round < 10; ++round) {
    const Product p0 = Multiply(0xD2511F53, counter[0]), p1 = Multiply(0xCD9E8D57, counter[2]);
    counter = {p1.high.bitwise_xor(counter[1]).bitwise_xor(key0), p1.low,
               p0.high.bitwise_xor(counter[3]).bitwise_xor(key1), p0.low};
    key0 = Low32(key0 + int64_t{0x9E3779B9});
    key1 = Low32(key1 + int64_t{0xBB67AE85});
  }
  return counter;
}

// Returns the words [4·blocks] of `blocks` blocks from block `first` on, for the operator with this stream. `k` is the
// key as i64.
at::Tensor Words(const at::Tensor& k, int64_t stream, const at::Tensor& first, int64_t blocks) {
  const auto s = static_cast<uint32_t>(stream);
  const at::Tensor block = at::arange(blocks, k.options()).add_(first);
  const at::Tensor seed = k[0], step = k[1].expand({blocks}), micro = k[2].expand({blocks});
  const at::Tensor key1 = at::scalar_tensor(int64_t{s * 0x85EBCA6Bu}, k.options());
  return at::stack(Philox({Low32(block), block.bitwise_right_shift(32), step, micro},
                          Low32(seed + int64_t{0x9E3779B9u * s}), key1),
                   1)
      .flatten();
}

// Returns the index of the first element that `piece`, the last word of the key, selects (frontend/ops/random.h).
at::Tensor FirstElement(const at::Tensor& piece, int64_t elements) {
  const at::Tensor part = piece.bitwise_and(0xFFFF).clamp_min(1);
  return (piece.bitwise_right_shift(16) * elements).floor_divide(part);
}

// Returns the words of a tensor of `elements` elements. `key` is u32[4], stored as i32.
at::Tensor WordsOf(const at::Tensor& key, int64_t stream, int64_t elements) {
  const at::Tensor k = Low32(key.to(at::kLong)), first = FirstElement(k[3], elements);
  const at::Tensor words = Words(k, stream, first.bitwise_right_shift(2), elements / 4 + 2);
  return words.index_select(0, at::arange(elements, k.options()).add_(first.bitwise_and(3)));
}

// Returns numbers in [0, 1), multiples of 2^-24, which are exact in both types.
at::Tensor Uniform(const at::Tensor& words, at::ScalarType dtype) {
  return words.bitwise_right_shift(8).to(dtype).mul_(0x1p-24);
}

Run Dropout(const Args& a) {
  const auto ratio = static_cast<float>(a.attrs().Float("ratio"));
  const double scale = 1 / (1 - a.attrs().Float("ratio"));
  return [=, x = a.in[0], key = a.in[1], y = a.out[0], stream = a.attrs().Int("stream")] {
    const at::Tensor u = Uniform(WordsOf(key, stream, x.numel()), at::kFloat).view(x.sizes());
    y.copy_((x * scale).mul_(u.ge(ratio)));
  };
}

Run RandomUniform(const Args& a) {
  const double low = a.attrs().Float("low"), high = a.attrs().Float("high");
  return [=, key = a.in[0], y = a.out[0], stream = a.attrs().Int("stream")] {
    const at::Tensor u = Uniform(WordsOf(key, stream, y.numel()), at::kDouble).view(y.sizes());
    y.copy_((u * (high - low)).add_(low));
  };
}

// Applies the Box-Muller transform to pairs of words.
at::Tensor Normal(const at::Tensor& words) {
  const at::Tensor u = Uniform(words, at::kDouble).view({-1, 2});
  const at::Tensor r = u.select(1, 0).neg().add_(1).log_().mul_(-2).sqrt_(), angle = u.select(1, 1) * (2 * M_PI);
  return at::stack({r * at::cos(angle), r * at::sin(angle)}, 1).flatten();
}

Run RandomNormal(const Args& a) {
  const double mean = a.attrs().Float("mean"), scale = a.attrs().Float("scale");
  return [=, key = a.in[0], y = a.out[0], stream = a.attrs().Int("stream")] {
    const int64_t elements = y.numel();
    const at::Tensor k = Low32(key.to(at::kLong)), first = FirstElement(k[3], elements);
    const at::Tensor normals = Normal(Words(k, stream, first.bitwise_right_shift(2), elements / 4 + 2));
    const at::Tensor of_piece = at::arange(elements, k.options()).add_(first.bitwise_and(3));
    y.copy_(normals.index_select(0, of_piece).view(y.sizes()).mul_(scale).add_(mean));
  };
}

// Rounds a part at a time, because the words take several times the memory of the numbers.
Run RoundStochastic(const Args& a) {
  constexpr int64_t kPart = int64_t{1} << 20;
  const int64_t seed = a.attrs().Int("seed"), stream = a.attrs().Int("stream");
  const auto constants = [&](std::vector<int64_t> words) { return at::tensor(words, a.options(at::kLong)); };
  const at::Tensor before = constants({static_cast<uint32_t>(seed)}), after = constants({kMask, 0});
  return [=, x = a.in[0].view({-1}), step = a.in[1].view({1}), y = a.out[0].view({-1})] {
    const at::Tensor key = at::cat({before, Low32(step), after});
    for (int64_t begin = 0; begin < x.numel(); begin += kPart) {
      const int64_t count = std::min(kPart, x.numel() - begin);
      const at::Tensor from = x.narrow(0, begin, count).to(at::kFloat);
      const at::Tensor first = at::scalar_tensor(begin / 4, key.options());
      const at::Tensor words = Words(key, stream, first, (count + 3) / 4).narrow(0, 0, count);
      const at::Tensor bits = from.view(at::kInt).add(words.bitwise_right_shift_(16).to(at::kInt));
      const at::Tensor rounded = bits.bitwise_right_shift_(16).to(at::kShort).view(at::kBFloat16);
      y.narrow(0, begin, count).copy_(at::where(from.isfinite(), rounded, from.to(at::kBFloat16)));
    }
  };
}

}  // namespace

std::span<const NamedKernel> RandomKernels() {
  static constexpr NamedKernel kKernels[] = {
      {"Dropout", {Dropout, Types::kRandom}},
      {"RandomUniform", {RandomUniform, Types::kRandom}},
      {"RandomNormal", {RandomNormal, Types::kRandom}},
      {"RoundStochastic", {RoundStochastic, Types::kAny}},
  };
  return kKernels;
}

}  // namespace onnxtrain::aten
