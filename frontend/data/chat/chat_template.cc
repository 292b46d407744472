#include "frontend/data/chat/chat_template.h"

#include <algorithm>

#include "frontend/data/chat/interpreter.h"
#include "frontend/data/chat/json_text.h"
#include "frontend/data/chat/lexer.h"
#include "frontend/data/chat/parser.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

std::tm GetLocalTime(std::time_t now) {
  if (now == 0) now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  return local;
}

// Converts ranges of characters to bytes, in one pass over the text.
std::vector<TextRange> ToByteRanges(std::string_view text, const std::vector<jinja::CharRange>& ranges) {
  std::vector<TextRange> out(ranges.size());
  std::vector<std::pair<int64_t, size_t*>> bounds;
  for (size_t i = 0; i < ranges.size(); ++i) {
    bounds.emplace_back(ranges[i].begin, &out[i].begin);
    bounds.emplace_back(ranges[i].end, &out[i].end);
  }
  std::ranges::sort(bounds);
  int64_t chars = 0;
  size_t bytes = 0;
  for (const auto& [bound, offset] : bounds) {
    bytes += jinja::FindCharOffset(text.substr(bytes), bound - chars);
    chars = bound;
    *offset = bytes;
  }
  return out;
}

class ParsedTemplate : public ChatTemplate {
 public:
  ParsedTemplate(jinja::Body body, bool marks_generation)
      : body_(std::move(body)), marks_generation_(marks_generation) {}

  absl::StatusOr<RenderedChat> RenderValues(const jinja::Dict& variables, const RenderOptions& options) const override {
    const jinja::Limits limits = {.steps = options.max_steps, .bytes = options.max_bytes};
    jinja::Interpreter run(variables, GetLocalTime(options.now), limits);
    RenderedChat chat;
    ASSIGN_OR_RETURN(chat.text, run.Run(body_));
    chat.generated = ToByteRanges(chat.text, run.generated());
    return chat;
  }

  bool marks_generation() const override { return marks_generation_; }

 private:
  jinja::Body body_;
  bool marks_generation_;
};

}  // namespace

absl::StatusOr<RenderedChat> ChatTemplate::Render(OrderedJson variables, const RenderOptions& options) const {
  ASSIGN_OR_RETURN(const jinja::Value values, jinja::FromJson(std::move(variables)));
  if (values.dict() == nullptr) return Invalid("the variables of a template must be an object");
  return RenderValues(*values.dict(), options);
}

absl::StatusOr<std::shared_ptr<const ChatTemplate>> ChatTemplate::Parse(std::string_view source) {
  if (FindInvalidUtf8(source) != source.npos) return Invalid("line 1: the template is not UTF-8");
  auto body = jinja::ParseTemplate(source);
  if (!body.ok()) return OneLine(body.status());
  ASSIGN_OR_RETURN(const auto tokens, jinja::Tokenize(source));
  const bool marks = std::ranges::any_of(tokens, [](const jinja::Token& token) {
    return token.kind == jinja::TokenKind::kName && token.text == "endgeneration";
  });
  return std::make_shared<const ParsedTemplate>(*std::move(body), marks);
}

}  // namespace onnxtrain
