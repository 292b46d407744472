#include "frontend/data/text/unicode.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/regex.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/utext.h>
#include "frontend/base/log.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

// The Unicode version whose categories define BERT's tokenizers.
constexpr uint8_t kBertVersion = 8;
// The version that defines normal forms and the stripping of accents; later characters stay unchanged.
constexpr uint8_t kNormalVersion = 9;

bool IsChinese(char32_t c) {
  static constexpr char32_t kBlocks[][2] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},
                                            {0x20000, 0x2a6df}, {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf},
                                            {0x2f800, 0x2fa1f}};
  return std::ranges::any_of(kBlocks, [&](const auto& block) { return c >= block[0] && c <= block[1]; });
}

bool IsAsciiPunctuation(char32_t c) {
  return c > 0x20 && c < 0x7f && u_charType(c) != U_DECIMAL_DIGIT_NUMBER && !u_isalpha(c);
}

// Returns the general category in Unicode 8.
uint32_t BertCategory(char32_t c) {
  static constexpr std::pair<char32_t, uint32_t> kChangedSince[] = {{0x166d, U_GC_PO_MASK}, {0x1734, U_GC_MN_MASK},
                                                                    {0x1885, U_GC_LO_MASK}, {0x1886, U_GC_LO_MASK},
                                                                    {0xa9bd, U_GC_MC_MASK}, {0x111c9, U_GC_PO_MASK}};
  for (const auto& [changed, category] : kChangedSince) {
    if (c == changed) return category;
  }
  return U_GET_GC_MASK(c);
}

uint16_t BertFlags(char32_t c) {
  UVersionInfo version;
  u_charAge(static_cast<UChar32>(c), version);
  const uint32_t category = BertCategory(c);
  uint16_t flags = IsChinese(c) ? kChinese : 0;
  if (c == 0 || c == 0xfffd) flags |= kBertControl;
  if (IsAsciiPunctuation(c)) flags |= kBertPunctuation;
  if (version[0] == 0 || version[0] > kBertVersion) return flags;
  if ((category & (U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK)) != 0) flags |= kBertControl;
  if ((category & U_GC_MN_MASK) != 0) flags |= kBertMark;
  if ((category & U_GC_P_MASK) != 0) flags |= kBertPunctuation;
  return c == '\t' || c == '\n' || c == '\r' ? flags & ~kBertControl : flags;
}

// Returns true for marks in Unicode 9, which Hugging Face's tokenizers strip as accents.
bool IsOldMark(char32_t c) {
  constexpr char32_t kPunctuationThen = 0x111c9;
  if (c == 0x1cf2 || c == 0x1cf3) return true;  // letters since Unicode 12
  UVersionInfo version;
  u_charAge(static_cast<UChar32>(c), version);
  return (U_GET_GC_MASK(c) & U_GC_M_MASK) != 0 && version[0] <= kNormalVersion && c != kPunctuationThen;
}

uint16_t ComputeFlags(char32_t c) {
  const uint32_t category = U_GET_GC_MASK(c);
  uint16_t flags = BertFlags(c);
  const auto add = [&](uint32_t mask, uint16_t flag) { flags |= (category & mask) != 0 ? flag : 0; };
  add(U_GC_L_MASK, kLetter);
  add(U_GC_N_MASK, kNumber);
  add(U_GC_P_MASK, kPunctuation);
  add(U_GC_S_MASK, kSymbol);
  add(U_GC_LU_MASK | U_GC_LT_MASK, kUpper);
  add(U_GC_LL_MASK, kLower);
  add(U_GC_ND_MASK, kDecimal);
  add(U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK, kWord);
  if (IsOldMark(c)) flags |= kMark;
  if (u_isUWhiteSpace(static_cast<UChar32>(c))) flags |= kSpace;
  if (u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_ALPHABETIC)) flags |= kWord;
  return flags;
}

const icu::Normalizer2& MakeNormalizer(NormalForm form) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* found = form == NormalForm::kNfc    ? icu::Normalizer2::getNFCInstance(error)
                                  : form == NormalForm::kNfd  ? icu::Normalizer2::getNFDInstance(error)
                                  : form == NormalForm::kNfkc ? icu::Normalizer2::getNFKCInstance(error)
                                                              : icu::Normalizer2::getNFKDInstance(error);
  const auto* assigned = new icu::UnicodeSet(u"[:age=9.0:]", error);  // never deleted, like the normalizer
  CHECK(U_SUCCESS(error)) << u_errorName(error);
  return *new icu::FilteredNormalizer2(*found, *assigned);
}

// Returns the normalizer restricted to characters of Unicode 9, as in Hugging Face's tokenizers.
const icu::Normalizer2& GetNormalizer(NormalForm form) {
  static const icu::Normalizer2* const kNormalizers[] = {
      &MakeNormalizer(NormalForm::kNfc), &MakeNormalizer(NormalForm::kNfd), &MakeNormalizer(NormalForm::kNfkc),
      &MakeNormalizer(NormalForm::kNfkd)};
  return *kNormalizers[static_cast<size_t>(form)];
}

// Returns the length of the longest prefix of whole words that is ASCII.
size_t AsciiWords(std::string_view text) {
  size_t i = 0;
  for (uint64_t word; i + sizeof word <= text.size(); i += sizeof word) {
    std::memcpy(&word, text.data() + i, sizeof word);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  return i;
}

}  // namespace

uint16_t GetCharFlags(char32_t c) {
  constexpr size_t kPlane = 0x10000;
  static const auto* const kFlags = [] {
    auto* flags = new std::array<uint16_t, kPlane>();
    for (char32_t i = 0; i < kPlane; ++i) (*flags)[i] = ComputeFlags(i);
    return flags;
  }();
  return c < kPlane ? (*kFlags)[c] : ComputeFlags(c);
}

size_t DecodeChar(std::string_view text, char32_t* c) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const size_t bytes = CharBytes(text[0]);
  if (bytes == 1) {
    *c = byte(0);
  } else if (bytes == 2) {
    *c = (byte(0) & 0x1f) << 6 | (byte(1) & 0x3f);
  } else if (bytes == 3) {
    *c = (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
  } else {
    *c = (byte(0) & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
  }
  return bytes;
}

void AppendChar(char32_t c, std::string* out) {
  const auto rest = [&](int shift) { out->push_back(static_cast<char>(0x80 | ((c >> shift) & 0x3f))); };
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->push_back(static_cast<char>(0xc0 | (c >> 6)));
    rest(0);
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xe0 | (c >> 12)));
    rest(6), rest(0);
  } else {
    out->push_back(static_cast<char>(0xf0 | (c >> 18)));
    rest(12), rest(6), rest(0);
  }
}

size_t ValidCharBytes(std::string_view text) {
  const auto follows = [&](size_t i, unsigned char low = 0x80, unsigned char high = 0xbf) {
    const unsigned char byte = i < text.size() ? text[i] : 0;
    return byte >= low && byte <= high;
  };
  const unsigned char first = text[0];
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool second = follows(1, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf);
    return second && follows(2) ? 3 : 0;
  }
  if (first < 0xf0 || first > 0xf4) return 0;
  const bool second = follows(1, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf);
  return second && follows(2) && follows(3) ? 4 : 0;
}

size_t FindInvalidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    i += AsciiWords(text.substr(i));
    if (i == text.size()) break;
    const size_t valid = ValidCharBytes(text.substr(i));
    if (valid == 0) return i;
    i += valid;
  }
  return std::string_view::npos;
}

bool IsAscii(std::string_view text) {
  const std::string_view rest = text.substr(AsciiWords(text));
  return std::ranges::all_of(rest, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

void AppendLower(char32_t c, std::string* out) {
  constexpr char32_t kDottedI = 0x130, kDotAbove = 0x307;
  if (c == kDottedI) {
    out->push_back('i');
    AppendChar(kDotAbove, out);
  } else {
    AppendChar(static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))), out);
  }
}

namespace {

void AppendNormalizedRun(const icu::Normalizer2& normalizer, std::string_view text, std::string* out) {
  UErrorCode error = U_ZERO_ERROR;
  icu::StringByteSink<std::string> sink(out);
  normalizer.normalizeUTF8(0, {text.data(), static_cast<int32_t>(text.size())}, sink, nullptr, error);
  CHECK(U_SUCCESS(error)) << u_errorName(error);
}

bool IsAsciiByte(char c) { return static_cast<unsigned char>(c) < 0x80; }
bool IsTail(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }  // a continuation byte

}  // namespace

// ASCII characters never change and do not combine with preceding ones, so runs from one ASCII character to the next
// are normalized independently.
void AppendNormalized(NormalForm form, std::string_view text, std::string* out) {
  constexpr size_t kMaxBytes = size_t{1} << 30;  // limit on a run, since ICU counts in 32 bits
  const icu::Normalizer2& normalizer = GetNormalizer(form);
  while (!text.empty()) {
    size_t ascii = AsciiWords(text);
    while (ascii < text.size() && IsAsciiByte(text[ascii])) ++ascii;
    const size_t copied = ascii == text.size() || ascii == 0 ? ascii : ascii - 1;
    out->append(text.substr(0, copied));
    size_t end = ascii;
    const auto continues = [&](size_t i) {
      return !IsAsciiByte(text[i]) && (i - copied < kMaxBytes || IsTail(text[i]));
    };
    while (end < text.size() && continues(end)) ++end;
    if (end > ascii) AppendNormalizedRun(normalizer, text.substr(copied, end - copied), out);
    text.remove_prefix(end);
  }
}

namespace {

class IcuRegex : public Regex {
 public:
  explicit IcuRegex(std::unique_ptr<icu::RegexPattern> pattern) : pattern_(std::move(pattern)) {}

  void ForEachMatch(std::string_view text, absl::FunctionRef<void(size_t, size_t)> visit) const override {
    UErrorCode error = U_ZERO_ERROR;
    UText utext = UTEXT_INITIALIZER;
    utext_openUTF8(&utext, text.data(), static_cast<int64_t>(text.size()), &error);
    const std::unique_ptr<icu::RegexMatcher> matcher(pattern_->matcher(error));
    if (U_SUCCESS(error)) matcher->reset(&utext);
    if (U_SUCCESS(error)) matcher->setStackLimit(0, error);  // unlimited
    while (U_SUCCESS(error) && matcher->find(error)) {
      const int64_t begin = matcher->start64(error), end = matcher->end64(error);
      if (begin < end) visit(static_cast<size_t>(begin), static_cast<size_t>(end));
    }
    utext_close(&utext);
    if (U_FAILURE(error)) throw std::bad_alloc();
  }

 private:
  std::unique_ptr<icu::RegexPattern> pattern_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Regex>> Regex::Compile(const std::string& expression) {
  UErrorCode error = U_ZERO_ERROR;
  UParseError where;
  std::unique_ptr<icu::RegexPattern> pattern(
      icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(expression), 0, where, error));
  if (U_FAILURE(error)) {
    return Invalid("the expression '", expression, "' cannot be read: ", u_errorName(error), " at character ",
                   where.offset);
  }
  return std::make_shared<IcuRegex>(std::move(pattern));
}

}  // namespace onnxtrain
