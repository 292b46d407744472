// Labels that are texts: recognizers of words in pictures and sounds, trained with ctc.
#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "frontend/base/strings.h"
#include "tests/media_files.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

constexpr int64_t kSteps = 8, kClasses = 5, kSamples = 64;

// x[n,8,5] → scores of the blank, a, b, c and a last class, from which the classes of the steps can be learnt.
class TextLabels : public Scratch {
 protected:
  TextLabels() {
    tiny::Model m{.input_shape = {-1, kSteps, kClasses}};
    m.nodes = {{"MatMul", {"x", "w"}, {"o"}}, {"Add", {"o", "b"}, {"y"}}};
    m.weights = {{"w", {kClasses, kClasses}, tiny::Uniform(kClasses * kClasses, 0.5f, 1)},
                 {"b", {kClasses}, std::vector<float>(kClasses, 0)}};
    m.output_shape = {-1, kSteps, kClasses};
    m.Save(Path("plain.onnx"));
    m.metadata = {{"character", "a\nb\nc"}};
    m.Save(Path("m.onnx"));
    WriteAll(Path("chars.txt"), "a\nb\nc\n");
    WriteData("d.jsonl", [](int64_t i) { return Text(i); });
  }

  // Texts of two or three classes that are not equal to their neighbours: "ab", "ba c", …
  static std::string Text(int64_t i) {
    const std::string classes = "abc ";
    std::string text = {classes[i % 3], classes[(i + 1 + i / 3 % 2) % 3]};
    return i % 4 == 0 ? text + " a" : text;
  }

  void WriteData(const std::string& file, const std::function<std::string(int64_t)>& text) const {
    std::string lines;
    for (int64_t i = 0; i < kSamples; ++i) {
      std::vector<std::vector<float>> x(kSteps, std::vector<float>(kClasses, 0));
      const std::string word = Text(i);
      for (int64_t t = 0; t < kSteps; ++t) {
        const size_t at = t / 2;
        const bool blank = t % 2 == 1 || at >= word.size();
        x[t][blank ? 0 : std::string("abc ").find(word[at]) + 1] = 2;
      }
      StrAppend(&lines, Json({{"x", x}, {"text", text(i)}}).dump(), "\n");
    }
    WriteAll(Path(file), lines);
  }

  Json Summary() const { return Json::parse(ReadAll(Path("r/summary.json"))); }
  void Trains(const std::string& flags) {
    const Outcome o = Run("--overwrite --out r --epochs 40 --batch-size 16 --lr 0.1 " + flags);
    ASSERT_EQ(o.code, 0) << o.err;
    text_ = o.out + o.err;
  }
  void Refuses(const std::string& flags, const std::string& why) {
    ExpectRefused(Run("--overwrite --out r --epochs 1 " + flags), why);
  }

  std::string text_;
};

TEST_F(TextLabels, TrainsByTheCharactersOfTheMetadata) {
  Trains("--model m.onnx --data d.jsonl --eval-split 0.25");
  EXPECT_THAT(text_, HasSubstr("labels are texts of the 5 classes in the model's metadata (character); class 0 is"));
  const Json eval = Summary()["eval"];
  EXPECT_EQ(eval["cer"], 0) << eval;
  EXPECT_EQ(eval["wer"], 0) << eval;
  EXPECT_EQ(eval["exact"], 1) << eval;
  EXPECT_GT(Summary()["eval_before"]["cer"], 0.3);
}

// Exports with a batch of one may leave the number of classes open, as those of ddddocr do.
TEST_F(TextLabels, ClassesOfAFixedBatchAreCounted) {
  std::istringstream lines(ReadAll(Path("d.jsonl")));
  std::string columns;
  for (std::string line; std::getline(lines, line);) {
    const Json row = Json::parse(line);
    Json x = Json::array();
    for (int64_t c = 0; c < kClasses; ++c) {
      x.push_back(Json::array());
      for (int64_t t = 0; t < kSteps; ++t) x.back().push_back(row["x"][t][c]);
    }
    StrAppend(&columns, Json({{"x", Json::array({x})}, {"text", row["text"]}}).dump(), "\n");
  }
  WriteAll(Path("columns.jsonl"), columns);
  tiny::Model m{.input_shape = {1, 1, kClasses, -2}};
  m.nodes = {{"ReduceMean", {"x"}, {"s"}, {{"axes", {1}}}, {{"keepdims", 0}}},
             {"Transpose", {"s"}, {"t"}, {{"perm", {2, 0, 1}}}},
             {"MatMul", {"t", "w"}, {"o"}},
             {"Add", {"o", "b"}, {"y"}}};
  m.weights = {{"w", {kClasses, kClasses}, tiny::Uniform(kClasses * kClasses, 0.5f, 1)},
               {"b", {kClasses}, std::vector<float>(kClasses, 0)}};
  m.output_shape = {-3, 1, -4};
  m.Save(Path("m1.onnx"));
  Trains("--model m1.onnx --loss ctc --class-map chars.txt --data columns.jsonl --eval-split 0.25");
  EXPECT_EQ(Summary()["eval"]["exact"], 1) << Summary()["eval"];
}

// A recognizer of lines of one height, which it does not declare.
class OpenHeight : public TextLabels {
 protected:
  OpenHeight() {
    std::filesystem::create_directories(Path("lines"));
    for (int i = 0; i < 8; ++i) {
      const auto rgb = [&](int x, int /*y*/) { return x * 0x010203 + i; };
      WriteAll(Path(StrCat("lines/", i, ".bmp")), Bmp(20 + 4 * i, 20, rgb));
      WriteAll(Path(StrCat("lines/", i, ".txt")), i % 2 == 0 ? "ab" : "ba");
    }
  }
  // Saves a model that takes lines of this height.
  void Save(int64_t height, int64_t channels, const std::vector<int64_t>& declared) const {
    const int64_t width = height * channels;
    tiny::Model m{.input_shape = declared};
    m.nodes = {{"Transpose", {"x"}, {"t"}, {{"perm", {0, 3, 1, 2}}}},
               {"Reshape", {"t", "s"}, {"r"}},
               {"MatMul", {"r", "w"}, {"o"}},
               {"Add", {"o", "b"}, {"y"}}};
    std::string shape;
    for (const int64_t extent : {int64_t{0}, int64_t{0}, width})
      shape += LittleEndian(static_cast<uint32_t>(extent), 4) + LittleEndian(0, 4);
    m.weights = {{"w", {width, kClasses}, tiny::Uniform(width * kClasses, 0.5F, 1)},
                 {"b", {kClasses}, std::vector<float>(kClasses, 0)},
                 {.name = "s", .shape = {3}, .type = 7, .bytes = shape}};
    m.output_shape = {declared[0], -5};
    m.Save(Path("h.onnx"));
  }
  std::string Pictures() const {
    const Json p = Json::parse(ReadAll(Path("r/preprocess.json")))["pictures"];
    return StrCat(p["height"].get<int>(), "x", p["width"].get<int>(), "x", p["channels"].get<int>());
  }
};

TEST_F(OpenHeight, IsFoundOrGiven) {
  const std::string flags = "--model h.onnx --class-map chars.txt --data lines ";
  Save(64, 1, {1, 1, -2, -3});
  Trains(flags);
  EXPECT_EQ(Pictures(), "64x0x1");
  Save(40, 1, {1, 1, -2, -3});
  Refuses("--model h.onnx --class-map chars.txt --data lines", "--image-size HEIGHTxauto sets the height of lines");
  Trains(flags + "--image-size 40xauto");
  EXPECT_EQ(Pictures(), "40x0x1");
  EXPECT_THAT(text_, HasSubstr("labels are texts of the 5 classes"));
  Refuses("--model h.onnx --class-map chars.txt --data lines --image-size 64xauto", "cannot reshape");
}

TEST_F(OpenHeight, ChannelsMayBeOpenToo) {
  for (const int64_t channels : {3, 1}) {
    Save(32, channels, {-1, -2, -3, -4});
    Trains("--model h.onnx --class-map chars.txt --data lines");
    EXPECT_EQ(Pictures(), StrCat("32x0x", channels));
    EXPECT_EQ(Run("predict --model r/model.onnx --data lines --out p.csv").code, 0);
    EXPECT_THAT(ReadAll(Path("p.csv")), HasSubstr("sample,file,prediction,probability"));
  }
}

TEST_F(TextLabels, PredictWritesTexts) {
  Trains("--model m.onnx --data d.jsonl");
  const Outcome o = Run("predict --model r/model.onnx --data d.jsonl --out p.csv");
  ASSERT_EQ(o.code, 0) << o.err;
  std::istringstream lines(ReadAll(Path("p.csv")));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "sample,prediction,probability");
  for (int64_t i = 0; i < kSamples; ++i) {
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_TRUE(line.starts_with(StrCat(i, ",", Text(i), ",0.9"))) << line << " for " << Text(i);
  }
}

// One update leaves errors, which the report shows as text.
TEST_F(TextLabels, ReportShowsTheWorstTexts) {
  const Outcome o = Run("--out r --model m.onnx --data d.jsonl --eval-split 0.25 --max-steps 1 --lr 1e-4");
  ASSERT_EQ(o.code, 0) << o.err;
  const std::string report = ReadAll(Path("r/report.html"));
  const size_t worst = report.find("<h2>Worst samples</h2>");
  ASSERT_NE(worst, std::string::npos);
  EXPECT_NE(report.find("<div>label ab", worst), std::string::npos) << report.substr(worst, 2000);
  EXPECT_NE(report.find("accuracy over confidence"), std::string::npos);
}

TEST_F(TextLabels, EvalUsesTheCharactersOfTraining) {
  Trains("--model plain.onnx --loss ctc --class-map chars.txt --data d.jsonl --eval-split 0.25");
  const Outcome o = Run("eval --model r/model.onnx --data d.jsonl --json");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Json::parse(o.out)["exact"], 1) << o.out;
}

TEST_F(TextLabels, VocabularyBesideTheModel) {
  WriteAll(Path("vocab.json"), R"({"a": 0, "b": 1, "c": 2, "|": 3, "<pad>": 4})");
  Trains("--model plain.onnx --data d.jsonl --eval-split 0.25");
  EXPECT_THAT(text_, HasSubstr("vocab.json; class 4 is the blank"));
  EXPECT_EQ(Summary()["eval"]["exact"], 1);
}

TEST_F(TextLabels, OutputsWithTheTimeFirst) {
  tiny::Model m{.input_shape = {-1, kSteps, kClasses}};
  m.nodes = {{"MatMul", {"x", "w"}, {"o"}}, {"Transpose", {"o"}, {"y"}, {{"perm", {1, 0, 2}}}}};
  m.weights = {{"w", {kClasses, kClasses}, tiny::Uniform(kClasses * kClasses, 0.5f, 1)}};
  m.output_shape = {kSteps, -1, kClasses};
  m.metadata = {{"character", "a\nb\nc"}};
  m.Save(Path("t.onnx"));
  Trains("--model t.onnx --data d.jsonl --eval-split 0.25");
  EXPECT_EQ(Summary()["eval"]["exact"], 1);
  const Outcome o = Run("predict --model r/model.onnx --data d.jsonl --out -");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr(StrCat("\n1,", Text(1), ",0.9")));
}

TEST_F(TextLabels, LongerLabelsOfEvaluationData) {
  WriteData("long.jsonl", [](int64_t i) { return i == 3 ? "abcabc" : Text(i); });
  Trains("--model m.onnx --data d.jsonl --eval-data long.jsonl");
  EXPECT_NEAR(Summary()["eval"]["exact"].get<double>(), 1 - 1.0 / kSamples, 1e-9);
}

TEST_F(TextLabels, CharactersThatTheModelLacks) {
  WriteData("bad.jsonl", [](int64_t i) { return i == 5 ? "a~" : Text(i); });
  Refuses("--model m.onnx --data bad.jsonl", "bad.jsonl: row 6, column 'text': the model has no character '~'");
  const Outcome o = Run("--overwrite --out r --epochs 1 --model m.onnx --data bad.jsonl --on-bad-sample skip");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("left out 1 of 64 samples"));
}

TEST_F(TextLabels, RefusesWhatDoesNotFit) {
  Refuses("--model plain.onnx --loss ctc --class-map nope.txt --data d.jsonl", "nope.txt: ");
  WriteAll(Path("two.txt"), "a\nb\n");
  Refuses("--model plain.onnx --loss ctc --class-map two.txt --data d.jsonl",
          "two.txt: there are 2 characters, and 5 classes in the output of the model");
  Refuses("--model plain.onnx --loss ctc --data d.jsonl",
          "d.jsonl: column 'text' holds texts, and nothing names the characters of the model's classes (--class-map");
  WriteAll(Path("four.txt"), "a\nb\nc\nd\n");
  Refuses("--model plain.onnx --loss ctc --class-map four.txt --data d.jsonl --eval-split 0.2 --metrics wer",
          "no character ' '");
}

// Labels that are numbers are trained as before, and counted as such.
TEST_F(TextLabels, NumbersAsLabels) {
  std::string lines;
  for (int64_t i = 0; i < 8; ++i) {
    const std::vector<std::vector<float>> x(kSteps, tiny::Uniform(kClasses, 1, i));
    StrAppend(&lines, Json({{"x", x}, {"y", {1 + i % 2, 3}}}).dump(), "\n");
  }
  WriteAll(Path("n.jsonl"), lines);
  Trains("--model plain.onnx --loss ctc --data n.jsonl --eval-split 0.5");
  EXPECT_TRUE(Summary()["eval"].contains("cer"));
  Refuses("--model plain.onnx --loss ctc --data n.jsonl --eval-split 0.5 --metrics wer", "no class of the model is a");
}

// Words in pictures of one height and any width: a column of pixels is a step, red is "a", green is "b".
class TextPictures : public TextLabels {
 protected:
  TextPictures() {
    tiny::Model m = MakeModel();
    m.metadata = {{"character", "a\nb"}};
    m.Save(Path("p.onnx"));
  }

  static tiny::Model MakeModel() {
    tiny::Model m{.input_shape = {-1, 3, 2, -2}};
    m.nodes = {{"Transpose", {"x"}, {"t"}, {{"perm", {0, 3, 1, 2}}}},
               {"Reshape", {"t", "rows"}, {"r"}},
               {"MatMul", {"r", "w"}, {"o"}},
               {"Add", {"o", "b"}, {"y"}}};
    m.weights = {{"w", {6, 3}, tiny::Uniform(18, 0.5f, 1)},
                 {"b", {3}, std::vector<float>(3, 0)},
                 {.name = "rows", .shape = {3}, .values = {}, .type = 7, .bytes = Rows()}};
    m.output_shape = {-1, -2, 3};
    return m;
  }

  static std::string Rows() {
    std::string bytes;
    for (const int64_t d : {0, 0, 6}) bytes.append(reinterpret_cast<const char*>(&d), sizeof d);
    return bytes;
  }

  // Writes a picture of the word, two columns for each letter and the blank behind it, and its text.
  void WriteWord(const std::string& name, const std::string& word, const std::string& text) const {
    const auto color = [&](int x, int) { return x % 2 == 1 ? 0 : word[x / 2] == 'a' ? 0xFF0000 : 0x00FF00; };
    WriteAll(Path(name + ".bmp"), Bmp(static_cast<int>(2 * word.size()), 2, color));
    WriteAll(Path(name + ".txt"), text);
  }
};

TEST_F(TextPictures, OfAnyWidth) {
  const std::string words[] = {"ab", "ba", "abba", "bab", "aab", "b"};
  std::filesystem::create_directory(Path("words"));
  for (int64_t i = 0; i < 48; ++i) WriteWord(StrCat("words/", i), words[i % 6], words[i % 6]);
  Trains("--model p.onnx --data words --image-size 2xauto --eval-split 0.25");
  EXPECT_EQ(Summary()["eval"]["exact"], 1) << text_;
  EXPECT_THAT(ReadAll(Path("r/config.flags")), HasSubstr("--length-grouping"));
}

// A trained recognizer keeps its running statistics, which may be initializers or, as in PP-OCR's, Constant nodes.
TEST_F(TextPictures, KeepRunningStatistics) {
  std::filesystem::create_directory(Path("words"));
  for (int64_t i = 0; i < 8; ++i) WriteWord(StrCat("words/", i), "ab", "ab");
  for (const bool constant : {false, true}) {
    for (const float variance : {1.0F, 2.0F}) {
      tiny::Model m = MakeModel();
      m.metadata = {{"character", "a\nb"}};
      m.nodes[0].inputs = {"n"};
      m.nodes.insert(m.nodes.begin(), {"BatchNormalization", {"x", "scale", "zero", "zero", "var"}, {"n"}});
      m.weights.push_back({"scale", {3}, {1, 1, 1}});
      m.weights.push_back({"zero", {3}, {0, 0, 0}});
      if (constant) {
        tiny::Op node{"Constant", {}, {"var"}};
        node.floats = {{"value_floats", std::vector<float>(3, variance)}};
        m.nodes.insert(m.nodes.begin(), node);
      } else {
        m.weights.push_back({"var", {3}, std::vector<float>(3, variance)});
      }
      m.Save(Path("n.onnx"));
      const Outcome o = Run("--model n.onnx --data words --image-size 2xauto --max-steps 1 --overwrite --out r");
      ASSERT_EQ(o.code, 0) << o.err;
      EXPECT_EQ(o.err.find("BatchNormalization is frozen: the few pictures") != std::string::npos, variance != 1)
          << constant << o.err;
    }
  }
}

// The output has no declared shape, the height is free, and a table in the folder has the labels.
TEST_F(TextPictures, SettingsOfPaddle) {
  const std::string words[] = {"ab", "ba", "abba", "bab", "aab", "b"};
  std::filesystem::create_directory(Path("words"));
  std::string table = "file,text\n";
  for (int64_t i = 0; i < 48; ++i) {
    WriteWord(StrCat("words/", i), words[i % 6], "");
    std::filesystem::remove(Path(StrCat("words/", i, ".txt")));
    StrAppend(&table, i, ".bmp,", words[i % 6], "\n");
  }
  WriteAll(Path("words/labels.csv"), table);
  tiny::Model m = MakeModel();
  m.input_shape = {-1, 3, -3, -2};
  m.output_shape.clear();
  std::filesystem::create_directory(Path("ocr"));
  m.Save(Path("ocr/q.onnx"));
  WriteAll(Path("ocr/inference.yml"),
           "PreProcess:\n  - RecResizeImg:\n      image_shape:\n      - 3\n      - 2\n      - 8\n"
           "PostProcess:\n  character_dict:\n  - a\n  - b\n");
  Trains("--model ocr/q.onnx --data words --eval-split 0.25");
  EXPECT_EQ(Summary()["eval"]["exact"], 1) << text_;
  EXPECT_THAT(text_, HasSubstr("pixels as models of PP-OCR take them: --normalize 0.5/0.5, --channel-order bgr"));
  const Json pictures = Json::parse(ReadAll(Path("r/preprocess.json")))["pictures"];
  EXPECT_EQ(pictures["height"], 2);
  EXPECT_EQ(pictures["channel_order"], "bgr");
}

TEST_F(TextPictures, NamesTheFlagForCharacters) {
  MakeModel().Save(Path("u.onnx"));
  std::filesystem::create_directory(Path("words"));
  WriteWord("words/1", "ab", "");
  WriteWord("words/2", "ba", "");
  WriteAll(Path("words.csv"), "file,text\nwords/1.bmp,ab\nwords/2.bmp,ba\n");
  Refuses("--model u.onnx --data words.csv",
          "labels that are texts need --class-map FILE, which names the characters of the 3 classes of 'y'");
}

// The only picture of another width is left out after the model's steps are known.
TEST_F(TextPictures, LeftOutPicturesOfAnotherWidth) {
  std::filesystem::create_directory(Path("words"));
  for (int64_t i = 0; i < 16; ++i) WriteWord(StrCat("words/", i), "ab", i % 2 == 0 ? "ab" : "ba");
  WriteWord("words/z", "b", "abababa");
  const Outcome o = Run("--out r --epochs 1 --model p.onnx --data words --image-size 2xauto --on-bad-sample skip");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("left out 1 of 17 samples"));
  Refuses("--model p.onnx --data words --image-size 2xauto --on-bad-sample skip --length-grouping",
          "all samples have the same length");
}

}  // namespace
}  // namespace onnxtrain
