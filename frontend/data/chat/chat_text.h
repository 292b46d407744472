// Converts dialogues to tokens, of which some carry loss.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/chat/chat_settings.h"
#include "frontend/data/chat/chat_template.h"
#include "frontend/data/chat/dialogues.h"
#include "frontend/data/text/token_rows.h"
#include "frontend/data/text/tokenizer.h"

namespace onnxtrain {

// The tokens that carry loss. kAuto: those after the prompt, or those of assistants if a dialogue has no prompt.
enum class LossOn : uint8_t { kAuto, kCompletion, kAssistant, kAll };

// Immutable: any number of threads may use it at once.
class ChatText {
 public:
  // Parses the Jinja template `source`. If it is that of `settings`, dialogues with tools use the tool template. With
  // "", Encode accepts only plain prompts and answers. Fails, naming the line, on a template that cannot be parsed.
  static absl::StatusOr<ChatText> Make(const std::string& source, const ChatSettings& settings, LossOn loss_on);

  // Returns the tokens of a dialogue: of a plain one, those of prompt and answer and the token that ends texts.
  absl::StatusOr<AnsweredSample> Encode(Dialogue dialogue, const Tokenizer& tokenizer, TokenizerScratch* scratch) const;
  // Returns the tokens of the messages and of the text that begins an answer.
  absl::StatusOr<std::vector<TokenId>> EncodePrompt(Dialogue dialogue, const Tokenizer& tokenizer,
                                                    TokenizerScratch* scratch) const;
  bool has_template() const { return template_ != nullptr; }
  // Returns the text that the template puts behind an answer, without blanks; "" if there is no template, or if it
  // cannot render a question and its answer.
  std::string FindEndOfTurn() const;

 private:
  // Returns null if there is no template.
  const ChatTemplate* FindTemplate(const Dialogue& dialogue) const;
  absl::StatusOr<AnsweredSample> EncodePlain(const Dialogue& dialogue, const Tokenizer& tokenizer,
                                             TokenizerScratch* scratch) const;

  std::shared_ptr<const ChatTemplate> template_, tool_template_;  // may be null
  ChatSettings settings_;
  LossOn loss_on_ = LossOn::kAuto;
};

}  // namespace onnxtrain
