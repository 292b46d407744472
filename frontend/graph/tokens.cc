#include "frontend/graph/tokens.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>

#include "frontend/base/small_float.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"

namespace onnxtrain::text {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

template <typename T>
std::string Format(T value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return std::string(buffer, end);
}

// Parses the whole token as a number.
template <typename T>
bool Scan(std::string_view token, T* value) {
  const char* end = token.data() + token.size();
  const auto [ptr, error] = std::from_chars(token.data(), end, *value);
  return error == std::errc() && ptr == end && !token.empty();
}

template <typename Bits>
std::string FormatHexBits(Bits bits) {
  std::string out;
  for (int shift = sizeof(Bits) * 8 - 4; shift >= 0; shift -= 4) out += kHexDigits[(bits >> shift) & 15];
  return out;
}

template <typename Bits>
bool ScanHexBits(std::string_view hex, Bits* bits) {
  if (hex.size() != sizeof(Bits) * 2) return false;
  uint64_t all = 0;
  for (char c : hex) {
    if (HexDigit(c) < 0) return false;
    all = all << 4 | static_cast<uint64_t>(HexDigit(c));
  }
  *bits = static_cast<Bits>(all);
  return true;
}

// Describe float types: the storage (Bits) and the type used to convert from and to text (Number).
struct F32 {
  using Bits = uint32_t;
  using Number = float;
  static Number ToNumber(Bits b) { return std::bit_cast<float>(b); }
  static Bits ToBits(Number v) { return std::bit_cast<Bits>(v); }
};
struct F64 {
  using Bits = uint64_t;
  using Number = double;
  static Number ToNumber(Bits b) { return std::bit_cast<double>(b); }
  static Bits ToBits(Number v) { return std::bit_cast<Bits>(v); }
};
struct F16 {
  using Bits = uint16_t;
  using Number = float;
  static Number ToNumber(Bits b) { return HalfToFloat(b); }
  static Bits ToBits(Number v) { return FloatToHalf(v); }
};
struct BF16 {
  using Bits = uint16_t;
  using Number = float;
  static Number ToNumber(Bits b) { return BFloat16ToFloat(b); }
  static Bits ToBits(Number v) { return FloatToBFloat16(v); }
};

template <typename F>
std::string FormatFloat(const std::byte* element) {
  typename F::Bits bits;
  std::memcpy(&bits, element, sizeof bits);
  const auto value = F::ToNumber(bits);
  if (!std::isnan(value)) return Format(value);
  if (bits == F::ToBits(std::numeric_limits<typename F::Number>::quiet_NaN())) return "nan";
  return StrCat("nan(", FormatHexBits(bits), ")");
}

template <typename F>
bool ScanFloat(std::string_view token, std::byte* element) {
  typename F::Bits bits{};
  typename F::Number value{};
  if (token.starts_with("nan(") && token.ends_with(")")) {
    if (!ScanHexBits(token.substr(4, token.size() - 5), &bits) || !std::isnan(F::ToNumber(bits))) return false;
  } else if (token == "nan") {
    bits = F::ToBits(std::numeric_limits<typename F::Number>::quiet_NaN());
  } else if (Scan(token, &value) && !std::isnan(value)) {
    bits = F::ToBits(value);
  } else {
    return false;
  }
  std::memcpy(element, &bits, sizeof bits);
  return true;
}

template <typename T>
std::string FormatInt(const std::byte* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return Format(value);
}

template <typename T>
bool ScanInt(std::string_view token, std::byte* element) {
  T value;
  if (!Scan(token, &value)) return false;
  std::memcpy(element, &value, sizeof value);
  return true;
}

struct Codec {
  std::string (*format)(const std::byte*);
  bool (*scan)(std::string_view, std::byte*);
};

// Indexed by DType. A bool is printed as its byte, so that bytes other than 0 and 1 survive.
constexpr Codec kCodecs[] = {
    {FormatFloat<F32>, ScanFloat<F32>},
    {FormatFloat<F64>, ScanFloat<F64>},
    {FormatFloat<F16>, ScanFloat<F16>},
    {FormatFloat<BF16>, ScanFloat<BF16>},
    {FormatInt<int8_t>, ScanInt<int8_t>},
    {FormatInt<int16_t>, ScanInt<int16_t>},
    {FormatInt<int32_t>, ScanInt<int32_t>},
    {FormatInt<int64_t>, ScanInt<int64_t>},
    {FormatInt<uint8_t>, ScanInt<uint8_t>},
    {FormatInt<uint16_t>, ScanInt<uint16_t>},
    {FormatInt<uint32_t>, ScanInt<uint32_t>},
    {FormatInt<uint64_t>, ScanInt<uint64_t>},
    {FormatInt<uint8_t>, ScanInt<uint8_t>},
    // Small floats are printed as their codes.
    {FormatInt<uint8_t>, ScanInt<uint8_t>},
    {FormatInt<uint8_t>, ScanInt<uint8_t>},
    {FormatInt<uint8_t>, ScanInt<uint8_t>},
    {FormatInt<uint8_t>, ScanInt<uint8_t>},
    {FormatInt<uint8_t>, ScanInt<uint8_t>},
    {FormatInt<uint8_t>, ScanInt<uint8_t>},
    {FormatInt<int8_t>, ScanInt<int8_t>},
    {FormatInt<uint8_t>, ScanInt<uint8_t>},
    {FormatInt<int8_t>, ScanInt<int8_t>},
    {FormatInt<uint8_t>, ScanInt<uint8_t>},
};

}  // namespace

bool IsWord(std::string_view s) {
  if (s.empty() || !IsLetter(s[0])) return false;
  for (char c : s) {
    if (!IsWordChar(c)) return false;
  }
  return true;
}

std::string Quote(std::string_view s) {
  std::string out = "\"";
  for (char c : s) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (u < 0x20 || u == 0x7f) {
      StrAppend(&out, "\\x", FormatHexBits<uint8_t>(u));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string ToHex(std::span<const std::byte> bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (std::byte b : bytes) {
    out += kHexDigits[static_cast<int>(b) >> 4];
    out += kHexDigits[static_cast<int>(b) & 15];
  }
  return out;
}

std::optional<std::string> FromHex(std::string_view hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  std::string out;
  out.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = HexDigit(hex[i]), low = HexDigit(hex[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high << 4 | low);
  }
  return out;
}

std::string FormatElement(DType dtype, const std::byte* element) {
  return kCodecs[static_cast<size_t>(dtype)].format(element);
}

bool ScanElement(DType dtype, std::string_view token, std::byte* element) {
  return kCodecs[static_cast<size_t>(dtype)].scan(token, element);
}

std::string FormatDouble(double value) {
  std::string s = FormatElement(DType::kFloat64, reinterpret_cast<const std::byte*>(&value));
  if (s.find_first_of(".en") == std::string::npos) s += ".0";
  return s;
}

std::string Token::Describe() const {
  constexpr size_t kMax = 40;
  if (kind == kEnd) return "the end of the text";
  const std::string part = text.substr(0, kMax) + (text.size() > kMax ? "…" : "");
  if (kind == kString) return Quote(part);
  return StrCat("'", kind == kValue ? "%" : "", part, "'");
}

// Takes `length` characters; the first `skip` of them are not part of the token's text.
Token Lexer::Take(Token::Kind kind, size_t length, size_t skip) {
  Token token{kind, std::string(text_.substr(pos_ + skip, length - skip)), line_};
  pos_ += length;
  return token;
}

void Lexer::SkipBlanks() {
  for (bool comment = false; pos_ < text_.size(); ++pos_) {
    const char c = text_[pos_];
    if (c == '\n') {
      ++line_;
      comment = false;
    } else if (c == '#') {
      comment = true;
    } else if (!comment && c != ' ' && c != '\t' && c != '\r') {
      return;
    }
  }
}

absl::StatusOr<Token> Lexer::Next() {
  SkipBlanks();
  if (pos_ >= text_.size()) return Token{Token::kEnd, "", line_};
  const char c = text_[pos_];
  if (c == '"') return String();
  if (IsLetter(c)) return Word();
  if (IsDigit(c) || c == '-') return Number();
  if (c == '%') {
    size_t length = 1;
    while (IsWordChar(At(pos_ + length))) ++length;
    if (length > 1) return Take(Token::kValue, length, 1);
  }
  if (std::string_view("(){}[],:=@").find(c) != std::string_view::npos) return Take(Token::kPunctuation, 1);
  return Invalid("line ", line_, ": unexpected ", Token{Token::kString, std::string(1, c)}.Describe());
}

Token Lexer::Word() {
  size_t length = 0;
  while (IsWordChar(At(pos_ + length))) ++length;
  // The word includes the bits of a NaN with payload: nan(7fc00001).
  if (text_.substr(pos_, length) == "nan" && At(pos_ + length) == '(') {
    while (pos_ + length < text_.size() && text_[pos_ + length] != ')' && text_[pos_ + length] != '\n') ++length;
    length += At(pos_ + length) == ')';
  }
  return Take(Token::kWord, length);
}

Token Lexer::Number() {
  size_t length = 1;
  auto belongs = [&](char c) {
    const char before = text_[pos_ + length - 1];
    return IsDigit(c) || IsLetter(c) || c == '.' || ((c == '-' || c == '+') && (before == 'e' || before == 'E'));
  };
  while (belongs(At(pos_ + length))) ++length;
  return Take(Token::kNumber, length);
}

absl::StatusOr<Token> Lexer::String() {
  Token token{Token::kString, "", line_};
  for (size_t i = pos_ + 1; i < text_.size(); ++i) {
    const char c = text_[i];
    if (c == '"') {
      pos_ = i + 1;
      return token;
    }
    if (c == '\n') break;
    if (c != '\\') {
      token.text += c;
    } else if (At(i + 1) == 'x') {
      const auto byte = FromHex(text_.substr(i + 2, std::min<size_t>(2, text_.size() - i - 2)));
      if (!byte.has_value() || byte->size() != 1) return Invalid("line ", line_, ": \\x needs two hexadecimal digits");
      token.text += *byte;
      i += 3;
    } else if (At(i + 1) == '"' || At(i + 1) == '\\') {
      token.text += text_[++i];
    } else {
      return Invalid("line ", line_, ": unknown escape in a string");
    }
  }
  return Invalid("line ", line_, ": a string has no end");
}

}  // namespace onnxtrain::text
