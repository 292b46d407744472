#include "frontend/data/text/token_blocks.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "absl/strings/str_join.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/sources/source.h"
#include "frontend/data/sources/token_shard.h"
#include "frontend/data/text/text_dataset.h"
#include "tests/frontend/data/files.h"

namespace onnxtrain {
namespace {

template <typename T>
std::vector<T> ReadColumn(const Dataset& data, int64_t i, BlockRole role) {
  const auto c = static_cast<int>(role);
  std::vector<T> values(data.columns()[c].sample.elements());
  const absl::Status status = data.Read(i, c, std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

using Ints = std::vector<int64_t>;

TEST(TokenBlocks, LabelsAreTheNextTokens) {
  const TokenBlocks blocks({MakeTokenSequence("t", {1, 2, 3, 4, 5, 6})}, {.length = 4, .pad = 9, .max_id = 6});
  ASSERT_EQ(blocks.size(), 2);
  EXPECT_EQ(ReadColumn<int64_t>(blocks, 0, BlockRole::kIds), (Ints{1, 2, 3, 4}));
  EXPECT_EQ(ReadColumn<int64_t>(blocks, 0, BlockRole::kLabels), (Ints{2, 3, 4, 5}));
  EXPECT_EQ(ReadColumn<int64_t>(blocks, 1, BlockRole::kIds), (Ints{5, 6, 9, 9}));
  EXPECT_EQ(ReadColumn<int64_t>(blocks, 1, BlockRole::kLabels), (Ints{6, -100, -100, -100}));
  EXPECT_EQ(ReadColumn<int64_t>(blocks, 1, BlockRole::kOwnLabels), (Ints{5, 6, -100, -100}));
  EXPECT_EQ(ReadColumn<int64_t>(blocks, 1, BlockRole::kMask), (Ints{1, 1, 0, 0}));
  EXPECT_EQ(ReadColumn<int64_t>(blocks, 1, BlockRole::kPadding), (Ints{0, 0, 1, 1}));
  EXPECT_EQ(ReadColumn<int64_t>(blocks, 1, BlockRole::kPositions), (Ints{0, 1, 2, 3}));
  EXPECT_EQ(blocks.columns()[static_cast<int>(BlockRole::kLabels)].bounds->second, 6);
}

// A token that nothing follows is no sample of its own.
TEST(TokenBlocks, EverySampleHasALabel) {
  const auto count = [](const std::vector<TokenId>& ids) {
    return TokenBlocks({MakeTokenSequence("t", ids)}, {.length = 2}).size();
  };
  EXPECT_EQ(count({1}), 0);
  EXPECT_EQ(count({1, 2}), 1);
  EXPECT_EQ(count({1, 2, 3}), 1);
  EXPECT_EQ(count({1, 2, 3, 4}), 2);
}

TEST(TokenBlocks, SequencesAreCutEachForItself) {
  const TokenBlocks blocks({MakeTokenSequence("a", {1, 2, 3}), MakeTokenSequence("b", {4, 5, 6, 7})}, {.length = 2});
  ASSERT_EQ(blocks.size(), 3);
  EXPECT_EQ(blocks.GetBlockRange(1), (std::pair<int64_t, int64_t>(1, 3)));
  EXPECT_EQ(ReadColumn<int64_t>(blocks, 1, BlockRole::kIds), (Ints{4, 5}));
  EXPECT_EQ(ReadColumn<int64_t>(blocks, 2, BlockRole::kLabels), (Ints{7, -100}));
  EXPECT_EQ(blocks.StableName(2), "block 2");
}

TEST(TokenBlocks, DocumentsDoNotSeeEachOther) {
  const auto tokens = MakeTokenSequence("t", {1, 0, 2, 3, 0});
  const TokenBlocks blocks({tokens}, {.length = 4, .end_of_text = 0, .separate = true});
  EXPECT_EQ(ReadColumn<int64_t>(blocks, 0, BlockRole::kPositions), (Ints{0, 1, 0, 1}));
  EXPECT_EQ(ReadColumn<int64_t>(blocks, 0, BlockRole::kLabels), (Ints{0, -100, 3, 0}));
  const std::vector<uint8_t> seen = {1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1};
  EXPECT_EQ(ReadColumn<uint8_t>(blocks, 0, BlockRole::kAttention), seen);
  const std::vector<float> bias = ReadColumn<float>(blocks, 0, BlockRole::kBias);
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(bias[i] == 0, seen[i] == 1) << i;
  const TokenBlocks joined({tokens}, {.length = 4, .end_of_text = 0});
  EXPECT_EQ(ReadColumn<int64_t>(joined, 0, BlockRole::kPositions), (Ints{0, 1, 2, 3}));
  EXPECT_EQ(ReadColumn<int64_t>(joined, 0, BlockRole::kLabels), (Ints{0, 2, 3, 0}));
}

TEST(TokenBlocks, MasksOfPairsAreBound) {
  const auto blocks = std::make_shared<const TokenBlocks>(
      std::vector<std::shared_ptr<const Dataset>>{MakeTokenSequence("t", {1, 2, 3})}, BlockOptions{.length = 2});
  const std::vector<ModelInput> inputs = {{"input_ids", DType::kInt64, {-1, -1}, {"b", "t"}},
                                          {"attention_mask", DType::kBool, {-1, 1, -1, -1}, {"b", "", "t", "t"}},
                                          {"bias_mask", DType::kFloat32, {-1, 2, 2}, {"b", "", ""}},
                                          {"position_ids", DType::kInt64, {-1, -1}, {"b", "t"}}};
  BindSpec spec{.label = {"tokens.labels"}, .first_token_column = 0, .token_blocks = true};
  const auto bound = BindData(inputs, blocks, spec);
  ASSERT_TRUE(bound.ok()) << bound.status();
  const auto column = [&](size_t feed) { return static_cast<BlockRole>(bound->feeds[feed].columns[0]); };
  EXPECT_EQ(column(0), BlockRole::kIds);
  EXPECT_EQ(column(1), BlockRole::kAttention);
  EXPECT_EQ(bound->feeds[1].sample.shape, (Shape{1, 2, 2}));
  EXPECT_EQ(column(2), BlockRole::kBias);
  EXPECT_EQ(bound->feeds[2].sample.shape, (Shape{2, 2}));
  EXPECT_EQ(column(3), BlockRole::kPositions);
}

std::string Tokens16(std::initializer_list<int> ids) {
  std::string bytes;
  for (const int id : ids) bytes += {static_cast<char>(id & 255), static_cast<char>(id >> 8)};
  return bytes;
}

absl::StatusOr<Ints> ReadSequence(const std::string& path) {
  auto data = OpenDataset(path, {});
  if (!data.ok()) return data.status();
  std::vector<std::byte> raw((*data)->size() * (*data)->columns()[0].sample.bytes());
  if (const absl::Status read = (*data)->ReadRange(0, (*data)->size(), 0, raw); !read.ok()) return read;
  const bool wide = (*data)->columns()[0].sample.dtype == DType::kUInt32;
  Ints ids;
  for (size_t at = 0; at < raw.size(); at += wide ? 4 : 2) {
    uint32_t id = 0;
    std::memcpy(&id, &raw[at], wide ? 4 : 2);
    ids.push_back(id);
  }
  return ids;
}

TEST(TokenShards, OfEveryKind) {
  const TempDir dir;
  const std::string plain = dir.Write("a.bin", Tokens16({1, 300, 65535}));
  EXPECT_EQ(*ReadSequence(plain), (Ints{1, 300, 65535}));
  EXPECT_EQ(*ReadSequence("u32:" + dir.Write("w.bin", std::string("\1\0\0\0\0\0\1\0", 8))), (Ints{1, 65536}));
  std::string llm(1024, '\0');
  const int32_t header[] = {20240520, 1, 2};
  std::memcpy(llm.data(), header, sizeof(header));
  EXPECT_EQ(*ReadSequence(dir.Write("llm.bin", llm + Tokens16({7, 8}))), (Ints{7, 8}));
  dir.Write("s-00.bin", Tokens16({1, 2}));
  dir.Write("s-01.bin", Tokens16({3}));
  const auto joined = OpenDataset(dir.path() + "/s-{00..01}.bin", {});
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(*FindMaxId(**joined), 3);
  EXPECT_EQ(*ReadSequence(dir.path() + "/s-{00..01}.bin"), (Ints{1, 2, 3}));
}

TEST(TokenShards, InformationIsChecked) {
  const TempDir dir;
  const std::string path = dir.Write("a.bin", Tokens16({1, 2, 3}));
  const ShardInfo info{.tokens = 3, .vocabulary = 10, .max_id = 3, .end_of_text = 0, .documents = 1, .bytes = 5};
  EXPECT_EQ(*ParseShardInfo(ToJson(info)), info);
  dir.Write("a.bin.json", ToJson(info));
  EXPECT_EQ((*OpenDataset(path, {}))->columns()[0].bounds->second, 3);
  ShardInfo other = info;
  other.tokens = 4;
  dir.Write("a.bin.json", ToJson(other));
  EXPECT_NE(ToStd(OpenDataset(path, {}).status().message()).find("holds 3 tokens, but"), std::string_view::npos);
  dir.Write("a.bin.json", "[]");
  EXPECT_FALSE(OpenDataset(path, {}).ok());
}

// A file that shrinks while it is read is an error, not a signal.
TEST(TokenShards, AShardBecomesShorter) {
  const TempDir dir;
  const std::string path = dir.Write("a.bin", std::string(2000, '\1'));
  const auto data = OpenDataset(path, {});
  ASSERT_TRUE(data.ok()) << data.status();
  const TokenBlocks made({*data}, {.length = 100});
  const Dataset& blocks = made;
  std::filesystem::resize_file(path, 1000);
  Ints ids(100);
  EXPECT_TRUE(blocks.Read(0, 0, std::as_writable_bytes(std::span(ids))).ok());
  const absl::Status status = blocks.Read(9, 0, std::as_writable_bytes(std::span(ids)));
  EXPECT_NE(ToStd(status.message()).find("a.bin"), std::string_view::npos) << status;
}

TEST(TextFiles, FilesAndLinesAreDocuments) {
  const TempDir dir;
  dir.Write("b.txt", "one\n\ntwo\n");
  dir.Write("a.txt", "\xEF\xBB\xBFthree");
  const auto folder = OpenDataset(dir.path(), {});
  ASSERT_TRUE(folder.ok()) << folder.status();
  ASSERT_EQ((*folder)->size(), 2);
  EXPECT_EQ(*(*folder)->ReadText(0, 0), "three");
  const auto lines = OpenDataset("lines:" + dir.path() + "/b.txt", {});
  ASSERT_TRUE(lines.ok()) << lines.status();
  ASSERT_EQ((*lines)->size(), 2);
  EXPECT_EQ(*(*lines)->ReadText(1, 0), "two");
  EXPECT_EQ((*lines)->Describe(1), dir.path() + "/b.txt: row 3");
  EXPECT_FALSE(OpenDataset(dir.path() + "/b.txt", {.max_bytes = 3}).ok());
  EXPECT_FALSE(OpenDataset(dir.Write("empty.txt", ""), {}).ok());
}

TEST(TextFiles, OtherEncodingsAreDecoded) {
  const TempDir dir;
  const auto text = [&](const std::string& path, const DatasetOptions& options = {}) {
    const auto data = OpenDataset(path, options);
    return data.ok() ? StrCat(*(*data)->ReadText(0, 0), "|", absl::StrJoin((*data)->notes(), ";"))
                     : Message(data.status());
  };
  const std::string western = dir.Write("western.txt", "caf\xE9 \x96 \x80\n");
  EXPECT_THAT(text(western), testing::StartsWith("café – €\n|" + western + ": the text is not UTF-8 and is read as"));
  EXPECT_EQ(text(western, {.encoding = "latin1"}), "café \u0096 \u0080\n|");
  EXPECT_EQ(text(dir.Write("wide.txt", {"\xFF\xFE"
                                        "a\0\xE9\0",
                                        6})),
            "aé|");
  std::string wide = "\xFF\xFE", plain;
  for (int i = 0; i < 200000; ++i) {
    wide += {static_cast<char>('a' + i % 26), '\0'};
    plain += static_cast<char>('a' + i % 26);
  }
  const std::string path = dir.Write("wide.txt", wide);
  EXPECT_EQ(text(path), plain + "|") << "longer than what is read at once";
  EXPECT_EQ(text(path, {.encoding = "utf-16"}), plain + "|");
  const std::string broken = "na\xC3\xAFve \xC3\n";
  EXPECT_EQ(text(dir.Write("broken.txt", broken)), broken + "|") << "a byte that is lost is no other encoding";
  EXPECT_THAT(text("lines:" + western), testing::HasSubstr("western.txt: row 1: the text is not UTF-8"));
}

TEST(TextFiles, DocumentsEndWithAToken) {
  const TempDir dir;
  const std::string tokenizer = dir.Write("tokenizer.json", R"({"added_tokens": [{"id": 2, "content": "</s>",
      "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}],
      "model": {"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0, "b": 1}},
      "pre_tokenizer": {"type": "Whitespace"}})");
  const auto loaded = LoadTokenizer(tokenizer);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto lines = OpenDataset("lines:" + dir.Write("t.txt", "a b\nb\nb b a\n"), {});
  for (const int threads : {1, 3}) {
    const DocumentTokenizer documents(**lines, 0, **loaded, false, threads);
    const auto tokens = documents.Run(Ints{0, 1, 2});
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    EXPECT_EQ(tokens->ids, (std::vector<TokenId>{0, 1, 2, 1, 2, 1, 1, 0, 2}));
    EXPECT_EQ(tokens->documents, 3);
    EXPECT_EQ(tokens->bytes, 9);
  }
}

}  // namespace
}  // namespace onnxtrain
