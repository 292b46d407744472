#include "frontend/data/chat/dialogues.h"

#include <algorithm>
#include <array>
#include <span>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"

namespace onnxtrain {
namespace {

using Kind = DialogueForm::Kind;
using Json = OrderedJson;

struct NamedForm {
  Kind kind;
  const char *first, *second;
};
// Lists the names of columns in public data sets, the richest forms first.
constexpr NamedForm kForms[] = {
    {Kind::kPreference, "chosen", "rejected"},     {Kind::kMessages, "messages", ""},
    {Kind::kMessages, "conversations", ""},        {Kind::kMessages, "conversation", ""},
    {Kind::kCompletion, "prompt", "completion"},   {Kind::kCompletion, "prompt", "response"},
    {Kind::kInstruction, "instruction", "output"}, {Kind::kInstruction, "instruction", "response"},
    {Kind::kInstruction, "question", "answer"},    {Kind::kInstruction, "query", "response"},
};

// Columns of prompts without answers.
constexpr NamedForm kPromptForms[] = {
    {Kind::kCompletion, "prompt", ""}, {Kind::kInstruction, "instruction", ""}, {Kind::kInstruction, "question", ""},
    {Kind::kInstruction, "query", ""}, {Kind::kCompletion, "text", ""},
};

// An optional column with its usual names.
struct NamedPart {
  std::string DialogueForm::*column;
  bool of_instructions;  // only in data of instructions
  std::array<const char*, 2> names;
};
constexpr NamedPart kParts[] = {
    {&DialogueForm::context, true, {"input", "context"}},
    {&DialogueForm::system, true, {"system", "system_prompt"}},
    {&DialogueForm::history, true, {"history", "history"}},
    {&DialogueForm::tools, false, {"tools", "tools"}},
};

// Maps names of speakers to the roles of chat templates.
constexpr std::pair<const char*, const char*> kRoles[] = {
    {"human", "user"},      {"gpt", "assistant"},           {"chatgpt", "assistant"}, {"bot", "assistant"},
    {"model", "assistant"}, {"function_call", "assistant"}, {"observation", "tool"},  {"function_response", "tool"},
};

std::optional<int> FindColumn(const Dataset& data, const std::string& name) {
  const std::vector<Column>& columns = data.columns();
  const auto found = std::ranges::find(columns, name, &Column::name);
  const bool is_text = found != columns.end() && found->text;
  return is_text ? std::optional(static_cast<int>(found - columns.begin())) : std::nullopt;
}

// Adds the optional columns that the data set has.
DialogueForm WithParts(const Dataset& data, DialogueForm form) {
  for (const NamedPart& part : kParts) {
    if (part.of_instructions && form.kind != Kind::kInstruction) continue;
    for (const char* name : part.names) {
      if ((form.*part.column).empty() && FindColumn(data, name).has_value()) form.*part.column = name;
    }
  }
  if (form.kind == Kind::kPreference && FindColumn(data, "prompt").has_value()) form.prompt = "prompt";
  return form;
}

}  // namespace

std::vector<std::string> ListDialogueColumns() {
  std::vector<std::string> names;
  for (const NamedForm& form : kForms) {
    for (const char* name : {form.first, form.second}) {
      if (*name != 0) names.emplace_back(name);
    }
  }
  for (const NamedPart& part : kParts) names.insert(names.end(), part.names.begin(), part.names.end());
  return names;
}

namespace {

std::optional<DialogueForm> FindForm(std::span<const NamedForm> forms, const Dataset& data) {
  for (const NamedForm& form : forms) {
    const auto has = [&](const char* name) { return *name == 0 || FindColumn(data, name).has_value(); };
    if (has(form.first) && has(form.second))
      return WithParts(data, {.kind = form.kind, .first = form.first, .second = form.second});
  }
  return std::nullopt;
}

}  // namespace

std::optional<DialogueForm> FindDialogueForm(const Dataset& data) { return FindForm(kForms, data); }

std::optional<DialogueForm> FindPromptForm(const Dataset& data) {
  std::optional<DialogueForm> form = FindDialogueForm(data);
  return form.has_value() ? form : FindForm(kPromptForms, data);
}

absl::StatusOr<DialogueForm> MakeCompletionForm(const Dataset& data, const std::string& prompt,
                                                const std::string& completion) {
  for (const std::string& name : {prompt, completion}) {
    if (!FindColumn(data, name).has_value()) return Invalid("there is no column '", name, "' of text");
  }
  return WithParts(data, {.kind = Kind::kCompletion, .first = prompt, .second = completion});
}

namespace {

// Returns the text of an optional column; "" if there is none.
absl::StatusOr<std::string> ReadColumn(const Dataset& data, int64_t row, const std::string& name) {
  const auto column = name.empty() ? std::nullopt : FindColumn(data, name);
  return column.has_value() ? data.ReadText(row, *column) : absl::StatusOr<std::string>("");
}

Json MakeMessage(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

// Fails on content that language models of tokens cannot read.
absl::Status CheckContent(const Json& message) {
  if (!message.contains("content") || !message["content"].is_array()) return absl::OkStatus();
  for (const Json& part : message["content"]) {
    const std::string type = part.is_object() ? part.value("type", "text") : "text";
    if (type != "text") return Invalid("a message holds '", Printable(type), "': language models read text alone");
  }
  return absl::OkStatus();
}

// Renames {from, value} to {role, content}.
absl::StatusOr<Json> ToMessage(Json turn) {
  if (!turn.is_object()) return Invalid("a message is ", turn.type_name(), ", not an object with role and content");
  if (!turn.contains("role") && turn.contains("from")) {
    const std::string from = turn["from"].is_string() ? turn["from"].get<std::string>() : "";
    const auto* known = std::ranges::find(kRoles, from, [](const auto& role) { return std::string_view(role.first); });
    turn = MakeMessage(known == std::end(kRoles) ? from.c_str() : known->second,
                       turn.contains("value") && turn["value"].is_string() ? turn["value"].get<std::string>() : "");
  }
  if (!turn.contains("role") || !turn["role"].is_string()) return Invalid("a message has no role");
  RETURN_IF_ERROR(CheckContent(turn));
  return turn;
}

// Parses a list of messages; null if the text is not one.
absl::StatusOr<Json> ParseMessages(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos || text[begin] != '[') return Json();
  Json messages = ParseJson<Json>(text);
  const bool is_list = messages.is_array() && !messages.empty() && messages[0].is_object();
  if (!is_list) return Json();
  for (Json& message : messages) {
    ASSIGN_OR_RETURN(message, ToMessage(std::move(message)));
  }
  return messages;
}

absl::StatusOr<Json> ReadTools(const Dataset& data, int64_t row, const DialogueForm& form) {
  ASSIGN_OR_RETURN(const std::string text, ReadColumn(data, row, form.tools));
  if (text.empty()) return Json();
  Json tools = ParseJson<Json>(text);
  if (!tools.is_array()) return Invalid("column '", form.tools, "' is no list of tools");
  return tools.empty() ? Json() : tools;
}

absl::StatusOr<Dialogue> ReadMessages(const Dataset& data, int64_t row, const DialogueForm& form) {
  Dialogue dialogue;
  ASSIGN_OR_RETURN(const std::string text, ReadColumn(data, row, form.first));
  ASSIGN_OR_RETURN(dialogue.messages, ParseMessages(text));
  if (dialogue.messages.is_null()) return Invalid("is no list of messages");
  return dialogue;
}

absl::StatusOr<Dialogue> ReadCompletion(const Dataset& data, int64_t row, const DialogueForm& form, bool as_messages) {
  Dialogue dialogue;
  ASSIGN_OR_RETURN(dialogue.prompt, ReadColumn(data, row, form.first));
  ASSIGN_OR_RETURN(dialogue.answer, ReadColumn(data, row, form.second));
  ASSIGN_OR_RETURN(Json prompt, ParseMessages(dialogue.prompt));
  ASSIGN_OR_RETURN(Json answer, ParseMessages(dialogue.answer));
  if (form.second.empty() && !prompt.is_null()) answer = Json::array();
  if (prompt.is_null() != answer.is_null())
    return Invalid("one of '", form.first, "' and '", form.second, "' is a list of messages, the other is none");
  if (prompt.is_null() && as_messages) {
    prompt = Json::array({MakeMessage("user", dialogue.prompt)});
    answer = Json::array({MakeMessage("assistant", dialogue.answer)});
  }
  if (prompt.is_null()) return dialogue;
  dialogue.prompt_messages = std::ssize(prompt);
  dialogue.messages = std::move(prompt);
  for (Json& message : answer) dialogue.messages.push_back(std::move(message));
  return dialogue;
}

// Returns the bytes that both texts begin with: whole characters, without a last blank.
size_t FindCommonPrefix(const std::string& a, const std::string& b) {
  size_t end = std::ranges::mismatch(a, b).in1 - a.begin();
  const auto continues = [](const std::string& text, size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
  };
  while (end > 0 && (continues(a, end) || continues(b, end))) --end;
  return end > 0 && a[end - 1] == ' ' ? end - 1 : end;
}

Dialogue JoinMessages(const Json& prompt, const Json& answer) {
  Dialogue dialogue{.messages = prompt, .prompt_messages = std::ssize(prompt)};
  for (const Json& message : answer) dialogue.messages.push_back(message);
  return dialogue;
}

// Moves the messages that both begin with to the end of *prompt.
void TakeCommonMessages(Json* prompt, Json* chosen, Json* rejected) {
  while (!chosen->empty() && !rejected->empty() && chosen->front() == rejected->front()) {
    prompt->push_back(chosen->front());
    chosen->erase(0);
    rejected->erase(0);
  }
}

// Adds the earlier turns of an instruction, which are a list of pairs of question and answer.
absl::Status AddHistory(const std::string& text, Json* messages) {
  const Json history = text.empty() ? Json::array() : ParseJson<Json>(text);
  if (!history.is_array()) return Invalid("the history is no list of pairs");
  for (const Json& pair : history) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      return Invalid("the history is no list of pairs of texts");
    messages->push_back(MakeMessage("user", pair[0]));
    messages->push_back(MakeMessage("assistant", pair[1]));
  }
  return absl::OkStatus();
}

absl::StatusOr<Dialogue> ReadInstruction(const Dataset& data, int64_t row, const DialogueForm& form) {
  Dialogue dialogue{.messages = Json::array()};
  ASSIGN_OR_RETURN(const std::string system, ReadColumn(data, row, form.system));
  if (!system.empty()) dialogue.messages.push_back(MakeMessage("system", system));
  ASSIGN_OR_RETURN(const std::string history, ReadColumn(data, row, form.history));
  RETURN_IF_ERROR(AddHistory(history, &dialogue.messages));
  ASSIGN_OR_RETURN(std::string instruction, ReadColumn(data, row, form.first));
  ASSIGN_OR_RETURN(const std::string context, ReadColumn(data, row, form.context));
  if (!context.empty()) StrAppend(&instruction, instruction.empty() ? "" : "\n", context);
  dialogue.messages.push_back(MakeMessage("user", instruction));
  dialogue.prompt_messages = std::ssize(dialogue.messages);
  ASSIGN_OR_RETURN(const std::string output, ReadColumn(data, row, form.second));
  dialogue.messages.push_back(MakeMessage("assistant", output));
  return dialogue;
}

}  // namespace

absl::StatusOr<Dialogue> ReadDialogue(const Dataset& data, int64_t row, const DialogueForm& form, bool as_messages) {
  auto dialogue = form.kind == Kind::kMessages     ? ReadMessages(data, row, form)
                  : form.kind == Kind::kCompletion ? ReadCompletion(data, row, form, as_messages)
                                                   : ReadInstruction(data, row, form);
  if (!dialogue.ok()) return Annotate(dialogue.status(), StrCat("column '", form.first, "': "));
  if (dialogue->messages.is_null()) return dialogue;
  auto tools = ReadTools(data, row, form);
  if (!tools.ok()) return tools.status();
  dialogue->tools = *std::move(tools);
  return dialogue;
}

absl::StatusOr<DialoguePair> ReadDialoguePair(const Dataset& data, int64_t row, const DialogueForm& form,
                                              bool as_messages) {
  ASSIGN_OR_RETURN(const std::string prompt_text, ReadColumn(data, row, form.prompt));
  ASSIGN_OR_RETURN(const std::string first, ReadColumn(data, row, form.first));
  ASSIGN_OR_RETURN(const std::string second, ReadColumn(data, row, form.second));
  for (const auto& [name, text] : {std::pair(form.first, first), {form.second, second}}) {
    if (text.empty() || text == "null") return Invalid("column '", name, "' holds no answer");
  }
  ASSIGN_OR_RETURN(Json prompt, ParseMessages(prompt_text));
  ASSIGN_OR_RETURN(Json chosen, ParseMessages(first));
  ASSIGN_OR_RETURN(Json rejected, ParseMessages(second));
  if (chosen.is_null() != rejected.is_null())
    return Invalid("one of '", form.first, "' and '", form.second, "' is a list of messages, the other is none");
  if (chosen.is_null() && !prompt.is_null())
    return Invalid("'", form.prompt, "' is a list of messages, '", form.first, "' is none");
  if (chosen.is_null()) {
    const size_t shared = form.prompt.empty() ? FindCommonPrefix(first, second) : 0;
    const std::string asked = form.prompt.empty() ? first.substr(0, shared) : prompt_text;
    if (!as_messages)
      return DialoguePair{{.prompt = asked, .answer = first.substr(shared)},
                          {.prompt = asked, .answer = second.substr(shared)}};
    prompt = Json::array({MakeMessage("user", asked)});
    chosen = Json::array({MakeMessage("assistant", first.substr(shared))});
    rejected = Json::array({MakeMessage("assistant", second.substr(shared))});
  } else if (prompt.is_null()) {
    prompt = prompt_text.empty() ? Json::array() : Json::array({MakeMessage("user", prompt_text)});
    if (form.prompt.empty()) TakeCommonMessages(&prompt, &chosen, &rejected);
  }
  DialoguePair pair{JoinMessages(prompt, chosen), JoinMessages(prompt, rejected)};
  ASSIGN_OR_RETURN(pair.chosen.tools, ReadTools(data, row, form));
  pair.rejected.tools = pair.chosen.tools;
  return pair;
}

}  // namespace onnxtrain
