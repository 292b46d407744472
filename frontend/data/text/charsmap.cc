#include "frontend/data/text/charsmap.h"

#include <unicode/ubrk.h>
#include <unicode/utext.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

// A unit of the trie.
bool HoldsValue(uint32_t unit) { return ((unit >> 8) & 1) != 0; }
uint32_t Value(uint32_t unit) { return unit & 0x7fffffff; }
uint32_t Label(uint32_t unit) { return unit & 0x800000ff; }
uint32_t Offset(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

struct CloseBreaks {
  void operator()(UBreakIterator* breaks) const { ubrk_close(breaks); }
};
using Breaks = std::unique_ptr<UBreakIterator, CloseBreaks>;

// Opening one reads rules: each thread does so once. Null where ICU's data is not there.
UBreakIterator* ThreadBreaks() {
  thread_local const Breaks breaks = [] {
    UErrorCode error = U_ZERO_ERROR;
    Breaks opened(ubrk_open(UBRK_CHARACTER, "", nullptr, 0, &error));
    return U_SUCCESS(error) ? std::move(opened) : nullptr;
  }();
  return breaks.get();
}

bool IsPlain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<signed char>(c) >= 0 && c != '\r'; });
}

// Calls visit(cluster) for each grapheme cluster.
template <typename Visit>
void ForEachCluster(std::string_view text, Visit visit) {
  UBreakIterator* const breaks = IsPlain(text) ? nullptr : ThreadBreaks();
  if (breaks == nullptr) {  // each character is a cluster
    for (char32_t c; !text.empty();) {
      const size_t bytes = DecodeChar(text, &c);
      visit(text.substr(0, bytes));
      text.remove_prefix(bytes);
    }
    return;
  }
  UErrorCode error = U_ZERO_ERROR;
  UText utf8 = UTEXT_INITIALIZER;
  utext_openUTF8(&utf8, text.data(), static_cast<int64_t>(text.size()), &error);
  ubrk_setUText(breaks, &utf8, &error);
  int32_t begin = ubrk_first(breaks);
  for (int32_t end = ubrk_next(breaks); end != UBRK_DONE; begin = std::exchange(end, ubrk_next(breaks)))
    visit(text.substr(begin, end - begin));
  utext_close(&utf8);
}

class CharsmapNormalizer : public Normalizer {
 public:
  explicit CharsmapNormalizer(Charsmap charsmap) : charsmap_(std::move(charsmap)) {}

  void Run(std::string_view text, std::string* out) const override {
    constexpr size_t kLongCluster = 6;
    ForEachCluster(text, [&](std::string_view cluster) {
      if (cluster.size() < kLongCluster) {
        if (const auto found = charsmap_.Find(cluster)) return void(out->append(*found));
      }
      for (char32_t c; !cluster.empty();) {
        const size_t bytes = DecodeChar(cluster, &c);
        const std::string_view one = cluster.substr(0, bytes);
        out->append(charsmap_.Find(one).value_or(one));
        cluster.remove_prefix(bytes);
      }
    });
  }

 private:
  Charsmap charsmap_;
};

}  // namespace

absl::StatusOr<Charsmap> Charsmap::Parse(std::string_view bytes) {
  uint32_t size = 0;
  if (bytes.size() < sizeof(size)) return Invalid("'precompiled_charsmap' is too short");
  std::memcpy(&size, bytes.data(), sizeof(size));
  bytes.remove_prefix(sizeof(size));
  if (size > bytes.size() || size % sizeof(uint32_t) != 0 || size == 0)
    return Invalid("'precompiled_charsmap' declares a table of ", size, " bytes, but has ", bytes.size());
  Charsmap map;
  map.units_.resize(size / sizeof(uint32_t));
  std::memcpy(map.units_.data(), bytes.data(), size);
  map.texts_ = bytes.substr(size);
  return map;
}

std::optional<uint32_t> Charsmap::FindShortest(std::string_view text) const {
  size_t at = Offset(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    at ^= byte;
    if (byte == 0 || at >= units_.size() || Label(units_[at]) != byte) return std::nullopt;
    const uint32_t unit = units_[at];
    at ^= Offset(unit);
    if (HoldsValue(unit)) return at < units_.size() ? std::optional(Value(units_[at])) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::string_view> Charsmap::Find(std::string_view text) const {
  const std::optional<uint32_t> at = FindShortest(text);
  if (!at.has_value() || *at > texts_.size()) return std::nullopt;
  const std::string_view rest = std::string_view(texts_).substr(*at);
  return rest.substr(0, rest.find('\0'));
}

NormalizerPtr MakeCharsmapNormalizer(Charsmap charsmap) {
  return std::make_unique<CharsmapNormalizer>(std::move(charsmap));
}

}  // namespace onnxtrain
