#include "frontend/data/chat/chat_settings.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/data/sources/json.h"

namespace onnxtrain {
namespace {

using Json = OrderedJson;

// Returns the text of a file of the tokenizer; "" if it has no such file.
std::string FindText(const Tokenizer& tokenizer, std::string_view name) {
  for (const auto& [file, bytes] : tokenizer.files()) {
    if (file == name) return bytes;
  }
  return "";
}

absl::StatusOr<Json> ReadObject(const Tokenizer& tokenizer, const char* name) {
  const std::string text = FindText(tokenizer, name);
  if (text.empty()) return Json::object();
  Json json = ParseJson<Json>(text);
  return json.is_object() ? absl::StatusOr<Json>(std::move(json)) : Invalid(name, ": is no JSON object");
}

// Adds the tokens in settings like "eos_token", which are texts or objects with a `content`.
void AddTokens(const Json& settings, std::map<std::string, std::string>* tokens) {
  for (const auto& [name, value] : settings.items()) {
    const Json& content = value.is_object() && value.contains("content") ? value["content"] : value;
    if (name.ends_with("_token") && content.is_string()) tokens->emplace(name, content);
  }
}

// Reads the template of tokenizer_config.json or chat_template.json: a text, or a list of named ones.
void ReadTemplates(const Json& config, ChatSettings* settings) {
  if (!config.contains("chat_template")) return;
  const Json& templates = config["chat_template"];
  if (templates.is_string()) settings->chat_template = templates;
  if (!templates.is_array()) return;
  for (const Json& named : templates) {
    if (!named.is_object()) continue;
    const std::string name = named.value("name", ""), source = named.value("template", "");
    if (name == "default") settings->chat_template = source;
    if (name == "tool_use") settings->tool_template = source;
  }
}

}  // namespace

std::string ChatSettings::end() const {
  const auto found = special_tokens.find("eos_token");
  return found == special_tokens.end() ? "" : found->second;
}

absl::StatusOr<ChatSettings> ReadChatSettings(const Tokenizer& tokenizer) {
  ChatSettings settings;
  ASSIGN_OR_RETURN(const Json config, ReadObject(tokenizer, "tokenizer_config.json"));
  ASSIGN_OR_RETURN(const Json map, ReadObject(tokenizer, "special_tokens_map.json"));
  AddTokens(config, &settings.special_tokens);
  AddTokens(map, &settings.special_tokens);
  ReadTemplates(config, &settings);
  ASSIGN_OR_RETURN(const Json of_processor, ReadObject(tokenizer, "chat_template.json"));
  ReadTemplates(of_processor, &settings);
  const std::string own = FindText(tokenizer, "chat_template.jinja");
  if (!own.empty()) settings.chat_template = own;
  return settings;
}

}  // namespace onnxtrain
