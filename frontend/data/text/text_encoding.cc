#include "frontend/data/text/text_encoding.h"

#include <unicode/ucnv.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

constexpr size_t kPiece = size_t{1} << 16;

using Converter = std::unique_ptr<UConverter, decltype(&ucnv_close)>;

// Returns null if ICU does not know the encoding.
Converter OpenConverter(const std::string& name) {
  UErrorCode error = U_ZERO_ERROR;
  Converter converter(ucnv_open(name.c_str(), &error), &ucnv_close);
  if (U_FAILURE(error)) converter.reset();
  return converter;
}

// Converts an encoding to UTF-8 in chunks. Invalid bytes become U+FFFD.
class Transcoder {
 public:
  explicit Transcoder(const std::string& encoding) : from_(OpenConverter(encoding)), to_(OpenConverter("UTF-8")) {}

  bool IsOpen() const { return from_ != nullptr && to_ != nullptr; }

  // Advances `from` and `to` past what is read and written. Returns U_BUFFER_OVERFLOW_ERROR if `to` is full.
  UErrorCode Convert(std::string_view* from, std::span<char>* to, bool last) {
    const char* source = from->data();
    char* target = to->data();
    UErrorCode error = U_ZERO_ERROR;
    ucnv_convertEx(to_.get(), from_.get(), &target, target + to->size(), &source, source + from->size(), pivot_,
                   &pivot_from_, &pivot_to_, std::end(pivot_), false, last, &error);
    from->remove_prefix(source - from->data());
    *to = to->subspan(target - to->data());
    return error;
  }

 private:
  Converter from_, to_;
  UChar pivot_[1024];  // UTF-16 between the two encodings
  UChar *pivot_from_ = pivot_, *pivot_to_ = pivot_;
};

class NamedDecoder {
 public:
  NamedDecoder(ReadFn read, const std::string& encoding)
      : read_(std::move(read)), encoding_(encoding), transcoder_(encoding) {}

  absl::StatusOr<size_t> Read(std::span<std::byte> out) {
    if (!transcoder_.IsOpen()) return CheckEncoding(encoding_);
    std::span<char> to(reinterpret_cast<char*>(out.data()), out.size());
    while (!to.empty() && !done_) {
      if (left_.empty() && !ended_) RETURN_IF_ERROR(Fill());
      const UErrorCode error = transcoder_.Convert(&left_, &to, ended_);
      done_ = ended_ && error != U_BUFFER_OVERFLOW_ERROR;
      if (U_FAILURE(error) && error != U_BUFFER_OVERFLOW_ERROR)
        return Invalid("the text is not ", encoding_, ": ", u_errorName(error));
    }
    return out.size() - to.size();
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
  Transcoder transcoder_;
  std::string bytes_;
  std::string_view left_;  // unconverted rest of bytes_
  bool ended_ = false, done_ = false;
};

// Converts UTF-16 with a byte order mark, and passes other bytes unchanged.
class MarkedDecoder {
 public:
  explicit MarkedDecoder(ReadFn read) : read_(std::move(read)) {}

  absl::StatusOr<size_t> Read(std::span<std::byte> out) {
    if (!opened_) RETURN_IF_ERROR(Open());
    return read_(out);
  }

 private:
  absl::Status Open() {
    std::string mark(2, '\0');
    size_t size = 0;
    for (bool more = true; more && size < mark.size();) {
      ASSIGN_OR_RETURN(const size_t got, read_(std::as_writable_bytes(std::span(mark)).subspan(size)));
      size += got;
      more = got > 0;
    }
    mark.resize(size);
    const bool utf16 = mark == "\xFF\xFE" || mark == "\xFE\xFF";
    read_ = Prepend(mark, std::move(read_));
    if (utf16) read_ = DecodeText(std::move(read_), "UTF-16");
    opened_ = true;
    return absl::OkStatus();
  }

  static ReadFn Prepend(std::string begin, ReadFn rest) {
    return [begin = std::move(begin), rest = std::move(rest)](std::span<std::byte> out) mutable {
      const size_t size = std::min(out.size(), begin.size());
      std::memcpy(out.data(), begin.data(), size);
      begin.erase(0, size);
      auto got = rest(out.subspan(size));
      if (got.ok()) *got += size;
      return got;
    };
  }

  ReadFn read_;
  bool opened_ = false;
};

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

bool HasUtf8AboveAscii(std::string_view text) {
  while (!text.empty()) {
    const size_t length = ValidCharBytes(text);
    if (length > 1) return true;
    text.remove_prefix(std::max(length, size_t{1}));
  }
  return false;
}

std::string RepairUtf8(std::string_view text) {
  Transcoder transcoder(HasUtf8AboveAscii(text) ? "UTF-8" : "windows-1252");
  std::string out;
  for (bool full = true; full;) {
    const size_t size = out.size();
    out.resize(size + std::min(text.size() + 16, kPiece));
    std::span<char> to = std::span(out).subspan(size);
    full = transcoder.Convert(&text, &to, true) == U_BUFFER_OVERFLOW_ERROR;
    out.resize(out.size() - to.size());
  }
  return out;
}

}  // namespace onnxtrain
