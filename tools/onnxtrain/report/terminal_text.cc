#include "tools/onnxtrain/report/terminal_text.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace onnxtrain::cli {
namespace {

struct CharRange {
  uint32_t first, last;
  size_t columns;
};
// The blocks of Unicode's East Asian Width (UAX #11) that are wide, and blocks of combining marks; ascending.
constexpr CharRange kRanges[] = {
    {0x0300, 0x036f, 0},   {0x1100, 0x115f, 2},   {0x1ab0, 0x1aff, 0}, {0x1dc0, 0x1dff, 0},   {0x200b, 0x200f, 0},
    {0x20d0, 0x20ff, 0},   {0x2e80, 0x303e, 2},   {0x3041, 0x33ff, 2}, {0x3400, 0x4dbf, 2},   {0x4e00, 0xa4cf, 2},
    {0xa960, 0xa97f, 2},   {0xac00, 0xd7a3, 2},   {0xf900, 0xfaff, 2}, {0xfe00, 0xfe0f, 0},   {0xfe20, 0xfe2f, 0},
    {0xfe30, 0xfe6f, 2},   {0xff00, 0xff60, 2},   {0xffe0, 0xffe6, 2}, {0x1f300, 0x1f64f, 2}, {0x1f680, 0x1f6ff, 2},
    {0x1f900, 0x1f9ff, 2}, {0x20000, 0x3fffd, 2},
};

size_t CharColumns(uint32_t c) {
  const auto range = std::ranges::upper_bound(kRanges, c, {}, &CharRange::first);
  if (range == std::begin(kRanges)) return 1;
  return c <= std::prev(range)->last ? std::prev(range)->columns : 1;
}

// Removes the character at the beginning of *text; a byte that is not UTF-8 counts as one.
uint32_t TakeChar(std::string_view* text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>((*text)[i]); };
  const uint32_t lead = byte(0);
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
  uint32_t c = length == 1 ? lead : lead & (0x7fu >> length);
  size_t taken = 1;
  for (; taken < std::min(length, text->size()) && (byte(taken) & 0xc0) == 0x80; ++taken)
    c = c << 6 | (byte(taken) & 0x3f);
  text->remove_prefix(taken);
  return taken == length ? c : 0xfffd;
}

}  // namespace

size_t TextColumns(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) columns += CharColumns(TakeChar(&text));
  return columns;
}

std::string ClipText(std::string_view text, size_t columns) {
  if (TextColumns(text) <= columns) return std::string(text);
  std::string_view rest = text;
  size_t used = 1, end = 0;  // the ellipsis takes one
  while (!rest.empty()) {
    used += CharColumns(TakeChar(&rest));
    if (used > columns) break;
    end = text.size() - rest.size();
  }
  return std::string(text.substr(0, end)) + "…";
}

}  // namespace onnxtrain::cli
