#include "frontend/data/text/pipeline.h"

#include <algorithm>
#include <span>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/data/text/byte_level_scanner.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

struct Segment {
  size_t begin, end;
  bool match;
};

// Joins neighbors for which join(before, after) holds; `before` is the original segment, not the joined one.
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

// Emits the pieces that `segments`, the matches and the text between them, form by `behavior`. Pieces are never empty.
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

bool IsPunctuation(char32_t c) { return HasFlags(c, kBertPunctuation); }

template <typename F>
PreTokenizerPtr MakePreTokenizer(StageTraits traits, F run) {
  return std::make_unique<FunctionStage<F, bool, PieceSink>>(traits, std::move(run));
}

constexpr StageTraits kDropsBlanks = {.splits_at_blanks = true, .cuts_at_spaces = true};

// Emits runs of characters without flags `dropped`; characters with flags `alone` are single pieces.
void SplitWords(std::string_view text, uint16_t dropped, uint16_t alone, PieceSink emit) {
  size_t begin = 0, at = 0;
  const auto flush = [&] {
    if (begin < at) emit(text.substr(begin, at - begin));
  };
  for (char32_t c; at < text.size();) {
    const size_t bytes = DecodeChar(text.substr(at), &c);
    const uint16_t flags = GetCharFlags(c);
    if ((flags & (dropped | alone)) != 0) {
      flush();
      if ((flags & dropped) == 0) emit(text.substr(at, bytes));
      begin = at + bytes;
    }
    at += bytes;
  }
  flush();
}

// Emits runs of word characters and runs of other characters, without spaces.
void SplitWordsAndOthers(std::string_view text, PieceSink emit) {
  enum class Run : uint8_t { kNone, kWord, kOther } run = Run::kNone;
  size_t begin = 0, at = 0;
  for (char32_t c; at < text.size();) {
    const size_t bytes = DecodeChar(text.substr(at), &c);
    const uint16_t flags = GetCharFlags(c);
    const Run next = (flags & kSpace) != 0 ? Run::kNone : (flags & kWord) != 0 ? Run::kWord : Run::kOther;
    if (next != run) {
      if (run != Run::kNone) emit(text.substr(begin, at - begin));
      begin = at;
      run = next;
    }
    at += bytes;
  }
  if (run != Run::kNone) emit(text.substr(begin));
}

void Scan(std::string_view text, PieceScanner scan, PieceSink emit) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = scan(text, begin);
    emit(text.substr(begin, end - begin));
    begin = end;
  }
}

// Makes a pre-tokenizer of a known expression, in all of which a space begins a match or is among spaces only.
PreTokenizerPtr MakeScanning(const PieceScanners& scanners) {
  return MakePreTokenizer(
      {.cuts_at_spaces = true, .scan = scanners.many},
      [scan = scanners.one](std::string_view text, bool, PieceSink emit) { Scan(text, scan, emit); });
}

// Collects matches and the text between them; `invert` exchanges the two.
class Matches {
 public:
  explicit Matches(bool invert) : invert_(invert) {}
  void Add(size_t begin, size_t end) {
    AddRest(begin);
    segments_.push_back({begin, end, !invert_});
    done_ = end;
  }
  std::vector<Segment> Finish(size_t size) {
    AddRest(size);
    return std::move(segments_);
  }

 private:
  void AddRest(size_t end) {
    if (done_ < end) segments_.push_back({done_, end, invert_});
  }
  bool invert_;
  size_t done_ = 0;
  std::vector<Segment> segments_;
};

class Metaspace : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme), split_(split) {}

  void Run(std::string_view text, bool first, PieceSink emit) const override {
    std::string replaced;
    const bool prepends = scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && first);
    if (prepends && !text.starts_with(' ') && !text.starts_with(replacement_)) replaced = replacement_;
    for (const char c : text) c == ' ' ? replaced.append(replacement_) : replaced.append(1, c);
    if (!split_) return emit(replaced);
    Matches matches(false);
    for (size_t at = 0; (at = replaced.find(replacement_, at)) != std::string::npos; at += replacement_.size())
      matches.Add(at, at + replacement_.size());
    EmitSegments(replaced, matches.Finish(replaced.size()), SplitBehavior::kMergedWithNext, emit);
  }
  StageTraits traits() const override { return {.depends_on_position = scheme_ == PrependScheme::kFirst}; }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

class PreTokenizerSequence : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<PreTokenizerPtr> steps) : steps_(std::move(steps)) {}
  void Run(std::string_view text, bool first, PieceSink emit) const override { SplitFrom(0, text, first, emit); }
  // Each step splits every piece of the step before independently.
  StageTraits traits() const override {
    if (steps_.empty()) return {.keeps_text = true};
    StageTraits all = steps_.front()->traits();
    for (const PreTokenizerPtr& step : std::span(steps_).subspan(1)) {
      const StageTraits traits = step->traits();
      all.depends_on_position |= traits.depends_on_position;
      if (!traits.keeps_text) all.keeps_text = false, all.scan = nullptr;
    }
    if (all.depends_on_position) all.splits_at_blanks = all.cuts_at_spaces = false;
    return all;
  }

 private:
  void SplitFrom(size_t step, std::string_view text, bool first, PieceSink emit) const {
    if (step == steps_.size()) return emit(text);
    steps_[step]->Run(text, first, [&](std::string_view piece) {
      SplitFrom(step + 1, piece, first && piece.data() == text.data(), emit);
    });
  }
  std::vector<PreTokenizerPtr> steps_;
};

}  // namespace

PreTokenizerPtr MakeBertPreTokenizer() {
  return MakePreTokenizer(kDropsBlanks, [](std::string_view text, bool, PieceSink emit) {
    SplitWords(text, kSpace, kBertPunctuation, emit);
  });
}

PreTokenizerPtr MakeWhitespaceSplit() {
  return MakePreTokenizer(kDropsBlanks,
                          [](std::string_view text, bool, PieceSink emit) { SplitWords(text, kSpace, 0, emit); });
}

PreTokenizerPtr MakeWhitespaceWords() {
  return MakePreTokenizer(kDropsBlanks,
                          [](std::string_view text, bool, PieceSink emit) { SplitWordsAndOthers(text, emit); });
}

PreTokenizerPtr MakePunctuation(SplitBehavior behavior) {
  return MakePreTokenizer({}, [behavior](std::string_view text, bool, PieceSink emit) {
    SplitByChars(text, behavior, IsPunctuation, emit);
  });
}

PreTokenizerPtr MakeDigits(bool individual) {
  const SplitBehavior behavior = individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
  return MakePreTokenizer({}, [behavior](std::string_view text, bool, PieceSink emit) {
    SplitByChars(
        text, behavior, [](char32_t c) { return HasFlags(c, kNumber); }, emit);
  });
}

PreTokenizerPtr MakeCharDelimiter(char32_t delimiter) {
  return MakePreTokenizer({}, [delimiter](std::string_view text, bool, PieceSink emit) {
    SplitByChars(
        text, SplitBehavior::kRemoved, [&](char32_t c) { return c == delimiter; }, emit);
  });
}

PreTokenizerPtr MakeChars() {
  return MakePreTokenizer({}, [](std::string_view text, bool, PieceSink emit) {
    for (size_t bytes; !text.empty(); text.remove_prefix(bytes)) {
      bytes = CharBytes(text[0]);
      emit(text.substr(0, bytes));
    }
  });
}

PreTokenizerPtr MakeByteLevel(bool prefix_space, bool use_regex) {
  if (!prefix_space && use_regex) return MakeScanning({ScanGpt2, ScanGpt2Batch});
  // Text after a cut begins with a space and so gets no prefix.
  const StageTraits traits = {.cuts_at_spaces = use_regex, .keeps_text = !prefix_space};
  return MakePreTokenizer(traits, [=](std::string_view text, bool, PieceSink emit) {
    std::string prefixed;
    if (prefix_space && !text.starts_with(' ')) text = prefixed = StrCat(" ", text);
    if (!use_regex) return emit(text);
    Scan(text, ScanGpt2, emit);
  });
}

PreTokenizerPtr MakeSplit(const std::string& what, SplitBehavior behavior, bool invert) {
  return MakePreTokenizer({}, [=](std::string_view text, bool, PieceSink emit) {
    Matches matches(invert);
    for (size_t at = 0; !what.empty() && (at = text.find(what, at)) != std::string_view::npos; at += what.size())
      matches.Add(at, at + what.size());
    EmitSegments(text, matches.Finish(text.size()), behavior, emit);
  });
}

absl::StatusOr<PreTokenizerPtr> MakeRegexSplit(const std::string& expression, SplitBehavior behavior, bool invert) {
  // In the known expressions every character belongs to a match, so isolated, or removed and inverted, the pieces are
  // the matches.
  const bool keeps_matches = behavior == SplitBehavior::kIsolated || (behavior == SplitBehavior::kRemoved && invert);
  if (const PieceScanners scanners = FindPieceScanners(expression); scanners.one != nullptr && keeps_matches)
    return MakeScanning(scanners);
  ASSIGN_OR_RETURN(const auto regex, Regex::Compile(expression));
  return MakePreTokenizer({}, [=](std::string_view text, bool, PieceSink emit) {
    Matches matches(invert);
    regex->ForEachMatch(text, [&](size_t begin, size_t end) { matches.Add(begin, end); });
    EmitSegments(text, matches.Finish(text.size()), behavior, emit);
  });
}

PreTokenizerPtr MakeMetaspace(std::string replacement, PrependScheme scheme, bool split) {
  return std::make_unique<Metaspace>(std::move(replacement), scheme, split);
}

PreTokenizerPtr MakePreTokenizerSequence(std::vector<PreTokenizerPtr> steps) {
  return std::make_unique<PreTokenizerSequence>(std::move(steps));
}

}  // namespace onnxtrain
