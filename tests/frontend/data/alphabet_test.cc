#include "frontend/data/text/alphabet.h"

#include "gmock/gmock.h"
#include "tests/frontend/data/files.h"

namespace onnxtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ints = std::vector<int64_t>;
using Names = std::vector<std::string>;

Names ReadNames(const std::string& file, const std::string& text) {
  const TempDir folder;
  const auto names = ReadAlphabetNames(folder.Write(file, text));
  return names.ok() ? *names : Names{Message(names.status())};
}

std::shared_ptr<const Alphabet> Make(Names names, int64_t classes, std::optional<int64_t> blank = std::nullopt) {
  auto alphabet = MakeAlphabet(std::move(names), classes, blank);
  EXPECT_TRUE(alphabet.ok()) << alphabet.status();
  return alphabet.ok() ? *alphabet : nullptr;
}

Ints Encode(const Alphabet& alphabet, std::string_view text) {
  const auto classes = alphabet.Encode(text);
  EXPECT_TRUE(classes.ok()) << classes.status();
  return classes.ok() ? *classes : Ints();
}

TEST(Alphabet, ReadsTheFilesOfRecognizers) {
  EXPECT_THAT(ReadNames("dict.txt", "a\r\n,\r\n\"\r\n \r\n"), ElementsAre("a", ",", "\"", " "));
  EXPECT_THAT(ReadNames("alphabet.txt", "# a comment\n \na\n\\#\n"), ElementsAre(" ", "a", "#"));
  EXPECT_THAT(ReadNames("tokens.txt", "<blk> 0\n\u2581the 2\ns 1\n"), ElementsAre("<blk>", "s", "\u2581the"));
  EXPECT_THAT(ReadNames("vocab.json", R"({"<pad>": 0, "|": 1, "A": 2})"), ElementsAre("<pad>", "|", "A"));
  EXPECT_THAT(ReadNames("labels.json", R"(["_", "a", " "])"), ElementsAre("_", "a", " "));
  EXPECT_THAT(ReadNames("charsets.json", R"({"charset": ["", "a"], "image": [-1, 64], "word": false})"),
              ElementsAre("", "a"))
      << "as dddd_trainer writes it";
}

TEST(Alphabet, ReadsTheListInTheSettingsOfPaddle) {
  const std::string settings =
      "PreProcess:\n  transform_ops:\n  - RecResizeImg:\n      image_shape:\n      - 3\n      - 48\n"
      "PostProcess:\n  name: CTCLabelDecode\n  character_dict:\n";
  EXPECT_THAT(ReadNames("inference.yml", settings + "  - \u3000\n  - a\n  - '1'\n  - ''''\n  - '\"'\n  - \"\\\\\"\n"
                                                    "  - \"\\xe9\"\n  - \"\\U0001F550\"\n  next: 1\n"),
              ElementsAre("\u3000", "a", "1", "'", "\"", "\\", "\u00e9", "\U0001F550"));
  EXPECT_THAT(ReadNames("inference.yml", settings + "  - a\n  - 'b\n"),
              ElementsAre(HasSubstr("line 11: '- 'b' is no item")));
  EXPECT_THAT(ReadNames("inference.yml", "a: 1\n"),
              ElementsAre(HasSubstr("inference.yml: has no list character_dict:")));
}

TEST(Alphabet, RefusesFilesThatAreNone) {
  EXPECT_THAT(ReadNames("a.txt", "a\n\nb\n"), ElementsAre(HasSubstr("a.txt: name 2 is empty")));
  EXPECT_THAT(ReadNames("a.txt", "a\nb\na\n"), ElementsAre(HasSubstr("'a' is name 1 and name 3")));
  EXPECT_THAT(ReadNames("a.txt", ""), ElementsAre(HasSubstr("holds 0 names")));
  EXPECT_THAT(ReadNames("a.txt", "a 0\nb 2\n"), ElementsAre(HasSubstr("'b' has the number 2")));
  EXPECT_THAT(ReadNames("a.json", R"({"a": "b"})"), ElementsAre(HasSubstr("names and their numbers")));
  EXPECT_THAT(ReadNames("a.json", "[1, 2]"), ElementsAre(HasSubstr("names and their numbers")));
  EXPECT_THAT(ReadNames("a.json", "{"), ElementsAre(HasSubstr("no JSON")));
  EXPECT_THAT(ReadNames("a.txt", "a\n\xff\n"), ElementsAre(HasSubstr("name 2 is not UTF-8")));
}

TEST(Alphabet, FindsTheBlank) {
  EXPECT_THAT(Make({"a", "b"}, 4)->texts(), ElementsAre("", "a", "b", " ")) << "as in models of PP-OCR";
  EXPECT_THAT(Make({"a", "b"}, 3)->texts(), ElementsAre("", "a", "b"));
  EXPECT_THAT(Make({"a", "b"}, 3, 2)->texts(), ElementsAre("a", "b", ""));
  EXPECT_EQ(Make({"a", "<blk>", "b"}, 3)->blank(), 1);
  EXPECT_EQ(Make({"_", "a", "b"}, 3)->blank(), 0);
  EXPECT_EQ(Make({"a", "b", "_"}, 3)->blank(), 2);
  EXPECT_EQ(Make({"", "a", "b"}, 3)->blank(), 0);
  EXPECT_THAT(Message(MakeAlphabet({"a", "b"}, 2, std::nullopt).status()), HasSubstr("named as the blank"));
  EXPECT_THAT(Message(MakeAlphabet({"a"}, 9, std::nullopt).status()), HasSubstr("1 characters, and 9 classes"));
  EXPECT_THAT(Message(MakeAlphabet({"a", " "}, 4, std::nullopt).status()), HasSubstr("with the space"));
  EXPECT_THAT(Message(MakeAlphabet({"a"}, 2, 7).status()), HasSubstr("blank=7"));
}

TEST(Alphabet, EncodesCharacters) {
  const auto alphabet = Make({"a", "b", "é", "中"}, 6);
  EXPECT_THAT(Encode(*alphabet, "aé 中"), ElementsAre(1, 3, 5, 4));
  EXPECT_EQ(alphabet->Decode(Ints{1, 3, 5, 4}), "aé 中");
  EXPECT_THAT(Message(alphabet->Encode("aß").status()), HasSubstr("no character 'ß', as in 'aß'"));
  EXPECT_THAT(Message(alphabet->Encode("a\xff").status()), HasSubstr("not UTF-8"));
  EXPECT_THAT(Encode(*alphabet, ""), ElementsAre());
}

TEST(Alphabet, TakesTheCaseOfItsLetters) {
  const auto upper = Make({"<pad>", "|", "A", "B", "'"}, 5);
  EXPECT_THAT(Encode(*upper, "ab A'b"), ElementsAre(2, 3, 1, 2, 4, 3)) << "| is the space";
  EXPECT_EQ(upper->Decode(Ints{2, 3, 1, 2}), "AB A");
  EXPECT_THAT(Encode(*Make({"a", "b"}, 3), "AB"), ElementsAre(1, 2));
  EXPECT_FALSE(Make({"a", "B"}, 3)->Encode("b").ok()) << "both cases";
}

TEST(Alphabet, BarIsACharacterAmongOtherMarks) {
  const auto alphabet = Make({"a", "|", "!"}, 4);
  EXPECT_THAT(Encode(*alphabet, "a|"), ElementsAre(1, 2));
  EXPECT_FALSE(alphabet->Encode("a a").ok());
}

// PP-OCRv5 has the mark of SentencePiece among its characters, and a class for the space.
TEST(Alphabet, WordMarkIsACharacterBesideASpace) {
  const auto alphabet = Make({"a", "\u2581"}, 4);
  EXPECT_THAT(Encode(*alphabet, "a a\u2581"), ElementsAre(1, 3, 1, 2));
  EXPECT_EQ(alphabet->Decode(Ints{1, 3, 2}), "a \u2581");
}

TEST(Alphabet, EncodesPiecesOfWords) {
  const auto alphabet = Make({"\u2581the", "\u2581", "c", "at", "t", "a", "<unk>"}, 8, 7);
  EXPECT_THAT(Encode(*alphabet, "the cat"), ElementsAre(0, 1, 2, 3)) << "the longest first";
  EXPECT_EQ(alphabet->Decode(Ints{0, 1, 2, 3}), "the cat");
  EXPECT_TRUE(alphabet->has_spaces());
}

TEST(Alphabet, MergesRepeats) {
  EXPECT_THAT(MergeRepeats(Ints{0, 1, 1, 0, 1, 2, 2, 0}, 0), ElementsAre(1, 1, 2));
  EXPECT_THAT(MergeRepeats(Ints{}, 0), ElementsAre());
}

}  // namespace
}  // namespace onnxtrain
