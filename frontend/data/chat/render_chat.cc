#include "frontend/data/chat/render_chat.h"

#include <algorithm>
#include <cstring>

#include "frontend/data/chat/json_text.h"

namespace onnxtrain {
namespace {

constexpr std::string_view kReasoningFields[] = {"reasoning_content", "thinking", "reasoning"};

bool HasReasoning(const OrderedJson& message) {
  return std::ranges::any_of(kReasoningFields, [&](std::string_view name) { return message.contains(name); });
}

// Removes null fields of a message, and passes reasoning under all names that templates read.
OrderedJson NormalizeMessage(OrderedJson message) {
  const bool has_null = std::ranges::any_of(message, [](const OrderedJson& value) { return value.is_null(); });
  if (!has_null && !HasReasoning(message)) return message;
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
  constexpr size_t kBlock = 32;  // bytes that are compared at once
  size_t length = 0;
  while (length + kBlock <= shorter && std::memcmp(&a[length], &b[length], kBlock) == 0) length += kBlock;
  while (length < shorter && a[length] == b[length]) ++length;
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
  // `variables` have a list of "messages"; `whole` is the text of all of them, after which no prompt follows if
  // `is_ended`.
  PrefixRenderer(const ChatTemplate& chat, jinja::Dict variables, std::string_view whole, bool is_ended,
                 const RenderOptions& options)
      : chat_(chat),
        variables_(std::move(variables)),
        messages_(variables_.Find("messages")->sequence()->items),
        whole_(whole),
        is_ended_(is_ended),
        options_(options) {}

  // Finds the turn of an assistant in the text of all messages.
  absl::StatusOr<TextRange> FindTurn(size_t turn) {
    ASSIGN_OR_RETURN(const std::string before, Render(turn, true));
    const size_t begin = CommonPrefix(before, whole_);
    if (is_ended_ && turn + 1 == messages_.size()) return TextRange{begin, whole_.size()};
    ASSIGN_OR_RETURN(const std::string after, Render(turn + 1, false));
    return FindIn(turn, begin, before, after);
  }

 private:
  // Finds the turn in the text of all messages from those of the messages before it and with it.
  absl::StatusOr<TextRange> FindIn(size_t turn, size_t begin, std::string_view before, std::string_view after) {
    if (whole_.starts_with(after)) return TextRange{std::min(begin, after.size()), after.size()};
    ASSIGN_OR_RETURN(const size_t end, FindEndBeforePrompt(turn, before));
    if (end > begin) return TextRange{begin, end};
    const std::string_view alone = after.substr(CommonPrefix(before, after));
    const size_t length = FindBorder(whole_.substr(begin), alone);
    if (length > 0) return TextRange{begin, begin + length};
    return Invalid("message ", turn + 1,
                   ": the template renders it differently when others follow, so that its text is not found: use a "
                   "template with {% generation %}");
  }

  absl::StatusOr<std::string> Render(size_t count, bool prompt) {
    const auto end = messages_.begin() + static_cast<int64_t>(count);
    ASSIGN_OR_RETURN(*Find("messages"), jinja::MakeSequence(jinja::SequenceKind::kList, {messages_.begin(), end}));
    *Find("add_generation_prompt") = prompt;
    auto rendered = chat_.RenderValues(variables_, options_);
    if (rendered.ok()) return std::move(rendered->text);
    return Annotate(rendered.status(), StrCat("rendering the first ", count, " messages: "));
  }

  // Returns the end of a turn before the generation prompt that may follow it, or 0 if the text of all messages begins
  // differently. Some templates end the last turn differently from earlier ones if no prompt follows.
  absl::StatusOr<size_t> FindEndBeforePrompt(size_t turn, std::string_view before) {
    ASSIGN_OR_RETURN(const std::string base, Render(turn, false));
    ASSIGN_OR_RETURN(const std::string after, Render(turn + 1, true));
    const std::string_view shared = before.substr(0, CommonPrefix(base, before));
    const size_t marker = shared.rfind('<');
    const bool is_cut = marker != shared.npos && shared.find('>', marker) == shared.npos;
    const std::string_view prompt = before.substr(is_cut ? marker : shared.size());
    if (!std::string_view(after).ends_with(prompt)) return 0;
    const std::string_view until = std::string_view(after).substr(0, after.size() - prompt.size());
    return whole_.starts_with(until) ? until.size() : 0;
  }

  jinja::Value* Find(std::string_view name) { return &variables_.items[variables_.FindIndex(name)].second; }

  const ChatTemplate& chat_;
  jinja::Dict variables_;
  const jinja::Values messages_;
  const std::string_view whole_;
  const bool is_ended_;
  const RenderOptions& options_;
};

}  // namespace

absl::StatusOr<OrderedJson> MakeChatVariables(OrderedJson conversation) {
  if (!conversation.is_object() || !conversation.contains("messages") || !conversation["messages"].is_array())
    return Invalid("a conversation is an object with a list of 'messages'");
  OrderedJson variables = std::move(conversation);
  for (size_t i = 0; OrderedJson & message : variables["messages"]) {
    if (++i; !message.is_object()) return Invalid("message ", i, " is not an object");
    message = NormalizeMessage(std::move(message));
  }
  for (const char* name : {"tools", "documents"}) {
    OrderedJson& list = variables[name];
    const bool has_objects = list.is_array() && std::ranges::all_of(list, [](const auto& v) { return v.is_object(); });
    if (!list.is_null() && !has_objects) return Invalid("'", name, "' is not a list of objects");
  }
  if (!variables.contains("add_generation_prompt")) variables["add_generation_prompt"] = false;
  return variables;
}

absl::StatusOr<RenderedChat> RenderChat(const ChatTemplate& chat, OrderedJson conversation,
                                        const RenderOptions& options) {
  ASSIGN_OR_RETURN(OrderedJson variables, MakeChatVariables(std::move(conversation)));
  return chat.Render(std::move(variables), options);
}

absl::StatusOr<RenderedChat> RenderTrainedChat(const ChatTemplate& chat, OrderedJson conversation,
                                               const RenderOptions& options) {
  ASSIGN_OR_RETURN(OrderedJson variables, MakeChatVariables(std::move(conversation)));
  const bool is_ended = variables["add_generation_prompt"] == false;
  ASSIGN_OR_RETURN(const jinja::Value values, jinja::FromJson(std::move(variables)));
  ASSIGN_OR_RETURN(RenderedChat rendered, chat.RenderValues(*values.dict(), options));
  if (chat.marks_generation()) return rendered;
  const jinja::Values& messages = values.dict()->Find("messages")->sequence()->items;
  PrefixRenderer renderer(chat, *values.dict(), rendered.text, is_ended, options);
  for (size_t i = 0; i < messages.size(); ++i) {
    const jinja::Value* role = messages[i].dict()->Find("role");
    if (role == nullptr || role->text() == nullptr || *role->text() != "assistant") continue;
    ASSIGN_OR_RETURN(const TextRange turn, renderer.FindTurn(i));
    rendered.generated.push_back(turn);
  }
  return rendered;
}

}  // namespace onnxtrain
