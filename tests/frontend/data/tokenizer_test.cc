#include "frontend/data/text/tokenizer.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "frontend/data/text/byte_level_scanner.h"
#include "frontend/data/text/load_tokenizer.h"
#include "frontend/data/text/text_dataset.h"
#include "frontend/data/text/unicode.h"
#include "tests/frontend/data/files.h"
#include "tests/paths.h"

namespace onnxtrain {
namespace {

const std::string kFolder = RepoPath("tests/frontend/data/tokenizers/");

std::vector<TokenId> MustEncode(const Tokenizer& tokenizer, std::string_view text) {
  TokenizerScratch scratch;
  std::vector<TokenId> ids;
  const absl::Status status = tokenizer.Encode(text, &scratch, &ids);
  EXPECT_TRUE(status.ok()) << status;
  return ids;
}

std::string Problem(const absl::Status& status) { return std::string(ToStd(status.message())); }

std::string ParseProblem(const std::string& json) { return Problem(ParseTokenizerJson(json).status()); }

class RecordedTokenizer : public testing::TestWithParam<const char*> {};

// tokenizers/make_cases.py has recorded the ids of the reference implementation.
TEST_P(RecordedTokenizer, EqualsReference) {
  const auto tokenizer = LoadTokenizer(StrCat(kFolder, GetParam(), ".json"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto cases = nlohmann::json::parse(ReadFile(StrCat(kFolder, "cases.json")));
  int compared = 0;
  for (const auto& entry : cases) {
    if (entry["tokenizer"] != GetParam()) continue;
    ++compared;
    const auto text = entry["text"].get<std::string>();
    const std::vector<TokenId> first = MustEncode(**tokenizer, text), second = MustEncode(**tokenizer, "second text");
    EXPECT_EQ(first, entry["ids"].get<std::vector<TokenId>>()) << text;
    EncodedSample sample;
    ASSERT_TRUE(FillTemplate((*tokenizer)->single(), first, {}, 0, &sample).ok());
    EXPECT_EQ(sample.ids, entry["with_special"].get<std::vector<TokenId>>()) << text;
    ASSERT_TRUE(FillTemplate((*tokenizer)->pair(), first, second, 0, &sample).ok());
    EXPECT_EQ(sample.ids, entry["pair"].get<std::vector<TokenId>>()) << text;
    EXPECT_EQ(sample.types, entry["types"].get<std::vector<int32_t>>()) << text;
  }
  EXPECT_GT(compared, 10);
}

INSTANTIATE_TEST_SUITE_P(Kinds, RecordedTokenizer,
                         testing::Values("gpt2", "llama3", "bert", "unigram", "sentence_bpe"));

// The cache of words changes nothing, in whatever order they come.
TEST(Tokenizer, CacheChangesNothing) {
  const auto tokenizer = LoadTokenizer(StrCat(kFolder, "gpt2.json"));
  ASSERT_TRUE(tokenizer.ok());
  TokenizerScratch shared;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 3000; ++i) {
      const std::string text = StrCat(" word", i, std::string(i % 40, 'a'), " \u00e9", i % 7);
      std::vector<TokenId> ids;
      ASSERT_TRUE((*tokenizer)->Encode(text, &shared, &ids).ok());
      const bool compared = i % 100 == 0;
      EXPECT_EQ(ids, compared ? MustEncode(**tokenizer, text) : ids) << text;
    }
  }
}

// Text of fragments that stages could treat differently where it is cut.
std::string MakeMixedText(int fragments) {
  static const std::vector<std::string> kFragments = {"the ",
                                                      "word's ",
                                                      "  ",
                                                      " ",
                                                      "\n",
                                                      "\r\n ",
                                                      "\t",
                                                      "1234567 ",
                                                      "a1 ",
                                                      "I'LL ",
                                                      ", ",
                                                      "...  ",
                                                      "x",
                                                      " \u0301e ",
                                                      "e\u0301 ",
                                                      "\u00a0",
                                                      "z\u3000 ",
                                                      "\u4e2d\u6587 ",
                                                      "\U0001f600 ",
                                                      "9 \x01 ",
                                                      "b\u200b ",
                                                      "[SEP]",
                                                      " <|endoftext|> ",
                                                      "Stra\u00dfe ",
                                                      "\u1100\u1161 ",
                                                      "q \u0323"};
  std::string text;
  uint32_t state = 1;
  for (int i = 0; i < fragments; ++i) {
    state = state * 1664525 + 1013904223;
    text += kFragments[(state >> 16) % kFragments.size()];
  }
  return text;
}

TEST(Tokenizer, CutTextHasTheIdsOfTheWhole) {
  const std::string text = MakeMixedText(4000);
  for (const char* name : {"gpt2", "llama3", "bert", "unigram", "sentence_bpe"}) {
    const auto tokenizer = LoadTokenizer(StrCat(kFolder, name, ".json"));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const std::vector<TokenId> whole = MustEncode(**tokenizer, text);
    for (const size_t bytes : {1, 7, 100, 3000}) {
      std::vector<TokenId> ids;
      ASSERT_TRUE(EncodeOnThreads(**tokenizer, text, 3, bytes, &ids).ok());
      EXPECT_EQ(ids, whole) << name << ", parts of " << bytes;
    }
    const bool cuts = name != std::string("unigram") && name != std::string("sentence_bpe");
    const auto parts = (*tokenizer)->Cut(text.substr(0, text.find('[')), 1);
    ASSERT_TRUE(parts.ok());
    EXPECT_EQ(parts->size() > 1, cuts) << name;
  }
}

TEST(Unicode, NormalizesRunsAsTheWhole) {
  const auto normalize = [](NormalForm form, std::string_view text) {
    std::string out;
    AppendNormalized(form, text, &out);
    return out;
  };
  EXPECT_EQ(normalize(NormalForm::kNfc, "cafe\u0301 and e\u0323\u0307x"), "caf\u00e9 and \u1eb9\u0307x");
  EXPECT_EQ(normalize(NormalForm::kNfc, "\u0301a\u1100\u1161b"), "\u0301a\uac00b");
  EXPECT_EQ(normalize(NormalForm::kNfd, "\u00e9\u00e9a"), "e\u0301e\u0301a");
  EXPECT_EQ(normalize(NormalForm::kNfkc, "a\u2460\ufb01\u0301."), "a1f\u00ed.");
  EXPECT_EQ(normalize(NormalForm::kNfkc, "long enough for words, then \uff21\u0301"),
            "long enough for words, then \u00c1");
  EXPECT_EQ(normalize(NormalForm::kNfc, ""), "");
}

TEST(Tokenizer, LongWordsTakeLinearithmicTime) {
  const auto tokenizer = LoadTokenizer(StrCat(kFolder, "gpt2.json"));
  ASSERT_TRUE(tokenizer.ok());
  const std::string text(size_t{1} << 20, 'e');  // would take an hour if every merge scanned the word
  EXPECT_FALSE(MustEncode(**tokenizer, text).empty());
}

TEST(Tokenizer, ScannersEqualTheirExpressions) {
  const char* expressions[] = {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
                               R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+)"
                               R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                               R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+)"
                               R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
  const char* parts[] = {"a",      "Z",      "7",          " ",      "  ",      "\n",     "\r\n",   "\t",
                         "'s",     "'LL",    "'",          ".",      "!?",      "\u00e9", "\u4e00", "\u0663",
                         "\u00a0", "\u3000", "\U0001f600", "\u0301", "'\u017f", "_"};
  uint32_t random = 1;
  for (const char* expression : expressions) {
    const auto regex = Regex::Compile(expression);
    const PieceScanner scan = FindPieceScanners(expression).one;
    ASSERT_TRUE(regex.ok() && scan != nullptr);
    for (int round = 0; round < 2000; ++round) {
      std::string text;
      for (int k = 0; k < 12; ++k) text += parts[(random = random * 1664525 + 1013904223) % 65536 % std::size(parts)];
      std::vector<size_t> ends, scanned;
      (*regex)->ForEachMatch(text, [&](size_t, size_t end) { ends.push_back(end); });
      for (size_t at = 0; at < text.size();) scanned.push_back(at = scan(text, at));
      ASSERT_EQ(ends, scanned) << text;
    }
  }
}

// Text that is mostly ASCII, as the vector code expects it, with what it must leave to the scanners of single pieces.
std::string MakeText(std::mt19937* random) {
  static constexpr const char* kParts[] = {"a",  "the", "Word", "I",  "s",      "ll",     " ",      " ",     " ",
                                           "  ", "\n",  "\r\n", "\t", "'",      "'s",     "'",      "7",     "42",
                                           ".",  ", ",  "--",   "(",  "\u00e9", "\u6771", "1",      "\"",    "!?",
                                           "_",  "\v",  "x",    "en", "tion",   "\u00a0", "\u2028", "\u0663"};
  const size_t kinds = (*random)() % 4 == 0 ? std::size(kParts) : 22;
  std::string text;
  for (size_t n = (*random)() % 80; n > 0; --n) text += kParts[(*random)() % kinds];
  if ((*random)() % 8 == 0) text += std::string((*random)() % 200, 'a');
  return text;
}

TEST(Tokenizer, BatchesOfPiecesAreThoseOfTheScanners) {
  std::mt19937 random(7);
  const struct {
    PieceScanner one;
    BatchScanner many;
  } kScanners[] = {{ScanGpt2, ScanGpt2Batch},
                   {[](std::string_view t, size_t begin) { return ScanCl100k(t, begin, 3); }, ScanCl100kBatch},
                   {[](std::string_view t, size_t begin) { return ScanCl100k(t, begin, 1); }, ScanCl100kDigitsBatch}};
  for (int round = 0; round < 20000; ++round) {
    const std::string text = MakeText(&random);
    const auto& scanner = kScanners[round % 3];
    std::vector<size_t> single, batched;
    for (size_t at = 0; at < text.size();) single.push_back(at = scanner.one(text, at));
    for (size_t at = 0; at < text.size(); at = batched.back()) {
      std::vector<size_t> ends(random() % 40 + 1);
      const size_t found = scanner.many(text, at, ends);
      ASSERT_GT(found, 0u);
      batched.insert(batched.end(), ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(found));
    }
    ASSERT_EQ(batched, single) << round % 3 << ": " << testing::PrintToString(text);
  }
}

TEST(Tokenizer, ReadsBertVocabulary) {
  const std::string vocabulary =
      "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\n!\nfire\nwork\n##s\r\n\u706b\n";
  auto parts = ParseWordPieceVocabulary(vocabulary, std::nullopt);
  ASSERT_TRUE(parts.ok()) << parts.status();
  const Tokenizer tokenizer(*std::move(parts));
  EXPECT_EQ(MustEncode(tokenizer, "UNAFF\u00c1ble! Fireworks\u706b [MASK]xyz"),
            (std::vector<TokenId>{5, 6, 7, 8, 1, 12, 4, 1}));
  EXPECT_EQ(tokenizer.id_count(), 13);
  EXPECT_EQ(tokenizer.pad(), 0);
}

TEST(Tokenizer, CasedVocabularyKeepsCase) {
  const std::string specials = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  auto cased = ParseWordPieceVocabulary(specials + "Paris\nparis\n", std::nullopt);
  ASSERT_TRUE(cased.ok());
  EXPECT_EQ(MustEncode(Tokenizer(*std::move(cased)), "Paris paris"), (std::vector<TokenId>{5, 6}));
  auto lower = ParseWordPieceVocabulary(specials + "paris\n", std::nullopt);
  ASSERT_TRUE(lower.ok());
  EXPECT_EQ(MustEncode(Tokenizer(*std::move(lower)), "Paris"), (std::vector<TokenId>{5}));
}

TEST(Tokenizer, TruncatesTheLongerText) {
  const SampleTemplate pair = {{TemplatePart::Kind::kSpecial, {9}},
                               {TemplatePart::Kind::kFirst},
                               {TemplatePart::Kind::kSecond, {}, 1},
                               {TemplatePart::Kind::kSpecial, {8}, 1}};
  EncodedSample sample;
  ASSERT_TRUE(FillTemplate(pair, {1, 2, 3, 4, 5, 6}, {7, 7}, 7, &sample).ok());
  EXPECT_EQ(sample.ids, (std::vector<TokenId>{9, 1, 2, 3, 7, 7, 8}));
  EXPECT_EQ(sample.types, (std::vector<int32_t>{0, 0, 0, 0, 1, 1, 1}));
  EXPECT_TRUE(sample.truncated);
  ASSERT_TRUE(FillTemplate(pair, {1, 2, 3}, {7}, 7, &sample).ok());
  EXPECT_FALSE(sample.truncated);
  EXPECT_NE(Problem(FillTemplate(pair, {1}, {2}, 2, &sample)).find("2 are special tokens"), std::string::npos);
}

TEST(Tokenizer, MakesTokenizerOfCharacters) {
  std::set<char32_t> chars;
  for (const char* text : {"hello\n", "\u00e9"}) ASSERT_TRUE(CollectChars(text, &chars).ok());
  EXPECT_FALSE(CollectChars("a\xff", &chars).ok());
  const auto made = MakeCharTokenizer(chars, true);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(MustEncode(**made, "lo\n\u00e9"), (std::vector<TokenId>{3, 4, 0, 5}));
  auto again = ParseTokenizerJson((*made)->files()[0].second);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(MustEncode(Tokenizer(*std::move(again)), "ohz"), (std::vector<TokenId>{4, 2, 6}));
  const auto closed = MakeCharTokenizer(chars, false);
  ASSERT_TRUE(closed.ok()) << closed.status();
  EXPECT_EQ((*closed)->id_count(), 6);
  TokenizerScratch scratch;
  std::vector<TokenId> ids;
  EXPECT_EQ(Message((*closed)->Encode("ohz", &scratch, &ids)),
            "token 2 of the text is not in the vocabulary, which has no unknown token");
}

// "b a aa" has the same score but for rounding; the reference prefers it where scores are read correctly rounded.
TEST(Tokenizer, ReadsScoresWithTheRoundingOfTheReference) {
  auto parts = ParseTokenizerJson(R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0],
      ["b", -3.9793611542847325], ["a", -4.9923032039410415], ["aa", -7.405761321111748]]}})");
  ASSERT_TRUE(parts.ok()) << parts.status();
  const Tokenizer tokenizer(*std::move(parts));
  EXPECT_EQ(MustEncode(tokenizer, "baaa"), (std::vector<TokenId>{1, 3, 2}));
}

// U+08D4 and U+1CF2 are marks of Unicode 9; U+0898 and U+111C9 became marks later.
TEST(Tokenizer, StripsTheAccentsOfUnicode9) {
  auto parts = ParseTokenizerJson(R"({"normalizer": {"type": "StripAccents"},
      "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "ab": 1, "a\u0898b": 2, "a\ud804\uddc9b": 3},
                "unk_token": "[UNK]"}})");
  ASSERT_TRUE(parts.ok()) << parts.status();
  const Tokenizer tokenizer(*std::move(parts));
  for (const auto& [text, id] : std::vector<std::pair<const char*, TokenId>>{
           {"a\u0301b", 1}, {"a\u08d4b", 1}, {"a\u1cf2b", 1}, {"a\u0898b", 2}, {"a\U000111c9b", 3}})
    EXPECT_EQ(MustEncode(tokenizer, text), std::vector<TokenId>{id}) << text;
}

TEST(Tokenizer, RefusesWhatItDoesNotKnow) {
  const std::string model = R"("model": {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"})";
  EXPECT_EQ(ParseProblem("{"), "no valid JSON");
  const std::string open(100000, '['), close(100000, ']');
  EXPECT_EQ(ParseProblem("{\"normalizer\": " + open + close + "}"), "JSON nested more than 64 deep is refused");
  EXPECT_EQ(ParseProblem("{}"), "'model' is missing");
  EXPECT_EQ(ParseProblem("{" + model + R"(, "normalizer": {"type": "Nmt"}})"), "normalizer 'Nmt' is not supported");
  EXPECT_EQ(ParseProblem("{" + model + R"(, "pre_tokenizer": {"type": "UnicodeScripts"}})"),
            "pre-tokenizer 'UnicodeScripts' is not supported");
  EXPECT_EQ(ParseProblem("{" + model + R"(, "post_processor": {"type": "X"}})"), "post-processor 'X' is not supported");
  EXPECT_EQ(ParseProblem(R"({"model": {"type": "Y"}})"), "model 'Y' is not supported");
  EXPECT_EQ(ParseProblem(R"({"model": {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "[UNK]"}})"),
            "model WordPiece: the unknown token '[UNK]' is not in the vocabulary");
  EXPECT_EQ(ParseProblem(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}})"),
            "model BPE: merge 1, 'a b': 'ab' is not in the vocabulary");
  EXPECT_NE(ParseProblem("{" + model + R"(, "normalizer": {"type": "Replace", "pattern": {"Regex": "("},
                         "content": ""}})")
                .find("cannot be read"),
            std::string::npos);
}

TEST(Tokenizer, NamesFileAndByteOfBadInput) {
  const TempDir dir;
  const std::string path = dir.Write("tokenizer.json", "{}");
  EXPECT_EQ(Problem(LoadTokenizer(path).status()), path + ": 'model' is missing");
  EXPECT_EQ(Problem(LoadTokenizer(dir.Write("v.txt", "a\nb\n")).status()).find(dir / "v.txt: no vocabulary of BERT"),
            0u);
  EXPECT_NE(Problem(LoadTokenizer(dir.Write("x.model", "not a model")).status()).find("no SentencePiece model"),
            std::string::npos);
  EXPECT_NE(Problem(LoadTokenizer(dir.Write("x.model.v3", "not a model")).status()).find("no SentencePiece model"),
            std::string::npos);
  EXPECT_FALSE(LoadTokenizer(dir / "missing.json").ok());
  const auto tokenizer = LoadTokenizer(StrCat(kFolder, "gpt2.json"));
  TokenizerScratch scratch;
  std::vector<TokenId> ids;
  EXPECT_EQ(Problem((*tokenizer)->Encode("ab\xff", &scratch, &ids)), "byte 2 of the text is not UTF-8");
}

// Under the names of vocab.json and merges.txt in other releases, opened by either file or by the folder.
TEST(Tokenizer, FindsVocabularyAndMergesByTheirNames) {
  using Names = std::pair<std::string, std::string>;
  for (const Names& names : {Names{"vocab.json", "merges.txt"}, Names{"encoder.json", "vocab.bpe"},
                             Names{"gpt2-vocab.json", "gpt2-merges.txt"}}) {
    const TempDir dir;
    const std::string vocabulary = dir.Write(names.first, R"({"a": 0, "b": 1, "ab": 2, "model": 3, "vocab": 4})");
    const std::string merges = dir.Write(names.second, "#version: 0.2\na b\n");
    std::vector<std::string> paths = {vocabulary, merges};
    if (!names.first.starts_with("gpt2")) paths.push_back(dir.path());
    for (const std::string& path : paths) {
      const auto tokenizer = LoadTokenizer(path);
      ASSERT_TRUE(tokenizer.ok()) << path << ": " << tokenizer.status();
      TokenizerScratch scratch;
      std::vector<TokenId> ids;
      ASSERT_TRUE((*tokenizer)->Encode("abab", &scratch, &ids).ok());
      EXPECT_EQ(ids, (std::vector<TokenId>{2, 2}));
    }
    std::filesystem::remove(merges);
    EXPECT_NE(Problem(LoadTokenizer(vocabulary).status()).find(names.second), std::string::npos);
  }
  const TempDir dir;
  EXPECT_NE(Problem(LoadTokenizer(dir.Write("words.json", R"({"a": 0})")).status()).find("without merges"),
            std::string::npos);
}

// Models that split text by rules of their own keep vocabularies under the names of GPT-2 and BERT.
TEST(Tokenizer, RefusesVocabulariesOfOtherRules) {
  const TempDir dir;
  const std::string vocabulary = dir.Write("vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  const std::string words = dir.Write("vocab.txt", "[UNK]\n[CLS]\n[SEP]\na\n");
  dir.Write("merges.txt", "a b\n");
  const auto load = [&](const std::string& path, const std::string& class_name) {
    dir.Write("tokenizer_config.json", StrCat("{\"tokenizer_class\": \"", class_name, "\"}"));
    return Problem(LoadTokenizer(path).status());
  };
  for (const char* name : {"GPT2Tokenizer", "RobertaTokenizerFast", "PreTrainedTokenizerFast", "TokenizersBackend"})
    EXPECT_EQ(load(vocabulary, name), "") << name;
  EXPECT_NE(load(vocabulary, "GPT2Tokenizer\", \"add_bos_token\": true, \"a\": \"").find("add_bos_token"),
            std::string::npos);
  EXPECT_NE(load(vocabulary, "Qwen2Tokenizer").find("Qwen2Tokenizer, which splits text in another way"),
            std::string::npos);
  EXPECT_EQ(load(words, "BertTokenizerFast"), "");
  EXPECT_NE(load(words, "BertJapaneseTokenizer").find("needs its tokenizer.json"), std::string::npos);
}

// The class decides about <s> and </s>, also in the copy of the files that a run keeps.
TEST(Tokenizer, ClassesDecideAboutTokensAroundTexts) {
  const auto load = [](const std::string& path) {
    const auto tokenizer = LoadTokenizer(path);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return tokenizer.value();
  };
  using Case = std::pair<std::string, size_t>;
  for (const Case& c : {Case{"RobertaTokenizer", 3}, Case{"GPT2TokenizerFast", 1}, Case{"", 3}}) {
    const TempDir dir, copy;
    dir.Write("vocab.json", R"({"a": 0, "<s>": 1, "</s>": 2})");
    dir.Write("merges.txt", "");
    if (!c.first.empty()) dir.Write("tokenizer_config.json", StrCat("{\"tokenizer_class\": \"", c.first, "\"}"));
    const auto tokenizer = load(dir.path());
    EXPECT_EQ(tokenizer->single().size(), c.second) << c.first;
    for (const auto& [name, text] : tokenizer->files()) copy.Write(name, text);
    EXPECT_EQ(load(copy.path())->single().size(), c.second) << c.first;
  }
}

TEST(Tokenizer, SaysHowToConvertForeignVocabularies) {
  const TempDir dir;
  EXPECT_NE(Problem(LoadTokenizer(dir.Write("q.tiktoken", "IQ== 0\n")).status()).find("TikTokenConverter"),
            std::string::npos);
  const std::string tekken = dir.Write("tekken.json", R"({"config": {}, "vocab": []})");
  EXPECT_NE(Problem(LoadTokenizer(tekken).status()).find("mistral_common"), std::string::npos);
}

TEST(Unicode, FindsInvalidBytes) {
  EXPECT_EQ(FindInvalidUtf8("plain ascii, longer than a word \u00e9\u4e00\U0001f600"), std::string_view::npos);
  for (const char* good :
       {"", "a", "\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_EQ(FindInvalidUtf8(StrCat("0123456789", good)), std::string_view::npos) << good;
  for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xc2", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xed\xa0\x80",
                          "\xe4\xb8", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf8", "\xff"})
    EXPECT_EQ(FindInvalidUtf8(StrCat("0123456789", bad)), 10u) << bad;
}

}  // namespace
}  // namespace onnxtrain
