// Renders chat templates for tools/chat_templates.py: reads lines of JSON, {"template", "now"} with "variables" or a
// "conversation" (and "trained": its ranges are the turns of assistants), and writes a line {"text", "generated"} or
// {"error"} for each. Ranges are in bytes.
#include <iostream>
#include <memory>
#include <string>

#include "frontend/data/chat/render_chat.h"

namespace onnxtrain {
namespace {

absl::StatusOr<RenderedChat> RenderRequest(const ChatTemplate& chat, const OrderedJson& request,
                                           const RenderOptions& options) {
  if (request.contains("variables")) return chat.Render(request["variables"], options);
  const bool trained = request.value("trained", false);
  return trained ? RenderTrainedChat(chat, request["conversation"], options)
                 : RenderChat(chat, request["conversation"], options);
}

OrderedJson Render(const OrderedJson& request) {
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
