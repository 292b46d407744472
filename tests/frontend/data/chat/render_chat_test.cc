// Conversations: normalized messages, turns of assistants, token masks, and the templates that have names.
#include "frontend/data/chat/render_chat.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "frontend/data/chat/builtin_templates.h"

namespace onnxtrain {
namespace {

constexpr char kPlain[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

OrderedJson MakeChat(std::vector<std::pair<std::string, std::string>> turns) {
  OrderedJson messages = OrderedJson::array();
  for (auto& [role, content] : turns) messages.push_back({{"role", role}, {"content", content}});
  return {{"messages", messages}, {"bos_token", "<s>"}, {"eos_token", "</s>"}};
}

// Returns the trained parts of the text between brackets.
std::string MarkTrained(std::string_view source, const OrderedJson& chat) {
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return std::string(parsed.status().message());
  const auto rendered = RenderTrainedChat(**parsed, chat);
  if (!rendered.ok()) return std::string(rendered.status().message());
  std::string out = rendered->text;
  for (auto it = rendered->generated.rbegin(); it != rendered->generated.rend(); ++it)
    out.insert(it->end, "]").insert(it->begin, "[");
  return out;
}

TEST(RenderTrainedChat, FindsTurnsByPrefixes) {
  EXPECT_EQ(MarkTrained(kPlain, MakeChat({{"user", "hé"}, {"assistant", "a"}, {"user", "b"}, {"assistant", "ü"}})),
            "<user>hé</s>\n<assistant>[a</s>\n]<user>b</s>\n<assistant>[ü</s>\n]");
}

TEST(RenderTrainedChat, TakesGenerationBlocks) {
  EXPECT_EQ(
      MarkTrained("{% for m in messages %}{{ m.role }}:{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
                  MakeChat({{"user", "a"}, {"assistant", "b"}})),
      "user:[a]assistant:[b]");
}

TEST(RenderTrainedChat, FindsTurnsThatLaterOnesChange) {
  constexpr char kThinks[] =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.last %}<think></think>{% endif %}"
      "{{ m.content }}.{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  EXPECT_EQ(MarkTrained(kThinks, MakeChat({{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}})),
            "<user>a.<assistant>[b.]<user>c.<assistant>[<think></think>d.]");
}

TEST(RenderTrainedChat, FindsTurnsOfTemplatesThatEndTheLastOneDifferently) {
  constexpr char kEnds[] =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
      "{{ '</s>' if loop.last and m.role == 'assistant' and not add_generation_prompt else '<end>' }}"
      "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  EXPECT_EQ(MarkTrained(kEnds, MakeChat({{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}})),
            "<user>a<end><assistant>[b<end>]<user>c<end><assistant>[d</s>]");
}

TEST(RenderTrainedChat, BeginsWhereThePromptEnds) {
  constexpr char kPrompted[] =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}.{% endfor %}"
      "{% if add_generation_prompt %}<assistant><think>{% endif %}";
  EXPECT_EQ(MarkTrained(kPrompted, MakeChat({{"user", "a"}, {"assistant", "b"}})), "<user>a.<assistant>[b.]");
}

TEST(RenderTrainedChat, NamesATurnThatIsNotFound) {
  constexpr char kCounts[] = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}";
  EXPECT_EQ(MarkTrained(kCounts, MakeChat({{"user", "a"}, {"assistant", "b"}, {"user", "c"}})).substr(0, 60),
            "message 2: the template renders it differently when others f");
}

TEST(RenderChat, NormalizesMessages) {
  const auto chat = ChatTemplate::Parse("{{ messages }}{{ tools }}{{ add_generation_prompt }}");
  ASSERT_TRUE(chat.ok());
  const auto rendered = RenderChat(
      **chat,
      {{"messages", {{{"role", "assistant"}, {"content", nullptr}, {"reasoning", "r"}, {"tool_calls", nullptr}}}}});
  ASSERT_TRUE(rendered.ok());
  EXPECT_EQ(rendered->text,
            "[{'thinking': 'r', 'role': 'assistant', 'reasoning': 'r', 'reasoning_content': 'r'}]NoneFalse");
}

TEST(RenderChat, RefusesOtherJson) {
  const auto chat = ChatTemplate::Parse("");
  ASSERT_TRUE(chat.ok());
  for (const char* json : {"[]", "{}", R"({"messages": {}})", R"({"messages": ["x"]})",
                           R"({"messages": [], "tools": 1})", R"({"messages": [{"k": 18446744073709551615}]})"})
    EXPECT_FALSE(RenderChat(**chat, OrderedJson::parse(json)).ok()) << json;
}

// The trained text of a turn of the builtin templates is the answer with the end of the turn, and prompts end where
// it begins.
TEST(BuiltinTemplates, TrainAnswersAndTheirEnds) {
  const OrderedJson chat =
      MakeChat({{"system", "s"}, {"user", "q"}, {"assistant", "a"}, {"user", "r"}, {"assistant", "b"}});
  for (const std::string& name : ListChatTemplates()) {
    const BuiltinChatTemplate* row = FindChatTemplate(name);
    ASSERT_NE(row, nullptr);
    const auto parsed = ChatTemplate::Parse(row->source);
    ASSERT_TRUE(parsed.ok()) << name << parsed.status();
    const auto rendered = RenderTrainedChat(**parsed, chat);
    ASSERT_TRUE(rendered.ok()) << name << rendered.status();
    ASSERT_EQ(rendered->generated.size(), 2u) << name;
    const TextRange last = rendered->generated[1];
    const std::string end = row->end_of_turn == "eos_token" ? "</s>" : std::string(row->end_of_turn);
    EXPECT_TRUE(rendered->text.substr(last.begin, last.end - last.begin).ends_with("b" + end)) << name;
    OrderedJson prompt = chat;
    prompt["messages"].erase(4);
    prompt["add_generation_prompt"] = true;
    const auto before = RenderChat(**parsed, prompt);
    ASSERT_TRUE(before.ok());
    EXPECT_EQ(before->text, rendered->text.substr(0, last.begin)) << name;
  }
}

TEST(BuiltinTemplates, ChatMl) {
  EXPECT_EQ(MarkTrained(FindChatTemplate("chatml")->source, MakeChat({{"user", "q"}, {"assistant", "a"}})),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[a<|im_end|>]\n");
  EXPECT_EQ(FindChatTemplate("nothing"), nullptr);
}

}  // namespace
}  // namespace onnxtrain
