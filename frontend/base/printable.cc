#include "frontend/base/printable.h"

#include <algorithm>

#include "frontend/base/strings.h"

namespace onnxtrain {
namespace {

constexpr size_t kLongestName = 120;
constexpr size_t kLongestMessage = 4000;

// The bytes of UTF-8 that go on with a character.
bool IsContinuation(char c) { return (c & 0xC0) == 0x80; }

std::string Sanitize(std::string_view text, size_t longest) {
  size_t end = std::min(text.size(), longest);
  while (end > 0 && end < text.size() && IsContinuation(text[end])) --end;
  std::string out(text.substr(0, end));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  }
  if (text.size() > longest) out += "…";
  return out;
}

}  // namespace

std::string Printable(std::string_view name) { return Sanitize(name, kLongestName); }

std::string PrintableLine(std::string_view message) { return Sanitize(message, kLongestMessage); }

size_t CountColumns(std::string_view text) {
  return text.size() - std::count_if(text.begin(), text.end(), IsContinuation);
}

absl::Status OneLine(const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), ToAbsl(PrintableLine(ToStd(status.message()))));
}

}  // namespace onnxtrain
