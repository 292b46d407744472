#include "frontend/data/chat/render_chat.h"

#include <algorithm>

namespace onnxtrain {
namespace {

constexpr std::string_view kReasoningFields[] = {"reasoning_content", "thinking", "reasoning"};

// Copies a message without null fields, and passes reasoning under all names that templates read.
OrderedJson NormalizeMessage(const OrderedJson& message) {
  OrderedJson fields = OrderedJson::object(), out = OrderedJson::object();
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) fields[key] = value;
  }
  const auto* name = std::ranges::find_if(kReasoningFields, [&](std::string_view n) { return fields.contains(n); });
  if (name == std::end(kReasoningFields)) return fields;
  const OrderedJson reasoning = fields[std::string(*name)];
  out["thinking"] = reasoning;
  for (const auto& [key, value] : fields.items()) out[key] = value;
  out["reasoning_content"] = reasoning;
  return out;
}

// Returns the length of the common prefix, which ends between two characters.
size_t CommonPrefix(std::string_view a, std::string_view b) {
  const size_t shorter = std::min(a.size(), b.size());
  size_t length = std::mismatch(a.begin(), a.begin() + static_cast<int64_t>(shorter), b.begin()).first - a.begin();
  const auto is_inside = [](std::string_view text, size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
  };
  while (length > 0 && (is_inside(a, length) || is_inside(b, length))) --length;
  return length;
}

// Returns the length of the longest suffix of `turn` that `text` begins with, by the prefix function of both.
size_t FindBorder(std::string_view text, std::string_view turn) {
  std::string joined(text.substr(0, turn.size()));
  joined += '\xff';
  joined += turn;
  std::vector<size_t> border(joined.size());
  for (size_t i = 1; i < joined.size(); ++i) {
    size_t length = border[i - 1];
    while (length > 0 && joined[i] != joined[length]) length = border[length - 1];
    border[i] = joined[i] == joined[length] ? length + 1 : 0;
  }
  return turn.empty() ? 0 : border.back();
}

// Renders prefixes of one conversation.
class PrefixRenderer {
 public:
  PrefixRenderer(const ChatTemplate& chat, OrderedJson variables, const RenderOptions& options)
      : chat_(chat), variables_(std::move(variables)), messages_(variables_["messages"]), options_(options) {}

  // Finds the turn of an assistant in the text of all messages.
  absl::StatusOr<TextRange> FindTurn(std::string_view whole, size_t turn) {
    ASSIGN_OR_RETURN(const std::string before, Render(turn, true));
    ASSIGN_OR_RETURN(const std::string after, Render(turn + 1, false));
    const size_t begin = CommonPrefix(before, whole);
    if (whole.starts_with(after)) return TextRange{std::min(begin, after.size()), after.size()};
    ASSIGN_OR_RETURN(const size_t end, FindEndBeforePrompt(whole, turn, before));
    if (end > begin) return TextRange{begin, end};
    const std::string_view alone = std::string_view(after).substr(CommonPrefix(before, after));
    const size_t length = FindBorder(whole.substr(begin), alone);
    if (length > 0) return TextRange{begin, begin + length};
    return Invalid("message ", turn + 1,
                   ": the template renders it differently when others follow, so that its text is not found: use a "
                   "template with {% generation %}");
  }

 private:
  absl::StatusOr<std::string> Render(size_t count, bool prompt) {
    variables_["messages"] = OrderedJson(messages_.begin(), messages_.begin() + static_cast<int64_t>(count));
    if (count == 0) variables_["messages"] = OrderedJson::array();
    variables_["add_generation_prompt"] = prompt;
    auto rendered = chat_.Render(variables_, options_);
    if (rendered.ok()) return std::move(rendered->text);
    return Annotate(rendered.status(), StrCat("rendering the first ", count, " messages: "));
  }

  // Returns the end of a turn before the generation prompt that may follow it, or 0 if the text of all messages begins
  // differently. Some templates end the last turn differently from earlier ones if no prompt follows.
  absl::StatusOr<size_t> FindEndBeforePrompt(std::string_view whole, size_t turn, std::string_view before) {
    ASSIGN_OR_RETURN(const std::string base, Render(turn, false));
    ASSIGN_OR_RETURN(const std::string after, Render(turn + 1, true));
    const std::string_view shared = before.substr(0, CommonPrefix(base, before));
    const size_t marker = shared.rfind('<');
    const bool is_cut = marker != shared.npos && shared.find('>', marker) == shared.npos;
    const std::string_view prompt = before.substr(is_cut ? marker : shared.size());
    if (!std::string_view(after).ends_with(prompt)) return 0;
    const std::string_view until = std::string_view(after).substr(0, after.size() - prompt.size());
    return whole.starts_with(until) ? until.size() : 0;
  }

  const ChatTemplate& chat_;
  OrderedJson variables_;
  const OrderedJson messages_;
  const RenderOptions& options_;
};

}  // namespace

absl::StatusOr<OrderedJson> MakeChatVariables(const OrderedJson& conversation) {
  if (!conversation.is_object() || !conversation.contains("messages") || !conversation["messages"].is_array())
    return Invalid("a conversation is an object with a list of 'messages'");
  OrderedJson variables = conversation;
  OrderedJson messages = OrderedJson::array();
  for (const OrderedJson& message : conversation["messages"]) {
    if (!message.is_object()) return Invalid("message ", messages.size() + 1, " is not an object");
    messages.push_back(NormalizeMessage(message));
  }
  variables["messages"] = std::move(messages);
  for (const char* name : {"tools", "documents"}) {
    OrderedJson& list = variables[name];
    const bool has_objects = list.is_array() && std::ranges::all_of(list, [](const auto& v) { return v.is_object(); });
    if (!list.is_null() && !has_objects) return Invalid("'", name, "' is not a list of objects");
  }
  if (!variables.contains("add_generation_prompt")) variables["add_generation_prompt"] = false;
  return variables;
}

absl::StatusOr<RenderedChat> RenderChat(const ChatTemplate& chat, const OrderedJson& conversation,
                                        const RenderOptions& options) {
  ASSIGN_OR_RETURN(const OrderedJson variables, MakeChatVariables(conversation));
  return chat.Render(variables, options);
}

absl::StatusOr<RenderedChat> RenderTrainedChat(const ChatTemplate& chat, const OrderedJson& conversation,
                                               const RenderOptions& options) {
  ASSIGN_OR_RETURN(OrderedJson variables, MakeChatVariables(conversation));
  ASSIGN_OR_RETURN(RenderedChat rendered, chat.Render(variables, options));
  if (chat.marks_generation()) return rendered;
  const OrderedJson& messages = variables["messages"];
  PrefixRenderer renderer(chat, variables, options);
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto role = messages[i].find("role");
    if (role == messages[i].end() || *role != "assistant") continue;
    ASSIGN_OR_RETURN(const TextRange turn, renderer.FindTurn(rendered.text, i));
    rendered.generated.push_back(turn);
  }
  return rendered;
}

}  // namespace onnxtrain
