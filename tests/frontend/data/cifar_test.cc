#include "frontend/data/sources/rows.h"

#include <gmock/gmock.h>

#include "frontend/data/sources/source.h"
#include "tests/frontend/data/files.h"

namespace onnxtrain {
namespace {

using ::testing::HasSubstr;

// Rows of label bytes and pixels that count up from `first`.
std::string Rows(const std::vector<std::string>& labels, int first) {
  std::string rows;
  for (const std::string& label : labels) {
    rows += label;
    for (int i = 0; i < 3072; ++i) rows += static_cast<char>(first + i);
    ++first;
  }
  return rows;
}

int64_t LabelOf(const Dataset& data, int64_t sample, int column) {
  int64_t label = -1;
  EXPECT_TRUE(data.Read(sample, column, std::as_writable_bytes(std::span(&label, 1))).ok());
  return label;
}

TEST(Cifar, ReadsTenClasses) {
  TempDir dir;
  for (int b = 1; b <= 5; ++b) dir.Write(StrCat("data_batch_", b, ".bin"), Rows({{char(b)}, {char(9)}}, 10 * b));
  dir.Write("test_batch.bin", Rows({{char(3)}}, 0));
  ASSERT_EQ(FindSource(dir / "")->source->name, "cifar");
  EXPECT_TRUE(HasCifarEvalFiles(dir / ""));
  const auto train = *OpenDataset(dir / "", {});
  ASSERT_EQ(train->size(), 10);
  EXPECT_EQ(ToString(train->columns()[0].sample), "u8[3,32,32]");
  EXPECT_EQ(LabelOf(*train, 4, 1), 3);
  EXPECT_EQ(LabelOf(*train, 5, 1), 9);
  std::vector<uint8_t> pixels(3072);
  ASSERT_TRUE(train->Read(5, 0, std::as_writable_bytes(std::span(pixels))).ok());
  EXPECT_EQ(pixels[0], 31);
  EXPECT_EQ(pixels[3071], static_cast<uint8_t>(31 + 3071));
  EXPECT_EQ((*OpenDataset(dir / "", {.eval_split = true}))->size(), 1);

  dir.Write("batches.meta.txt", "cat\ndog\n");
  EXPECT_THAT(Message(OpenDataset(dir / "", {}).status()), HasSubstr("2 names, but there is a label 9"));
  dir.Write("data_batch_2.bin", "short");
  EXPECT_THAT(Message(OpenDataset(dir / "", {}).status()), HasSubstr("data_batch_2.bin: 5 bytes are no whole number"));
}

TEST(Cifar, ReadsFineAndCoarseClasses) {
  TempDir dir;
  dir.Write("train.bin", Rows({{1, 2}, {0, 1}}, 0));
  dir.Write("fine_label_names.txt", "apple\nbear\ncrab\n");
  const auto data = *OpenDataset(dir / "", {});
  ASSERT_EQ(data->columns().size(), 3u);
  EXPECT_EQ(data->columns()[1].name, "coarse_label");
  EXPECT_EQ(LabelOf(*data, 0, 1), 1);
  EXPECT_EQ(LabelOf(*data, 0, 2), 2);
  EXPECT_EQ(data->columns()[2].classes, (std::vector<std::string>{"apple", "bear", "crab"}));
  EXPECT_FALSE(HasCifarEvalFiles(dir / ""));
}

}  // namespace
}  // namespace onnxtrain
