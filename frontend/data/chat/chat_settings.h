// Reads the settings of a tokenizer that concern chats.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/text/tokenizer.h"

namespace onnxtrain {

struct ChatSettings {
  std::string chat_template;                          // the source; "": the tokenizer has none
  std::string tool_template;                          // another one, for chats with tools; "": there is none
  std::map<std::string, std::string> special_tokens;  // "eos_token" → "</s>"

  // Returns the token that ends an answer; "" if the settings name none.
  std::string end() const;
};

// Reads chat_template.jinja, tokenizer_config.json and special_tokens_map.json among the files of a tokenizer. Fails,
// naming the file, on one that is not JSON.
absl::StatusOr<ChatSettings> ReadChatSettings(const Tokenizer& tokenizer);

}  // namespace onnxtrain
