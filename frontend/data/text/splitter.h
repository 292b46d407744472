// Splits text by the matches of a pattern, as SplitBehavior says.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "frontend/data/text/pre_tokenizers.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {

struct Segment {
  size_t begin, end;
  bool match;
};

// Emits the pieces of `text` that its segments, matches and what is between them, make. Pieces are never empty.
void EmitSegments(std::string_view text, std::vector<Segment> segments, SplitBehavior behavior, PieceSink emit);

// Splits by single characters for which is_match(c) holds.
template <typename IsMatch>
void SplitByChars(std::string_view text, SplitBehavior behavior, IsMatch is_match, PieceSink emit) {
  std::vector<Segment> segments;
  size_t rest = 0, at = 0;
  for (char32_t c; at < text.size();) {
    const size_t bytes = DecodeChar(text.substr(at), &c);
    if (is_match(c)) {
      if (rest < at) segments.push_back({rest, at, false});
      segments.push_back({at, at + bytes, true});
      rest = at + bytes;
    }
    at += bytes;
  }
  if (rest < at) segments.push_back({rest, at, false});
  EmitSegments(text, std::move(segments), behavior, emit);
}

}  // namespace onnxtrain
