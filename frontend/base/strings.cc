#include "frontend/base/strings.h"

#include <algorithm>

namespace onnxtrain {
namespace {

constexpr size_t kLongestName = 120;
constexpr size_t kLongestMessage = 4000;

// True for the second and later bytes of a UTF-8 character.
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

namespace {

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& c : candidates) {
    // A prefix of a candidate ("--batch") or an extension of one ("evaluate") counts as near.
    const bool part = word.size() >= 3 && c.size() >= 3 && (c.starts_with(word) || word.starts_with(c));
    const size_t d = part ? 1 : EditDistance(word, c);
    if (d < least) least = d, best = c;
  }
  return best;
}

}  // namespace onnxtrain
