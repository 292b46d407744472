#include "frontend/data/chat/text_functions.h"

#include <algorithm>

#include "frontend/data/text/case_mapping.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain::jinja {
namespace {

std::string_view FirstChar(std::string_view text) { return text.substr(0, CharBytes(text[0])); }

std::string_view LastChar(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return text.substr(at);
}

bool IsSpaceChar(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (first < 0x80) return first == ' ' || (first >= '\t' && first <= '\r') || (first >= 0x1c && first <= 0x1f);
  char32_t c = 0;
  DecodeChar(character, &c);
  return (GetCharClasses(c) & kIsSpace) != 0;
}

// Returns the bytes of a line end at the beginning of a text, or 0.
size_t GetLineEndBytes(std::string_view text) {
  constexpr std::string_view kEnds[] = {"\r\n", "\n",   "\r",     "\v",     "\f",    "\x1c",
                                        "\x1d", "\x1e", "\u0085", "\u2028", "\u2029"};
  const auto* end = std::ranges::find_if(kEnds, [&](std::string_view e) { return text.starts_with(e); });
  return end == std::end(kEnds) ? 0 : end->size();
}

// Inserts a text before each character and at the end, up to `count` times.
std::string Interleave(std::string_view text, std::string_view inserted, int64_t count) {
  std::string out;
  while (true) {
    if (count-- > 0) out += inserted;
    if (text.empty()) return out;
    out += FirstChar(text);
    text.remove_prefix(FirstChar(text).size());
  }
}

}  // namespace

std::string_view Strip(std::string_view text, std::optional<std::string_view> chars, StripSides sides) {
  const auto strips = [&](std::string_view c) { return chars ? chars->find(c) != chars->npos : IsSpaceChar(c); };
  while ((sides & kLeft) != 0 && !text.empty() && strips(FirstChar(text))) text.remove_prefix(FirstChar(text).size());
  while ((sides & kRight) != 0 && !text.empty() && strips(LastChar(text))) text.remove_suffix(LastChar(text).size());
  return text;
}

size_t FindSpace(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && !IsSpaceChar(FirstChar(text.substr(at)))) at += CharBytes(text[at]);
  return at;
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = GetLineEndBytes(text.substr(at));
    if (end > 0) {
      lines.push_back(text.substr(begin, at - begin + (keep_ends ? end : 0)));
      begin = at + end;
    }
    at += end > 0 ? end : CharBytes(text[at]);
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

int64_t CountOccurrences(std::string_view text, std::string_view part, int64_t limit) {
  if (part.empty()) return std::min(limit, CountChars(text) + 1);
  int64_t count = 0;
  for (size_t at = text.find(part); at != text.npos && count < limit; at = text.find(part, at + part.size())) ++count;
  return count;
}

absl::StatusOr<std::string> Replace(Interpreter& run, std::string_view text, std::string_view from, std::string_view to,
                                    int64_t count) {
  const int64_t limit = count < 0 ? std::ssize(text) + 1 : count;
  const int64_t found = CountOccurrences(text, from, limit);
  const auto growth = std::max<int64_t>(std::ssize(to) - std::ssize(from), 0);
  if (growth > 0)
    RETURN_IF_ERROR(run.CheckBytes(found > (int64_t{1} << 40) / growth ? int64_t{1} << 40 : found * growth));
  if (from.empty()) return Interleave(text, to, found);
  std::string out;
  for (int64_t i = 0; i < found; ++i) {
    const size_t at = text.find(from);
    out += text.substr(0, at);
    out += to;
    text.remove_prefix(at + from.size());
  }
  return out += text;
}

}  // namespace onnxtrain::jinja
