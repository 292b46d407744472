#include "frontend/data/bind/bad_samples.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/frontend/data/files.h"

namespace onnxtrain {
namespace {

constexpr Type kScalar{DType::kFloat32, {}};

std::shared_ptr<const Dataset> OpenTolerant(const std::string& path) {
  auto data = OpenDataset(path, {.skip_bad = true});
  EXPECT_TRUE(data.ok()) << data.status();
  return data.ok() ? *data : nullptr;
}

TEST(BadSamples, OfATable) {
  TempDir dir;
  const std::string path = dir.Write("t.csv", "x,y\n1,0\nabc,1\n3,7\n4\ninf,0\n,1\n7,NA\n8,1\n9,0\n10,1\n11,0\n12,1\n");
  const auto data = OpenTolerant(path);
  const std::vector<FeedSpec> specs = {{.feed = "x", .columns = {0}, .sample = kScalar}};
  const std::vector<LabelCheck> labels = {{.columns = {1}, .classes = 2}};
  for (int threads : {1, 2, 5, 100}) {
    const auto good = DropBadSamples(data, specs, labels, {}, threads);
    ASSERT_TRUE(good.ok()) << good.status();
    EXPECT_EQ(good->bad, 6);
    EXPECT_EQ(good->rows, (std::vector<int64_t>{0, 7, 8, 9, 10, 11}));
    EXPECT_EQ(ColumnValues(*good->dataset, 0), (std::vector<double>{1, 8, 9, 10, 11, 12}));
    EXPECT_EQ(good->reasons,
              (std::vector<std::string>{StrCat(path, ": row 3, column 'x': 'abc' is not a number"),
                                        StrCat(path, ": row 4, column 'y': label 7 is outside of the 2 classes 0 to 1"),
                                        StrCat(path, ": row 5 has 1 fields, row 1 has 2")}));
  }
  EXPECT_FALSE(OpenDataset(path, {}).ok());  // a row of another length spoils the file otherwise
}

TEST(BadSamples, RangesAndNames) {
  TempDir dir;
  const auto data = OpenTolerant(dir.Write("t.csv", "id,kind\n1,a\n9,b\n2,\n3,b\n"));
  const std::vector<FeedSpec> specs = {
      {.feed = "id", .columns = {0}, .sample = {DType::kInt64, {}}, .range = ValueRange{0, 5, "the 6 rows"}}};
  const auto good = DropBadSamples(data, specs, {{.columns = {1}, .classes = 2}}, {}, 1);
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(good->rows, (std::vector<int64_t>{0, 3}));
}

TEST(BadSamples, NoneOrAll) {
  TempDir dir;
  const std::vector<FeedSpec> specs = {{.feed = "x", .columns = {0}, .sample = kScalar}};
  const auto fine = DropBadSamples(OpenTolerant(dir.Write("a.csv", "x,y\n1,0\n2,1\n")), specs, {}, {}, 2);
  EXPECT_EQ(fine->bad, 0);
  EXPECT_TRUE(fine->rows.empty());
  EXPECT_EQ(fine->dataset->size(), 2);
  const auto none = DropBadSamples(OpenTolerant(dir.Write("b.csv", "x,y\ninf,0\n-inf,1\n")), specs, {}, {}, 2);
  EXPECT_NE(Message(none.status()).find("no sample is left: all 2 are bad; the first: "), std::string::npos);
}

// More text than numbers: a column of names, not one of bad samples.
TEST(BadSamples, ColumnsOfTextStayUnusable) {
  TempDir dir;
  const std::string path = dir.Write("t.csv", "name,x,y\nanna,1,0\nbert,2,1\n3,4,0\n");
  const auto data = OpenTolerant(path);
  EXPECT_EQ(data->columns()[0].problem, StrCat(path, ": row 2, column 'name': 'anna' is not a number"));
  EXPECT_EQ(data->columns()[1].problem, "");
}

}  // namespace
}  // namespace onnxtrain
