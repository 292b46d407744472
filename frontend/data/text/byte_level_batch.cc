#include "frontend/data/text/byte_level_scanner.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "frontend/data/text/byte_level_batch.cc"
#include "hwy/foreach_target.h"
// Must follow foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kBlock = 64;

// Classes of 64 bytes, one bit per byte.
struct Block {
  uint64_t letters = 0, digits = 0, blanks = 0, apostrophes = 0, line_ends = 0, spaces = 0, wide = 0;
  uint64_t others() const { return ~(letters | digits | spaces | wide); }
};

template <typename D, typename M>
HWY_INLINE uint64_t ToBits(D d, M mask) {
  uint64_t bits = 0;
  hn::StoreMaskBits(d, mask, reinterpret_cast<uint8_t*>(&bits));
  return bits;
}

HWY_INLINE Block Classify(const uint8_t* bytes) {
  const hn::CappedTag<uint8_t, kBlock> d;
  const hn::RebindToSigned<decltype(d)> signed_d;
  const auto in_range = [&](auto v, uint8_t first, uint8_t count) HWY_ATTR {
    const auto from_first = hn::Sub(v, hn::Set(d, first));
    return hn::Eq(hn::Min(from_first, hn::Set(d, static_cast<uint8_t>(count - 1))), from_first);
  };
  Block b;
  for (size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
    const auto v = hn::LoadU(d, bytes + i);
    const auto lower = hn::Or(v, hn::Set(d, 0x20));
    const auto add = [&](auto mask, uint64_t* bits) HWY_ATTR { *bits |= ToBits(d, mask) << i; };
    add(in_range(lower, 'a', 26), &b.letters);
    add(in_range(v, '0', 10), &b.digits);
    add(hn::Eq(v, hn::Set(d, ' ')), &b.blanks);
    add(hn::Eq(v, hn::Set(d, '\'')), &b.apostrophes);
    add(hn::Or(hn::Eq(v, hn::Set(d, '\n')), hn::Eq(v, hn::Set(d, '\r'))), &b.line_ends);
    add(in_range(v, '\t', 5), &b.spaces);
    add(hn::MaskFromVec(hn::BitCast(d, hn::BroadcastSignBit(hn::BitCast(signed_d, v)))), &b.wide);
  }
  b.spaces |= b.blanks;
  return b;
}

// Returns true if byte `at` < 64 is in the class.
HWY_INLINE bool Has(uint64_t bits, size_t at) { return (bits >> at & 1) != 0; }

// Returns the end of the run of set bits from `at`, at most 64.
HWY_INLINE size_t RunEnd(uint64_t bits, size_t at) { return at + std::countr_one(bits >> at); }

constexpr size_t kUnknown = 0;  // the block does not show the end

// Returns the end of the run at `at` if the block shows it. A byte above ASCII might continue any run.
HWY_INLINE size_t FindEnd(const Block& b, uint64_t run, size_t at) {
  const size_t end = RunEnd(run, at);
  return end >= kBlock || Has(b.wide, end) ? kUnknown : end;
}

struct Gpt2 {
  static size_t ScanOne(std::string_view text, size_t begin) { return ScanGpt2(text, begin); }
  // Matches " ?" and a run of letters, digits or others.
  static HWY_INLINE size_t Scan(const Block& b, size_t at) {
    if (Has(b.apostrophes, at)) return kUnknown;
    const size_t first = at + (b.blanks >> at & 1);
    if (first == kBlock) return kUnknown;
    if (Has(b.letters, first)) return FindEnd(b, b.letters, first);
    if (Has(b.digits, first)) return FindEnd(b, b.digits, first);
    return Has(b.others(), first) ? FindEnd(b, b.others(), first) : kUnknown;
  }
};

template <size_t digits>
struct Cl100k {
  static size_t ScanOne(std::string_view text, size_t begin) { return ScanCl100k(text, begin, digits); }
  // Matches letters after one character that is neither digit nor line end; digits; or " ?" and others not before a
  // line end.
  static HWY_INLINE size_t Scan(const Block& b, size_t at) {
    if (Has(b.apostrophes | b.line_ends | b.wide, at)) return kUnknown;
    if (Has(b.digits, at)) {
      const size_t end = FindEnd(b, b.digits, at);
      return end == kUnknown ? kUnknown : std::min(end, at + digits);
    }
    const size_t first = Has(b.letters, at) ? at : at + 1;
    if (first == kBlock) return kUnknown;
    if (Has(b.letters, first)) return FindEnd(b, b.letters, first);
    if (Has(b.wide, first)) return kUnknown;
    const size_t other = at + (b.blanks >> at & 1);
    if (other == kBlock || !Has(b.others(), other)) return kUnknown;
    const size_t end = FindEnd(b, b.others(), other);
    return end == kUnknown || Has(b.line_ends, end) ? kUnknown : end;
  }
};

template <typename Rules>
HWY_INLINE size_t ScanBatch(std::string_view text, size_t begin, std::span<size_t> ends) {
  size_t count = 0;
  uint8_t last[kBlock];
  while (begin < text.size() && count < ends.size()) {
    const size_t left = text.size() - begin;
    const auto* bytes = reinterpret_cast<const uint8_t*>(text.data()) + begin;
    if (left < kBlock) {
      std::memcpy(last, bytes, left);
      std::memset(last + left, 0x80, kBlock - left);  // bytes after the text count as undecidable
      bytes = last;
    }
    const Block block = Classify(bytes);
    size_t at = 0;
    while (count < ends.size() && at < std::min(left, kBlock)) {
      size_t end = Rules::Scan(block, at);
      if (end == kUnknown && at > kBlock / 2 && left > kBlock) break;  // the next block shows the end
      if (end == kUnknown) end = Rules::ScanOne(text, begin + at) - begin;
      ends[count++] = begin + end;
      at = end;
    }
    begin += at;
  }
  return count;
}

size_t ScanGpt2Batch(std::string_view text, size_t begin, std::span<size_t> ends) {
  return ScanBatch<Gpt2>(text, begin, ends);
}
size_t ScanCl100kBatch(std::string_view text, size_t begin, std::span<size_t> ends) {
  return ScanBatch<Cl100k<3>>(text, begin, ends);
}
size_t ScanCl100kDigitsBatch(std::string_view text, size_t begin, std::span<size_t> ends) {
  return ScanBatch<Cl100k<1>>(text, begin, ends);
}

}  // namespace
}  // namespace onnxtrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onnxtrain {

HWY_EXPORT(ScanGpt2Batch);
HWY_EXPORT(ScanCl100kBatch);
HWY_EXPORT(ScanCl100kDigitsBatch);

size_t ScanGpt2Batch(std::string_view text, size_t begin, std::span<size_t> ends) {
  return HWY_DYNAMIC_DISPATCH(ScanGpt2Batch)(text, begin, ends);
}
size_t ScanCl100kBatch(std::string_view text, size_t begin, std::span<size_t> ends) {
  return HWY_DYNAMIC_DISPATCH(ScanCl100kBatch)(text, begin, ends);
}
size_t ScanCl100kDigitsBatch(std::string_view text, size_t begin, std::span<size_t> ends) {
  return HWY_DYNAMIC_DISPATCH(ScanCl100kDigitsBatch)(text, begin, ends);
}

}  // namespace onnxtrain
#endif
