#include "frontend/data/text/normalizers.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/data/text/regex.h"

namespace onnxtrain {
namespace {

// Calls visit(c, bytes of c) for every character.
template <typename Visit>
void ForEachChar(std::string_view text, Visit visit) {
  for (char32_t c; !text.empty();) {
    const size_t bytes = DecodeChar(text, &c);
    visit(c, text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
}

void AppendLowered(std::string_view text, std::string* out) {
  ForEachChar(text, [&](char32_t c, std::string_view bytes) {
    if (c < 0x80) {
      out->push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : static_cast<char>(c));
    } else {
      AppendLower(c, out);
    }
  });
}

void AppendWithout(uint16_t flags, std::string_view text, std::string* out) {
  ForEachChar(text, [&](char32_t c, std::string_view bytes) {
    if (!HasFlags(c, flags)) out->append(bytes);
  });
}

class BertNormalizer : public Normalizer {
 public:
  explicit BertNormalizer(const BertOptions& options) : options_(options) {}

  void Run(std::string_view text, std::string* out) const override {
    std::string a, b;
    const auto step = [&](bool wanted, auto apply) {
      if (!wanted) return;
      b.clear();
      apply(text, &b);
      a.swap(b);
      text = a;
    };
    step(options_.clean_text || options_.chinese, [&](std::string_view s, std::string* o) { CleanAndSpace(s, o); });
    step(options_.strip_accents, [](std::string_view s, std::string* o) {
      std::string decomposed;
      AppendNormalized(NormalForm::kNfd, s, &decomposed);
      AppendWithout(kBertMark, decomposed, o);
    });
    step(options_.lowercase, [](std::string_view s, std::string* o) { AppendLowered(s, o); });
    out->append(text);
  }
  StageTraits traits() const override { return {.splits_at_blanks = true}; }

 private:
  void CleanAndSpace(std::string_view text, std::string* out) const {
    ForEachChar(text, [&](char32_t c, std::string_view bytes) {
      const uint16_t flags = GetCharFlags(c);
      if (options_.clean_text && (flags & kBertControl) != 0) return;
      if (options_.clean_text && (flags & kSpace) != 0) return out->push_back(' ');
      const bool spaced = options_.chinese && (flags & kChinese) != 0;
      if (spaced) out->push_back(' ');
      out->append(bytes);
      if (spaced) out->push_back(' ');
    });
  }

  BertOptions options_;
};

template <typename F>
NormalizerPtr MakeNormalizer(bool splits_at_blanks, F run) {
  return std::make_unique<FunctionStage<F, std::string*>>(StageTraits{.splits_at_blanks = splits_at_blanks},
                                                          std::move(run));
}

std::string_view StripText(std::string_view text, bool left, bool right) {
  size_t begin = 0, end = 0, at = 0;
  bool seen = false;
  ForEachChar(text, [&](char32_t c, std::string_view bytes) {
    const bool space = HasFlags(c, kSpace);
    if (!space && !seen) begin = at;
    at += bytes.size();
    if (!space) end = at, seen = true;
  });
  if (!seen) return left || right ? std::string_view() : text;
  return text.substr(left ? begin : 0, (right ? end : text.size()) - (left ? begin : 0));
}

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<NormalizerPtr> steps) : steps_(std::move(steps)) {}
  void Run(std::string_view text, std::string* out) const override {
    std::string a(text), b;
    for (const NormalizerPtr& step : steps_) {
      b.clear();
      step->Run(a, &b);
      a.swap(b);
    }
    out->append(a);
  }
  StageTraits traits() const override {
    const auto splits = [](const NormalizerPtr& step) { return step->traits().splits_at_blanks; };
    return {.splits_at_blanks = std::ranges::all_of(steps_, splits)};
  }

 private:
  std::vector<NormalizerPtr> steps_;
};

}  // namespace

NormalizerPtr MakeBertNormalizer(const BertOptions& options) { return std::make_unique<BertNormalizer>(options); }

// A blank composes with nothing, so that the form of a text follows from those of its words.
NormalizerPtr MakeFormNormalizer(NormalForm form) {
  return MakeNormalizer(true, [form](std::string_view text, std::string* out) { AppendNormalized(form, text, out); });
}

NormalizerPtr MakeLowercase() { return MakeNormalizer(true, AppendLowered); }

NormalizerPtr MakeStripAccents() {
  return MakeNormalizer(true, [](std::string_view text, std::string* out) { AppendWithout(kMark, text, out); });
}

NormalizerPtr MakeStrip(bool left, bool right) {
  return MakeNormalizer(false,
                        [=](std::string_view text, std::string* out) { out->append(StripText(text, left, right)); });
}

NormalizerPtr MakePrepend(std::string prefix) {
  return MakeNormalizer(false, [prefix = std::move(prefix)](std::string_view text, std::string* out) {
    if (!text.empty()) out->append(prefix);
    out->append(text);
  });
}

NormalizerPtr MakeReplace(std::string text, std::string with) {
  return MakeNormalizer(false, [what = std::move(text), with = std::move(with)](std::string_view s, std::string* out) {
    for (size_t at = 0; (at = s.find(what)) != std::string_view::npos && !what.empty();) {
      out->append(s.substr(0, at)).append(with);
      s.remove_prefix(at + what.size());
    }
    out->append(s);
  });
}

absl::StatusOr<NormalizerPtr> MakeRegexReplace(const std::string& expression, std::string with) {
  ASSIGN_OR_RETURN(const auto regex, Regex::Compile(expression));
  return MakeNormalizer(false, [regex, with = std::move(with)](std::string_view text, std::string* out) {
    size_t done = 0;
    regex->ForEachMatch(text, [&](size_t begin, size_t end) {
      out->append(text.substr(done, begin - done)).append(with);
      done = end;
    });
    out->append(text.substr(done));
  });
}

NormalizerPtr MakeNormalizerSequence(std::vector<NormalizerPtr> steps) {
  return std::make_unique<NormalizerSequence>(std::move(steps));
}

}  // namespace onnxtrain
