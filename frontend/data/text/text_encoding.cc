#include "frontend/data/text/text_encoding.h"

#include <unicode/ucnv.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "frontend/base/printable.h"
#include "frontend/base/status.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

constexpr size_t kPiece = size_t{1} << 16;
constexpr char32_t kReplacement = 0xFFFD;

bool IsHighSurrogate(char32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool IsLowSurrogate(char32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

// Decodes UTF-16 with a byte order mark, and leaves other bytes.
class MarkedDecoder {
 public:
  explicit MarkedDecoder(ReadFn read) : read_(std::move(read)) {}

  absl::StatusOr<size_t> Read(std::span<std::byte> out) {
    while (at_ == text_.size()) {
      ASSIGN_OR_RETURN(const bool more, Fill());
      if (!more) return 0;
    }
    const size_t size = std::min(out.size(), text_.size() - at_);
    std::memcpy(out.data(), text_.data() + at_, size);
    at_ += size;
    return size;
  }

 private:
  enum class Form : uint8_t { kUnknown, kBytes, kLittleEndian, kBigEndian };

  // Reads a piece into text_, which may stay empty; false at the end.
  absl::StatusOr<bool> Fill() {
    text_.clear();
    at_ = 0;
    const size_t before = bytes_.size();
    bytes_.resize(before + kPiece);
    ASSIGN_OR_RETURN(const size_t got, read_(std::as_writable_bytes(std::span(bytes_)).subspan(before)));
    bytes_.resize(before + got);
    if (form_ == Form::kUnknown) {
      if (got > 0 && bytes_.size() < 2) return true;
      form_ = bytes_.starts_with("\xFF\xFE")   ? Form::kLittleEndian
              : bytes_.starts_with("\xFE\xFF") ? Form::kBigEndian
                                               : Form::kBytes;
    }
    if (form_ == Form::kBytes) {
      text_.swap(bytes_);
    } else {
      Decode(got == 0);
    }
    return got > 0 || !text_.empty();
  }

  // Decodes whole characters, at the end all, and keeps the rest.
  void Decode(bool ended) {
    size_t done = 0;
    for (; done + 2 <= bytes_.size(); done += 2) {
      const char32_t unit = Unit(done);
      if (!IsHighSurrogate(unit)) {
        AppendChar(IsLowSurrogate(unit) ? kReplacement : unit, &text_);
        continue;
      }
      if (done + 4 > bytes_.size() && !ended) break;
      const char32_t next = done + 4 <= bytes_.size() ? Unit(done + 2) : 0;
      AppendChar(IsLowSurrogate(next) ? 0x10000 + ((unit - 0xD800) << 10) + (next - 0xDC00) : kReplacement, &text_);
      if (IsLowSurrogate(next)) done += 2;
    }
    if (ended && done < bytes_.size()) AppendChar(kReplacement, &text_);
    bytes_.erase(0, ended ? bytes_.size() : done);
  }

  char32_t Unit(size_t at) const {
    const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(bytes_[i])); };
    return form_ == Form::kLittleEndian ? byte(at) | byte(at + 1) << 8 : byte(at) << 8 | byte(at + 1);
  }

  ReadFn read_;
  Form form_ = Form::kUnknown;
  std::string bytes_, text_;
  size_t at_ = 0;
};

using Converter = std::unique_ptr<UConverter, decltype(&ucnv_close)>;

// Null where there is no such encoding.
Converter OpenConverter(const std::string& name) {
  UErrorCode error = U_ZERO_ERROR;
  Converter converter(ucnv_open(name.c_str(), &error), &ucnv_close);
  if (U_FAILURE(error)) converter.reset();
  return converter;
}

// Decodes an encoding by ICU.
class NamedDecoder {
 public:
  NamedDecoder(ReadFn read, const std::string& encoding)
      : read_(std::move(read)), encoding_(encoding), from_(OpenConverter(encoding)), to_(OpenConverter("UTF-8")) {}

  absl::StatusOr<size_t> Read(std::span<std::byte> out) {
    if (from_ == nullptr || to_ == nullptr) return CheckEncoding(encoding_);
    auto* const begin = reinterpret_cast<char*>(out.data());
    char* at = begin;
    while (at == begin && !out.empty() && !done_) {
      if (left_.empty() && !ended_) RETURN_IF_ERROR(Fill());
      const char* source = left_.data();
      UErrorCode error = U_ZERO_ERROR;
      ucnv_convertEx(to_.get(), from_.get(), &at, begin + out.size(), &source, left_.data() + left_.size(), pivot_,
                     &pivot_from_, &pivot_to_, pivot_ + std::size(pivot_), false, ended_, &error);
      left_.remove_prefix(source - left_.data());
      done_ = ended_ && error != U_BUFFER_OVERFLOW_ERROR;
      if (U_FAILURE(error) && error != U_BUFFER_OVERFLOW_ERROR)
        return Invalid("the text is not ", encoding_, ": ", u_errorName(error));
    }
    return at - begin;
  }

 private:
  absl::Status Fill() {
    bytes_.resize(kPiece);
    ASSIGN_OR_RETURN(const size_t got, read_(std::as_writable_bytes(std::span(bytes_))));
    left_ = std::string_view(bytes_).substr(0, got);
    ended_ = got == 0;
    return absl::OkStatus();
  }

  ReadFn read_;
  std::string encoding_;
  Converter from_, to_;
  std::string bytes_;
  std::string_view left_;  // of bytes_
  UChar pivot_[1024];      // characters between the two encodings
  UChar *pivot_from_ = pivot_, *pivot_to_ = pivot_;
  bool ended_ = false, done_ = false;
};

// Returns the length of the well-formed sequence at the start of `s`, or 0 (Unicode 15, table 3-7).
size_t Utf8SequenceLength(std::string_view s) {
  const auto at = [&](size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  const auto tail = [&](size_t i) { return (at(i) & 0xC0) == 0x80; };
  const unsigned lead = at(0), second = at(1);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool ok = tail(1) && tail(2) && !(lead == 0xE0 && second < 0xA0) && !(lead == 0xED && second > 0x9F);
    return ok ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool ok =
        tail(1) && tail(2) && tail(3) && !(lead == 0xF0 && second < 0x90) && !(lead == 0xF4 && second > 0x8F);
    return ok ? 4 : 0;
  }
  return 0;
}

std::string ReplaceBrokenUtf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    if (length == 0) AppendChar(kReplacement, &out);
    out.append(text.substr(0, length));
    text.remove_prefix(std::max(length, size_t{1}));
  }
  return out;
}

// The characters of bytes 0x80 to 0x9F in Windows-1252; the others have the numbers of their bytes.
constexpr char16_t kWindows1252[] = {0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021,
                                     0x2C6,  0x2030, 0x160,  0x2039, 0x152,  0x8D,   0x17D,  0x8F,
                                     0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                     0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};

std::string DecodeWindows1252(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    AppendChar(byte >= 0x80 && byte < 0xA0 ? kWindows1252[byte - 0x80] : byte, &out);
  }
  return out;
}

}  // namespace

absl::Status CheckEncoding(const std::string& name) {
  if (name.empty() || OpenConverter(name) != nullptr) return absl::OkStatus();
  return Invalid("there is no encoding '", Printable(name),
                 "' (names are utf-8, latin1, cp1251, gb18030, Shift_JIS …)");
}

ReadFn DecodeText(ReadFn read, const std::string& encoding) {
  const auto make = [](auto decoder) { return [decoder](std::span<std::byte> out) { return decoder->Read(out); }; };
  if (encoding.empty()) return make(std::make_shared<MarkedDecoder>(std::move(read)));
  return make(std::make_shared<NamedDecoder>(std::move(read), encoding));
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

bool HasUtf8AboveAscii(std::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    if (length > 1) return true;
    text.remove_prefix(std::max(length, size_t{1}));
  }
  return false;
}

std::string RepairUtf8(std::string_view text) {
  return HasUtf8AboveAscii(text) ? ReplaceBrokenUtf8(text) : DecodeWindows1252(text);
}

}  // namespace onnxtrain
