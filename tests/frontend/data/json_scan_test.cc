#include "frontend/data/sources/json_scan.h"

#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/json.h"
#include "gmock/gmock.h"
#include "tests/frontend/data/files.h"

namespace onnxtrain {
namespace {

using testing::ElementsAre;
using testing::FieldsAre;

TEST(ScanJsonObject, FindsMembers) {
  const auto members = ScanJsonObject(R"( {"a": [{"b": "]\\" , "c": [1.5e3]}] , "d":null,"e" : "\u00e9\n"} )");
  ASSERT_TRUE(members.has_value());
  EXPECT_THAT(*members, ElementsAre(FieldsAre("a", R"([{"b": "]\\" , "c": [1.5e3]}])"), FieldsAre("d", "null"),
                                    FieldsAre("e", R"("\u00e9\n")")));
  EXPECT_TRUE(ScanJsonObject("{}").has_value());
}

TEST(ScanJsonObject, RefusesWhatParseJsonRefuses) {
  for (const std::string text :
       {"", "[1]", "{", R"({"a"})", R"({"a": })", R"({"a": 1,})", R"({"a": [1,]})", R"({"a": 01})", R"({"a": tru})",
        R"({"a": "b)", "{\"a\": \"\n\"}", R"({"a": "\x"})", R"({"a": "\u12g4"})", R"({"a": 1} 2)", "{\"a\": \"\xff\"}",
        R"({"a": [{]})", R"({a: 1})"}) {
    EXPECT_FALSE(ScanJsonObject(text).has_value()) << text;
    EXPECT_FALSE(ParseJsonObject(text).ok()) << text;
  }
  const std::string deep = std::string(70, '[') + std::string(70, ']');
  EXPECT_FALSE(ScanJsonObject(StrCat("{\"a\": ", deep, "}")).has_value());
}

TEST(JsonLines, KeepTheTextOfListsOfObjects) {
  const TempDir folder;
  const std::string path = folder.Write("d.jsonl",
                                        "{\"m\": [{\"role\":  \"user\"}], \"n\": 1}\n"
                                        "{\"m\": \"plain\", \"n\": 2}\n{\"n\": 3, \"m\": [{}]}\n");
  DatasetOptions options;
  options.text.names = {"m"};
  const auto data = OpenDataset(path, options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(*(*data)->ReadText(0, 0), "[{\"role\":  \"user\"}]");
  EXPECT_EQ(*(*data)->ReadText(1, 0), "plain");
  EXPECT_EQ(*(*data)->ReadText(2, 0), "[{}]");
  folder.Write("d.jsonl", "{\"m\": [{\"role\": user}], \"n\": 1}\n");
  EXPECT_THAT(Message(OpenDataset(path, options).status()), testing::HasSubstr("row 1: not a JSON object"));
}

}  // namespace
}  // namespace onnxtrain
