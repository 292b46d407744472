#include "frontend/data/formats/utf16.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

constexpr size_t kPiece = size_t{1} << 16;
constexpr char32_t kReplacement = 0xFFFD;

bool IsHighSurrogate(char32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool IsLowSurrogate(char32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

class Decoder {
 public:
  explicit Decoder(ReadFn read) : read_(std::move(read)) {}

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

}  // namespace

ReadFn DecodeUtf16(ReadFn read) {
  return
      [decoder = std::make_shared<Decoder>(std::move(read))](std::span<std::byte> out) { return decoder->Read(out); };
}

}  // namespace onnxtrain
