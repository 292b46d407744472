#include "frontend/base/nearest.h"

#include <algorithm>

namespace onnxtrain {
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
