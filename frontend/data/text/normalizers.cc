#include "frontend/data/text/pipeline.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include <unicode/ubrk.h>
#include <unicode/utext.h>
#include "frontend/base/status.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

// Fields of a unit of the trie.
bool HoldsValue(uint32_t unit) { return ((unit >> 8) & 1) != 0; }
uint32_t Value(uint32_t unit) { return unit & 0x7fffffff; }
uint32_t Label(uint32_t unit) { return unit & 0x800000ff; }
uint32_t Offset(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

struct CloseBreaks {
  void operator()(UBreakIterator* breaks) const { ubrk_close(breaks); }
};
using Breaks = std::unique_ptr<UBreakIterator, CloseBreaks>;

// Returns the grapheme iterator of this thread, since opening one reads rules; null if ICU's data is missing.
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
  if (breaks == nullptr) {  // treats each character as a cluster
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

namespace {

// Calls visit(c, bytes of c) for every character.
template <typename Visit>
void ForEachChar(std::string_view text, Visit visit) {
  for (char32_t c; !text.empty();) {
    const size_t bytes = DecodeChar(text, &c);
    visit(c, text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
}

void AppendLowered(std::string_view text, std::string* out) {
  ForEachChar(text, [&](char32_t c, std::string_view bytes) {
    if (c < 0x80) {
      out->push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : static_cast<char>(c));
    } else {
      AppendLower(c, out);
    }
  });
}

void AppendWithout(uint16_t flags, std::string_view text, std::string* out) {
  ForEachChar(text, [&](char32_t c, std::string_view bytes) {
    if (!HasFlags(c, flags)) out->append(bytes);
  });
}

class BertNormalizer : public Normalizer {
 public:
  explicit BertNormalizer(const BertOptions& options) : options_(options) {}

  void Run(std::string_view text, std::string* out) const override {
    std::string a, b;
    const auto step = [&](bool wanted, auto apply) {
      if (!wanted) return;
      b.clear();
      apply(text, &b);
      a.swap(b);
      text = a;
    };
    step(options_.clean_text || options_.chinese, [&](std::string_view s, std::string* o) { CleanAndSpace(s, o); });
    step(options_.strip_accents, [](std::string_view s, std::string* o) {
      std::string decomposed;
      AppendNormalized(NormalForm::kNfd, s, &decomposed);
      AppendWithout(kBertMark, decomposed, o);
    });
    step(options_.lowercase, [](std::string_view s, std::string* o) { AppendLowered(s, o); });
    out->append(text);
  }
  StageTraits traits() const override { return {.splits_at_blanks = true}; }

 private:
  void CleanAndSpace(std::string_view text, std::string* out) const {
    ForEachChar(text, [&](char32_t c, std::string_view bytes) {
      const uint16_t flags = GetCharFlags(c);
      if (options_.clean_text && (flags & kBertControl) != 0) return;
      if (options_.clean_text && (flags & kSpace) != 0) return out->push_back(' ');
      const bool spaced = options_.chinese && (flags & kChinese) != 0;
      if (spaced) out->push_back(' ');
      out->append(bytes);
      if (spaced) out->push_back(' ');
    });
  }

  BertOptions options_;
};

template <typename F>
NormalizerPtr MakeNormalizer(bool splits_at_blanks, F run) {
  return std::make_unique<FunctionStage<F, std::string*>>(StageTraits{.splits_at_blanks = splits_at_blanks},
                                                          std::move(run));
}

std::string_view StripText(std::string_view text, bool left, bool right) {
  size_t begin = 0, end = 0, at = 0;
  bool seen = false;
  ForEachChar(text, [&](char32_t c, std::string_view bytes) {
    const bool space = HasFlags(c, kSpace);
    if (!space && !seen) begin = at;
    at += bytes.size();
    if (!space) end = at, seen = true;
  });
  if (!seen) return left || right ? std::string_view() : text;
  return text.substr(left ? begin : 0, (right ? end : text.size()) - (left ? begin : 0));
}

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<NormalizerPtr> steps) : steps_(std::move(steps)) {}
  void Run(std::string_view text, std::string* out) const override {
    std::string a(text), b;
    for (const NormalizerPtr& step : steps_) {
      b.clear();
      step->Run(a, &b);
      a.swap(b);
    }
    out->append(a);
  }
  StageTraits traits() const override {
    const auto splits = [](const NormalizerPtr& step) { return step->traits().splits_at_blanks; };
    return {.splits_at_blanks = std::ranges::all_of(steps_, splits)};
  }

 private:
  std::vector<NormalizerPtr> steps_;
};

}  // namespace

NormalizerPtr MakeBertNormalizer(const BertOptions& options) { return std::make_unique<BertNormalizer>(options); }

// Blanks do not compose, so words are normalized independently.
NormalizerPtr MakeFormNormalizer(NormalForm form) {
  return MakeNormalizer(true, [form](std::string_view text, std::string* out) { AppendNormalized(form, text, out); });
}

NormalizerPtr MakeLowercase() { return MakeNormalizer(true, AppendLowered); }

NormalizerPtr MakeStripAccents() {
  return MakeNormalizer(true, [](std::string_view text, std::string* out) { AppendWithout(kMark, text, out); });
}

NormalizerPtr MakeStrip(bool left, bool right) {
  return MakeNormalizer(false,
                        [=](std::string_view text, std::string* out) { out->append(StripText(text, left, right)); });
}

NormalizerPtr MakePrepend(std::string prefix) {
  return MakeNormalizer(false, [prefix = std::move(prefix)](std::string_view text, std::string* out) {
    if (!text.empty()) out->append(prefix);
    out->append(text);
  });
}

NormalizerPtr MakeReplace(std::string text, std::string with) {
  return MakeNormalizer(false, [what = std::move(text), with = std::move(with)](std::string_view s, std::string* out) {
    for (size_t at = 0; (at = s.find(what)) != std::string_view::npos && !what.empty();) {
      out->append(s.substr(0, at)).append(with);
      s.remove_prefix(at + what.size());
    }
    out->append(s);
  });
}

absl::StatusOr<NormalizerPtr> MakeRegexReplace(const std::string& expression, std::string with) {
  ASSIGN_OR_RETURN(const auto regex, Regex::Compile(expression));
  return MakeNormalizer(false, [regex, with = std::move(with)](std::string_view text, std::string* out) {
    size_t done = 0;
    regex->ForEachMatch(text, [&](size_t begin, size_t end) {
      out->append(text.substr(done, begin - done)).append(with);
      done = end;
    });
    out->append(text.substr(done));
  });
}

NormalizerPtr MakeNormalizerSequence(std::vector<NormalizerPtr> steps) {
  return std::make_unique<NormalizerSequence>(std::move(steps));
}

}  // namespace onnxtrain
