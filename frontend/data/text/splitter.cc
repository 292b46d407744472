#include "frontend/data/text/splitter.h"

namespace onnxtrain {
namespace {

// Joins neighbors for which join(before, after) holds; `before` is the segment as it was, not as it was joined.
template <typename Join>
std::vector<Segment> JoinNeighbors(const std::vector<Segment>& segments, Join join) {
  std::vector<Segment> joined;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (i > 0 && join(segments[i - 1], segments[i])) {
      joined.back().end = segments[i].end;
    } else {
      joined.push_back(segments[i]);
    }
  }
  return joined;
}

}  // namespace

void EmitSegments(std::string_view text, std::vector<Segment> segments, SplitBehavior behavior, PieceSink emit) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      std::erase_if(segments, [](const Segment& s) { return s.match; });
      break;
    case SplitBehavior::kIsolated:
      break;
    case SplitBehavior::kMergedWithPrevious:
      segments = JoinNeighbors(segments, [](const Segment& a, const Segment& b) { return b.match && !a.match; });
      break;
    case SplitBehavior::kMergedWithNext:
      segments = JoinNeighbors(segments, [](const Segment& a, const Segment& b) { return a.match && !b.match; });
      break;
    case SplitBehavior::kContiguous:
      segments = JoinNeighbors(segments, [](const Segment& a, const Segment& b) { return a.match == b.match; });
      break;
  }
  for (const Segment& s : segments) {
    if (s.begin < s.end) emit(text.substr(s.begin, s.end - s.begin));
  }
}

}  // namespace onnxtrain
