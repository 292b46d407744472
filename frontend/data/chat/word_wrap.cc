// Wraps text as Python's textwrap does for Jinja's filter `wordwrap`: tabs and inner spaces stay, spaces at the ends of
// lines are dropped.
#include <algorithm>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/data/chat/text_functions.h"
#include "frontend/data/text/case_mapping.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain::jinja {
namespace {

using Chars = std::u32string_view;

std::u32string Decode(std::string_view text) {
  std::u32string chars;
  for (char32_t c = 0; !text.empty(); chars.push_back(c)) text.remove_prefix(DecodeChar(text, &c));
  return chars;
}

bool IsBlank(char32_t c) { return Chars(U"\t\n\v\f\r ").find(c) != Chars::npos; }
bool IsWord(char32_t c) {
  return c == '_' || (GetCharClasses(c) & (kIsAlpha | kIsDecimal | kIsDigit | kIsNumeric)) != 0;
}
bool IsLetter(char32_t c) { return IsWord(c) && (GetCharClasses(c) & kIsDecimal) == 0; }
bool IsWordOrMark(char32_t c) { return IsWord(c) || Chars(U"!\"'&.,?").find(c) != Chars::npos; }
bool IsSpaces(Chars text) {
  return std::ranges::all_of(text, [](char32_t c) { return (GetCharClasses(c) & kIsSpace) != 0; });
}

// Cuts a line into the chunks between which it may be broken: spaces, dashes and words or their hyphenated parts.
class Chunks {
 public:
  Chunks(Chars line, bool at_hyphens) : line_(line), at_hyphens_(at_hyphens) {}

  std::deque<Chars> Cut() const {
    std::deque<Chars> chunks;
    for (size_t begin = 0, end = 0; begin < line_.size(); begin = end) {
      end = FindEnd(begin);
      chunks.push_back(line_.substr(begin, end - begin));
    }
    return chunks;
  }

 private:
  bool Is(bool (*has)(char32_t), size_t at) const { return at < line_.size() && has(line_[at]); }
  bool IsHyphen(size_t at) const { return at < line_.size() && line_[at] == '-'; }

  size_t FindEnd(size_t begin) const {
    size_t end = begin;
    while (Is(IsBlank, end)) ++end;
    if (end > begin) return end;
    if (at_hyphens_ && BeginsDash(begin)) return std::min(line_.find_first_not_of('-', begin), line_.size());
    for (end = begin + 1; end < line_.size() && !IsBlank(line_[end]); ++end) {
      if (at_hyphens_ && BreaksAfter(end)) return end + 1;
      if (at_hyphens_ && BeginsDash(end)) break;
    }
    return end;
  }

  // Returns true for two or more hyphens between words.
  bool BeginsDash(size_t at) const {
    if (at == 0 || !IsHyphen(at) || !IsHyphen(at + 1) || !IsWordOrMark(line_[at - 1])) return false;
    return Is(IsWord, line_.find_first_not_of('-', at));
  }

  // Returns true for a hyphen of a word: letters on both sides, and not after a part of one letter that begins it.
  bool BreaksAfter(size_t at) const {
    if (at < 2 || !IsHyphen(at) || !IsLetter(line_[at - 1])) return false;
    const bool before = IsLetter(line_[at - 2]) || (at > 2 && IsHyphen(at - 2) && IsLetter(line_[at - 3]));
    return before && Is(IsLetter, at + 1) && Is(IsLetter, IsHyphen(at + 2) ? at + 3 : at + 2);
  }

  Chars line_;
  bool at_hyphens_;
};

// Returns how much of a chunk that fits in no line goes into the `room` of this one.
size_t FindBreak(Chars chunk, size_t room, bool at_hyphens) {
  if (!at_hyphens || room == 0) return room;
  const size_t hyphen = chunk.substr(0, room).rfind('-');
  const bool breaks = hyphen != Chars::npos && chunk.substr(0, hyphen).find_first_not_of('-') != Chars::npos;
  return breaks ? hyphen + 1 : room;
}

// Takes the chunks of the next line.
std::vector<Chars> TakeLine(std::deque<Chars>* chunks, size_t width, const WordWrap& wrap) {
  std::vector<Chars> line;
  size_t length = 0;
  for (; !chunks->empty() && length + chunks->front().size() <= width; chunks->pop_front()) {
    line.push_back(chunks->front());
    length += line.back().size();
  }
  if (!chunks->empty() && chunks->front().size() > width && (wrap.break_long_words || line.empty())) {
    Chars& chunk = chunks->front();
    const size_t taken = wrap.break_long_words ? FindBreak(chunk, width - length, wrap.at_hyphens) : chunk.size();
    line.push_back(chunk.substr(0, taken));
    chunk.remove_prefix(taken);
    if (!wrap.break_long_words) chunks->pop_front();
  }
  if (!line.empty() && IsSpaces(line.back())) line.pop_back();
  return line;
}

// Appends the lines of one line of the text, each but the first after `wrap.separator`.
absl::Status WrapLine(Interpreter& run, std::string_view text, const WordWrap& wrap, std::string* out) {
  if (wrap.width <= 0) return Invalid("the width must be positive, not ", wrap.width);
  const std::u32string chars = Decode(text);
  std::deque<Chars> chunks = Chunks(chars, wrap.at_hyphens).Cut();
  for (bool first = true; !chunks.empty();) {
    if (!first && IsSpaces(chunks.front())) chunks.pop_front();
    const std::vector<Chars> line = TakeLine(&chunks, wrap.width, wrap);
    if (line.empty()) continue;
    if (!first) *out += wrap.separator;
    first = false;
    for (const Chars chunk : line) {
      for (const char32_t c : chunk) AppendChar(c, out);
    }
    RETURN_IF_ERROR(run.CheckBytes(std::ssize(*out)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> WrapWords(Interpreter& run, std::string_view text, const WordWrap& wrap) {
  std::string out;
  const std::vector<std::string_view> lines = SplitLines(text, false);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += wrap.separator;
    RETURN_IF_ERROR(WrapLine(run, lines[i], wrap, &out));
    RETURN_IF_ERROR(run.CheckBytes(std::ssize(out)));
  }
  return out;
}

}  // namespace onnxtrain::jinja
