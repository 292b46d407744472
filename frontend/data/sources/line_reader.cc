#include "frontend/data/sources/line_reader.h"

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

constexpr size_t kBuffer = 1 << 18;
constexpr size_t kMaxLine = size_t{256} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

absl::StatusOr<bool> LineReader::Fill() {
  buffer_.resize(kBuffer);
  at_ = 0;
  ASSIGN_OR_RETURN(const size_t got, read_(std::as_writable_bytes(std::span(buffer_))));
  buffer_.resize(got);
  return got > 0;
}

absl::StatusOr<bool> LineReader::Next(std::string* line) {
  line->clear();
  bool any = false;
  for (size_t end = std::string::npos; end == std::string::npos;) {
    if (at_ == buffer_.size()) {
      ASSIGN_OR_RETURN(const bool more, Fill());
      if (!more) break;
    }
    any = true;
    end = buffer_.find('\n', at_);
    const size_t stop = std::min(end, buffer_.size());
    line->append(buffer_, at_, stop - at_);
    at_ = end == std::string::npos ? stop : stop + 1;
    if (line->size() > kMaxLine) return Invalid("line ", number_ + 1, " has more than 256 MiB");
  }
  if (!any) return false;
  if (++number_ == 1 && line->starts_with(kByteOrderMark)) line->erase(0, kByteOrderMark.size());
  if (line->ends_with('\r')) line->pop_back();
  return true;
}

}  // namespace onnxtrain
