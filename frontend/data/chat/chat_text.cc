#include "frontend/data/chat/chat_text.h"

#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "frontend/base/status.h"
#include "frontend/data/chat/chat_tokens.h"
#include "frontend/data/chat/render_chat.h"

namespace onnxtrain {
namespace {

using Json = OrderedJson;

// Returns the variables of a template.
Json MakeVariables(Dialogue dialogue, bool asks, const ChatSettings& settings) {
  Json variables = Json::object();
  for (const auto& [name, token] : settings.special_tokens) variables[name] = token;
  variables["messages"] = std::move(dialogue.messages);
  variables["tools"] = std::move(dialogue.tools);
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = asks;
  return variables;
}

// Says that an error comes from the template, whose line it names.
absl::StatusOr<RenderedChat> NameTemplate(absl::StatusOr<RenderedChat> rendered) {
  return rendered.ok() ? std::move(rendered) : Annotate(rendered.status(), "the chat template: ");
}

bool IsOfAssistant(const Json& message) { return message["role"] == "assistant"; }

}  // namespace

absl::StatusOr<ChatText> ChatText::Make(const std::string& source, const ChatSettings& settings, LossOn loss_on) {
  ChatText text;
  text.settings_ = settings;
  text.loss_on_ = loss_on;
  if (!source.empty()) {
    ASSIGN_OR_RETURN(text.template_, ChatTemplate::Parse(source));
  }
  if (!settings.tool_template.empty() && source == settings.chat_template) {
    ASSIGN_OR_RETURN(text.tool_template_, ChatTemplate::Parse(settings.tool_template));
  }
  return text;
}

absl::StatusOr<AnsweredSample> ChatText::EncodePlain(const Dialogue& dialogue, const Tokenizer& tokenizer,
                                                     TokenizerScratch* scratch) const {
  if (loss_on_ == LossOn::kAssistant) return Invalid("`loss_on` assistant: a plain prompt has no roles");
  std::string text = dialogue.prompt + dialogue.answer;
  const std::string end = settings_.end();
  if (!text.ends_with(end)) text += end;
  return EncodeAnswer(tokenizer, loss_on_ == LossOn::kAll ? "" : dialogue.prompt, text, true, scratch);
}

const ChatTemplate* ChatText::FindTemplate(const Dialogue& dialogue) const {
  return dialogue.tools.is_null() || tool_template_ == nullptr ? template_.get() : tool_template_.get();
}

absl::StatusOr<std::vector<TokenId>> ChatText::EncodePrompt(Dialogue dialogue, const Tokenizer& tokenizer,
                                                            TokenizerScratch* scratch) const {
  const ChatTemplate* own = FindTemplate(dialogue);
  if (own == nullptr) return Invalid("the tokenizer has no chat template (`chat_template`)");
  Json variables = MakeVariables(std::move(dialogue), true, settings_);
  ASSIGN_OR_RETURN(const RenderedChat text, NameTemplate(RenderChat(*own, std::move(variables))));
  std::vector<TokenId> ids;
  RETURN_IF_ERROR(tokenizer.Encode(text.text, scratch, &ids));
  return ids;
}

std::string ChatText::FindEndOfTurn() const {
  if (template_ == nullptr) return "";
  constexpr std::string_view kAnswer = "onnxtrain-answer";
  const Dialogue dialogue{
      .messages = {{{"role", "user"}, {"content", "question"}}, {{"role", "assistant"}, {"content", kAnswer}}},
      .tools = nullptr};
  const auto text = RenderChat(*template_, MakeVariables(dialogue, false, settings_));
  const size_t at = text.ok() ? text->text.rfind(kAnswer) : std::string::npos;
  return at == std::string::npos ? "" : std::string(absl::StripAsciiWhitespace(text->text.substr(at + kAnswer.size())));
}

absl::StatusOr<AnsweredSample> ChatText::Encode(Dialogue dialogue, const Tokenizer& tokenizer,
                                                TokenizerScratch* scratch) const {
  if (dialogue.messages.is_null()) return EncodePlain(dialogue, tokenizer, scratch);
  const ChatTemplate* own = FindTemplate(dialogue);
  if (own == nullptr) return Invalid("holds messages, and the tokenizer has no chat template (`chat_template`)");
  const LossOn on = loss_on_ != LossOn::kAuto      ? loss_on_
                    : dialogue.prompt_messages > 0 ? LossOn::kCompletion
                                                   : LossOn::kAssistant;
  if (on == LossOn::kAssistant) {
    Json variables = MakeVariables(std::move(dialogue), false, settings_);
    ASSIGN_OR_RETURN(const RenderedChat text, NameTemplate(RenderTrainedChat(*own, std::move(variables))));
    return EncodeMarked(tokenizer, text, scratch);
  }
  if (on == LossOn::kCompletion && dialogue.prompt_messages == 0)
    return Invalid("`loss_on` completion: a chat has no prompt");
  const auto render = [&](Dialogue of, bool asks) {
    return NameTemplate(RenderChat(*own, MakeVariables(std::move(of), asks, settings_)));
  };
  ASSIGN_OR_RETURN(const RenderedChat whole, render(dialogue, false));
  if (on == LossOn::kAll) return EncodeAnswer(tokenizer, "", whole.text, false, scratch);
  Json& messages = dialogue.messages;
  messages.erase(messages.begin() + dialogue.prompt_messages, messages.end());
  const bool asks = !IsOfAssistant(messages.back());
  ASSIGN_OR_RETURN(const RenderedChat prompt, render(std::move(dialogue), asks));
  return EncodeAnswer(tokenizer, prompt.text, whole.text, false, scratch);
}

}  // namespace onnxtrain
