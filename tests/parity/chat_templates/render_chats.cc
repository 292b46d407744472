// Renders and tokenizes chats for tools/chat_templates.py: reads lines of JSON and writes a line for each. {"template",
// "now"} with "variables" or a "conversation" (and "trained": its ranges are the turns of assistants) gives {"text",
// "generated"}, ranges in bytes. {"template", "tokenizer": a folder, "messages", "tools", "prompt_messages"} gives
// {"ids", "trained"}, as in training: with prompt_messages > 0, tokens after the prompt carry loss, else those of
// assistants. {"error"} says why not.
#include <iostream>
#include <memory>
#include <string>

#include "frontend/data/chat/chat_text.h"
#include "frontend/data/chat/render_chat.h"
#include "frontend/data/text/load_tokenizer.h"

namespace onnxtrain {
namespace {

absl::StatusOr<RenderedChat> RenderRequest(const ChatTemplate& chat, const OrderedJson& request,
                                           const RenderOptions& options) {
  if (request.contains("variables")) return chat.Render(request["variables"], options);
  const bool trained = request.value("trained", false);
  return trained ? RenderTrainedChat(chat, request["conversation"], options)
                 : RenderChat(chat, request["conversation"], options);
}

absl::StatusOr<AnsweredSample> EncodeRequest(const OrderedJson& request) {
  static std::string folder;
  static std::shared_ptr<const Tokenizer> tokenizer;
  if (folder != request["tokenizer"]) {
    folder = request["tokenizer"];
    ASSIGN_OR_RETURN(tokenizer, LoadTokenizer(folder));
  }
  ASSIGN_OR_RETURN(const ChatSettings settings, ReadChatSettings(*tokenizer));
  ASSIGN_OR_RETURN(const ChatText chat, ChatText::Make(request["template"], settings, LossOn::kAuto));
  Dialogue dialogue{
      .messages = request["messages"], .tools = request["tools"], .prompt_messages = request["prompt_messages"]};
  TokenizerScratch scratch;
  return chat.Encode(std::move(dialogue), *tokenizer, &scratch);
}

OrderedJson Encode(const OrderedJson& request) {
  const auto sample = EncodeRequest(request);
  if (!sample.ok()) return {{"error", std::string(sample.status().message())}};
  return {{"ids", sample->ids}, {"trained", sample->trained}};
}

OrderedJson Render(const OrderedJson& request) {
  if (request.contains("tokenizer")) return Encode(request);
  static std::string source;
  static absl::StatusOr<std::shared_ptr<const ChatTemplate>> chat;
  if (!chat.ok() || request["template"] != source) {
    source = request["template"];
    chat = ChatTemplate::Parse(source);
  }
  if (!chat.ok()) return {{"error", std::string(chat.status().message())}};
  const RenderOptions options = {.now = request.value("now", std::time_t{0})};
  const auto rendered = RenderRequest(**chat, request, options);
  if (!rendered.ok()) return {{"error", std::string(rendered.status().message())}};
  auto ranges = OrderedJson::array();
  for (const TextRange& range : rendered->generated) ranges.push_back({range.begin, range.end});
  return {{"text", rendered->text}, {"generated", ranges}};
}

}  // namespace
}  // namespace onnxtrain

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);)
    std::cout << onnxtrain::WriteJson(onnxtrain::Render(onnxtrain::OrderedJson::parse(line))) << std::endl;
}
