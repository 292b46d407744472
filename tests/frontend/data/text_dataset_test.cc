#include "frontend/data/text/text_dataset.h"

#include <numeric>
#include <set>

#include "frontend/data/bind/bad_samples.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/load/loader.h"
#include "frontend/data/load/sample_order.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/text/load_tokenizer.h"
#include "tests/frontend/data/files.h"

namespace onnxtrain {
namespace {

const Tokenizer& WordTokenizer() {
  static const auto* const kTokenizer = [] {
    auto parts = ParseWordPieceVocabulary("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\n", std::nullopt);
    return new Tokenizer(*std::move(parts));
  }();
  return *kTokenizer;
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenTable(const TempDir& dir, const std::string& text) {
  return OpenDataset(dir.Write("t.tsv", text), {.label = {"label"}, .text = {.names = {"one", "two"}}});
}

std::vector<int64_t> ReadInts(const Dataset& data, int64_t i, int c, size_t count) {
  std::vector<int64_t> values(count);
  const absl::Status status = data.Read(i, c, std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

const char kTable[] = "one\ttwo\tlabel\na b\tc\t0\nb\ta a a\t1\nx\tc\t1\n";

TEST(TextDataset, HasColumnsOfTokens) {
  const TempDir dir;
  const auto table = OpenTable(dir, kTable);
  ASSERT_TRUE(table.ok()) << table.status();
  const auto text = TokenizeColumns(*table, WordTokenizer(), {.columns = {"one", "two"}, .threads = 2});
  ASSERT_TRUE(text.ok()) << text.status();
  const Dataset& data = *text->dataset;
  ASSERT_EQ(text->first_column, 3);
  EXPECT_EQ(data.columns()[3].name, "one.ids");
  EXPECT_EQ(data.columns()[3].sample.shape, (Shape{7}));
  EXPECT_EQ(text->longest, 7);
  EXPECT_EQ(text->tokens, 6 + 7 + 5);
  EXPECT_EQ(data.Length(0), 6);
  EXPECT_EQ(ReadInts(data, 0, 3, 8), (std::vector<int64_t>{2, 4, 5, 3, 6, 3, 0, 0}));
  EXPECT_EQ(ReadInts(data, 0, 4, 8), (std::vector<int64_t>{1, 1, 1, 1, 1, 1, 0, 0}));
  EXPECT_EQ(ReadInts(data, 0, 5, 8), (std::vector<int64_t>{0, 0, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(ReadInts(data, 0, 6, 8), (std::vector<int64_t>{0, 0, 0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(ReadInts(data, 2, 7, 3), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(ReadInts(data, 2, 3, 5), (std::vector<int64_t>{2, 1, 3, 6, 3}));
  const auto subset = SliceDataset(SubsetDataset(text->dataset, {2, 1, 0}), 1, 3);
  EXPECT_EQ(subset->Length(0), 7);
  EXPECT_EQ(subset->Length(1), 6);
}

TEST(TextDataset, NamesTheColumnsWhereOneIsMissing) {
  const TempDir dir;
  const auto text = TokenizeColumns(*OpenTable(dir, kTable), WordTokenizer(), {.columns = {"body"}});
  EXPECT_EQ(Message(text.status()),
            "there is no column 'body' (`text` NAME names the texts); the columns are 'one', 'two', 'label'");
}

TEST(TextDataset, TruncatesAndPadsEmptyText) {
  const TempDir dir;
  const auto table = OpenTable(dir, "one\ttwo\tlabel\na b c a b\tc\t0\n\"\"\tc\t1\n");
  ASSERT_TRUE(table.ok()) << table.status();
  const auto text = TokenizeColumns(*table, WordTokenizer(), {.columns = {"one"}, .max_length = 4});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->truncated, 1);
  EXPECT_EQ(ReadInts(*text->dataset, 0, 3, 4), (std::vector<int64_t>{2, 4, 5, 3}));
  EXPECT_EQ(ReadInts(*text->dataset, 1, 3, 4), (std::vector<int64_t>{2, 3, 0, 0}));
  EXPECT_FALSE(TokenizeColumns(*table, WordTokenizer(), {.columns = {"label"}}).ok());
  EXPECT_FALSE(TokenizeColumns(*table, WordTokenizer(), {.columns = {"one"}, .max_length = 2}).ok());
}

TEST(TextDataset, BindsInputsByName) {
  const TempDir dir;
  const auto table = OpenTable(dir, kTable);
  const auto text = TokenizeColumns(*table, WordTokenizer(), {.columns = {"one"}});
  ASSERT_TRUE(text.ok()) << text.status();
  const auto input = [](const char* name, DType dtype = DType::kInt64) {
    return ModelInput{.name = name, .dtype = dtype, .dims = {-1, -1}, .dim_names = {"batch", "sequence"}};
  };
  const BindSpec spec{.first_token_column = text->first_column};
  const auto bound = BindData({input("attention_mask", DType::kFloat32), input("tokens"), input("token_type_ids"),
                               input("src_key_padding_mask", DType::kBool), input("position_ids")},
                              text->dataset, spec);
  ASSERT_TRUE(bound.ok()) << bound.status();
  EXPECT_EQ(bound->token_input, "tokens");
  std::vector<int> columns;
  for (const FeedSpec& feed : bound->feeds) {
    EXPECT_TRUE(feed.variable) << feed.feed;
    columns.push_back(feed.columns[0] - text->first_column);
  }
  EXPECT_EQ(columns, (std::vector<int>{1, 0, 3, 2, 4}));
  EXPECT_EQ(bound->label.columns, std::vector<int>{2});
  const auto unclear = BindData({input("first"), input("second")}, text->dataset, spec);
  EXPECT_NE(ToStd(unclear.status().message()).find("which input takes the token ids is not clear"),
            std::string_view::npos);
}

// Reads all batches of token ids.
std::vector<std::vector<int64_t>> ReadBatches(const std::shared_ptr<const Dataset>& data, int column,
                                              const LoaderOptions& options, std::vector<Shape>* shapes) {
  const FeedSpec spec{.feed = "ids",
                      .columns = {column},
                      .sample = {DType::kInt64, data->columns()[column].sample.shape},
                      .variable = true};
  auto loader = Loader::Create(data, {spec}, options);
  EXPECT_TRUE(loader.ok()) << loader.status();
  std::vector<std::vector<int64_t>> batches;
  while (true) {
    const auto batch = (*loader)->Next();
    EXPECT_TRUE(batch.ok()) << batch.status();
    if (!batch.ok() || *batch == nullptr) return batches;
    shapes->push_back((*batch)->tensors[0].shape());
    const auto values = (*batch)->tensors[0].data<int64_t>();
    batches.emplace_back(values.begin(), values.end());
  }
}

std::shared_ptr<const Dataset> MakeTexts(const TempDir& dir, int count) {
  std::string text = "one\ttwo\tlabel\n";
  for (int i = 0; i < count; ++i) {
    for (int k = 0; k < 1 + i * 7 % 23; ++k) text += "a ";
    text += StrCat("b\tc\t", i % 2, "\n");
  }
  const auto table = OpenTable(dir, text);
  return TokenizeColumns(*table, WordTokenizer(), {.columns = {"one"}})->dataset;
}

TEST(TextDataset, BatchesArePaddedToTheirLongestSample) {
  const TempDir dir;
  const auto data = MakeTexts(dir, 37);
  LoaderOptions options{.batch_size = 4, .shuffle = true, .num_workers = 0, .epochs = 2};
  std::vector<Shape> shapes, again;
  const auto batches = ReadBatches(data, 3, options, &shapes);
  std::set<int64_t> lengths;
  for (size_t b = 0; b < batches.size(); ++b) {
    const int64_t length = shapes[b][1], rows = shapes[b][0];
    lengths.insert(length);
    int64_t longest = 0;
    for (int64_t i = 0; i < rows * length; ++i) {
      if (batches[b][i] != 0) longest = std::max(longest, i % length + 1);
    }
    EXPECT_EQ(length, RoundUpLength(longest, 26));
  }
  EXPECT_GT(lengths.size(), 1u);
  options.num_workers = 3;
  EXPECT_EQ(ReadBatches(data, 3, options, &again), batches);
  EXPECT_EQ(again, shapes);
}

TEST(TextDataset, RoundsLengthsUp) {
  EXPECT_EQ(RoundUpLength(1, 512), 8);
  EXPECT_EQ(RoundUpLength(17, 512), 24);
  EXPECT_EQ(RoundUpLength(128, 512), 128);
  EXPECT_EQ(RoundUpLength(129, 512), 144);
  EXPECT_EQ(RoundUpLength(300, 512), 320);
  EXPECT_EQ(RoundUpLength(300, 306), 306);
}

TEST(GroupByLength, BatchesHoldSimilarLengths) {
  constexpr int64_t kSamples = 1003, kBatch = 10;
  const auto length = [](int64_t i) { return i * 37 % 101; };
  std::vector<int64_t> order = EpochOrder(kSamples, 7, 3, true), again = order;
  GroupByLength(kBatch, length, 7, 3, &order);
  GroupByLength(kBatch, length, 7, 3, &again);
  EXPECT_EQ(order, again);
  std::vector<int64_t> sorted = order;
  std::ranges::sort(sorted);
  for (int64_t i = 0; i < kSamples; ++i) ASSERT_EQ(sorted[i], i);
  int64_t spread = 0;
  for (int64_t b = 0; b + kBatch <= kSamples; b += kBatch) {
    const auto [low, high] = std::minmax_element(order.begin() + b, order.begin() + b + kBatch,
                                                 [&](int64_t x, int64_t y) { return length(x) < length(y); });
    spread += length(*high) - length(*low);
  }
  EXPECT_LT(spread / (kSamples / kBatch), 10);  // 90 without grouping
  EXPECT_EQ(length(order[0]), 100);
  std::vector<int64_t> other = EpochOrder(kSamples, 7, 4, true);
  GroupByLength(kBatch, length, 7, 4, &other);
  EXPECT_NE(order, other);
}

TEST(GroupByLength, ResumesWithinAnEpoch) {
  const TempDir dir;
  const auto data = MakeTexts(dir, 37);
  LoaderOptions options{.batch_size = 4, .shuffle = true, .length_grouping = true, .num_workers = 1, .epochs = 2};
  std::vector<Shape> shapes, rest_shapes;
  auto whole = ReadBatches(data, 3, options, &shapes);
  options.first_sample = 12;
  const auto rest = ReadBatches(data, 3, options, &rest_shapes);
  whole.erase(whole.begin(), whole.begin() + 3);
  EXPECT_EQ(rest, whole);
}

TEST(TextDataset, LeavesOutTextsThatCannotBeTokenized) {
  const TempDir dir;
  const auto table = OpenTable(dir, "one\ttwo\tlabel\na\tc\t0\nb\tc\t1\n");
  // Special tokens alone exceed the limit: no sample can be tokenized.
  const auto skipped =
      TokenizeColumns(*table, WordTokenizer(), {.columns = {"one"}, .max_length = 1, .skip_bad = true});
  ASSERT_TRUE(skipped.ok()) << skipped.status();
  std::vector<int64_t> value(1);
  const absl::Status status = skipped->dataset->Read(1, 3, std::as_writable_bytes(std::span(value)));
  EXPECT_NE(ToStd(status.message()).find("row 3, column 'one': "), std::string_view::npos) << status;
}

}  // namespace
}  // namespace onnxtrain
