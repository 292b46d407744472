#include "frontend/data/transform/transform.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "frontend/data/bind/preprocess.h"
#include "tests/frontend/data/files.h"

namespace onnxtrain {
namespace {

using Doubles = std::vector<double>;

std::vector<int64_t> All(const Dataset& data) {
  std::vector<int64_t> rows(data.size());
  std::iota(rows.begin(), rows.end(), int64_t{0});
  return rows;
}

std::shared_ptr<const Dataset> Open(const std::string& path, const TransformSpec& spec) {
  DatasetOptions options;
  options.categories = spec.encoded();
  options.missing = spec.filled();
  auto data = OpenDataset(path, options);
  EXPECT_TRUE(data.ok()) << data.status();
  return data.ok() ? *data : nullptr;
}

// Fits to the file and applies.
std::shared_ptr<const Dataset> Transform(const std::string& path, const TransformSpec& spec,
                                         const std::set<std::string>& label) {
  const auto data = Open(path, spec);
  const auto fitted = FitTransforms(*data, All(*data), spec, label);
  EXPECT_TRUE(fitted.ok()) << fitted.status();
  std::vector<std::string> notes;
  return *ApplyTransforms(data, *fitted, &notes);
}

std::string Names(const Dataset& data) {
  std::string names;
  for (const Column& c : data.columns()) StrAppend(&names, names.empty() ? "" : " ", c.name);
  return names;
}

TEST(Encode, OneHotColumnsStandWhereTheirColumnWas) {
  TempDir dir;
  const std::string path = dir.Write("t.csv", "a,color,y\n1,red,0\n2,\"blue, dark\",1\n3,grün,0\n4,red,1\n");
  const auto data = Transform(path, {.encode = "onehot"}, {"y"});
  EXPECT_EQ(Names(*data), "a color=blue, dark color=grün color=red y");
  EXPECT_EQ(ColumnValues(*data, 0), (Doubles{1, 2, 3, 4}));
  EXPECT_EQ(ColumnValues(*data, 1), (Doubles{0, 1, 0, 0}));
  EXPECT_EQ(ColumnValues(*data, 3), (Doubles{1, 0, 0, 1}));
  EXPECT_FALSE(data->columns()[1].measured);
  EXPECT_TRUE(data->columns()[0].measured);
}

TEST(Encode, NumbersAreCategoriesWhereTheyAreNamed) {
  TempDir dir;
  const std::string path = dir.Write("t.csv", "zip,y\n10,0\n02,1\n9,0\n02,1\n");
  const auto data = Transform(path, {.encode_of = {{"zip", "index"}}}, {"y"});
  EXPECT_EQ(Names(*data), "zip y");
  EXPECT_EQ(data->columns()[0].sample, (Type{DType::kInt64, {}}));
  EXPECT_EQ(ColumnValues(*data, 0), (Doubles{2, 0, 1, 0}));  // by number: 02, 9, 10
}

// A column of numbers with one slip is no column of thousands of categories.
TEST(Encode, MostlyNumbersAreNoCategories) {
  TempDir dir;
  const std::string path = dir.Write("t.csv", "a,y\n1,0\n2,1\nx3,0\n4,1\n");
  const auto data = Transform(path, {.encode = "onehot"}, {"y"});
  EXPECT_EQ(data->columns()[0].problem, StrCat(path, ": row 4, column 'a': 'x3' is not a number"));
  EXPECT_EQ(Transform(path, {.encode_of = {{"a", "index"}}}, {"y"})->columns()[0].problem, "");
}

TEST(Encode, CategoriesThatTrainingDidNotHave) {
  TempDir dir;
  const TransformSpec onehot{.encode = "onehot"}, index{.encode = "index"};
  const auto train = Open(dir.Write("t.csv", "c,y\nb,0\na,1\n"), onehot);
  const auto other = Open(dir.Write("u.csv", "c,y\na,0\nz,1\n"), onehot);
  std::vector<std::string> notes;
  const auto hot = *ApplyTransforms(other, *FitTransforms(*train, All(*train), onehot, {"y"}), &notes);
  EXPECT_EQ(ColumnValues(*hot, 0), (Doubles{1, 0}));
  EXPECT_EQ(ColumnValues(*hot, 1), (Doubles{0, 0}));
  EXPECT_EQ(notes, (std::vector<std::string>{"column 'c': 1 sample has a category that training did not have: all 0"}));
  const auto numbered = *ApplyTransforms(other, *FitTransforms(*train, All(*train), index, {"y"}), &notes);
  HostTensor value(numbered->columns()[0].sample);
  EXPECT_TRUE(numbered->Read(0, 0, value.mutable_bytes()).ok());
  EXPECT_EQ(Message(numbered->Read(1, 0, value.mutable_bytes())),
            StrCat(dir / "u.csv", ": row 3, column 'c': category 'z' is not among those of training"));
  const auto without = Open(dir.Write("v.csv", "d,y\na,0\n"), onehot);
  EXPECT_EQ(Message(ApplyTransforms(without, *FitTransforms(*train, All(*train), onehot, {"y"}), &notes).status()),
            "there is no column 'c', whose categories training encoded");
}

// Names that a model compares with: others, and missing ones, have no place.
TEST(Encode, OpenCategoriesTakeAnyName) {
  TempDir dir;
  TransformSpec spec;
  spec.encode_of["c"] = "index";
  spec.fill_of["c"] = "0";
  const auto data = Open(dir.Write("t.csv", "c,y\nb,0\na,1\nz,0\n,1\n"), spec);
  for (const bool has_empty : {false, true}) {
    ColumnTransform transform{.column = "c", .categories = {"b", "a"}, .open = true};
    if (has_empty) transform.categories.emplace_back("");
    std::vector<std::string> notes;
    const auto numbered = *ApplyTransforms(data, {transform}, &notes);
    EXPECT_EQ(ColumnValues(*numbered, 0), (Doubles{0, 1, -1, has_empty ? 2.0 : -1.0}));
    EXPECT_EQ(
        notes,
        (std::vector<std::string>{has_empty ? "column 'c': 1 sample has a category that the model does not know"
                                            : "column 'c': 2 samples have categories that the model does not know"}));
  }
}

TEST(Encode, OnlyTrainingSamplesCount) {
  TempDir dir;
  const TransformSpec spec{.encode = "onehot", .fill = "mean"};
  const auto data = Open(dir.Write("t.csv", "c,v,y\nb,1,0\na,3,1\nz,100,0\n"), spec);
  const std::vector<int64_t> rows = {0, 1};
  const auto fitted = *FitTransforms(*data, rows, spec, {"y"});
  EXPECT_EQ(fitted[0].categories, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(fitted[1].fill, (Doubles{2}));
}

TEST(Fill, EachWay) {
  TempDir dir;
  const std::string path = dir.Write("t.csv", "a,b,y\n1,,0\nNA,5,1\n3,5,0\n8,7,1\n");
  const struct {
    const char* how;
    double a, b;
  } kCases[] = {{"mean", 4, 17.0 / 3}, {"median", 3, 5}, {"most_frequent", 1, 5}, {"-2.5", -2.5, -2.5}};
  for (const auto& c : kCases) {
    const auto data = Transform(path, *ParseTransforms({}, {c.how}), {"y"});
    EXPECT_EQ(ColumnValues(*data, 0), (Doubles{1, c.a, 3, 8})) << c.how;
    EXPECT_EQ(ColumnValues(*data, 1), (Doubles{c.b, 5, 5, 7})) << c.how;
  }
  const auto one = Transform(path, *ParseTransforms({}, {"b=median"}), {"y"});
  EXPECT_NE(one->columns()[0].problem.find("missing value"), std::string::npos);
  EXPECT_EQ(ColumnValues(*one, 1), (Doubles{5, 5, 5, 7}));
}

TEST(Fill, MissingCategoriesBecomeTheMostFrequent) {
  TempDir dir;
  const std::string path = dir.Write("t.csv", "c,y\nb,0\n,1\nb,0\na,1\nNone,0\n");
  const auto data = Transform(path, {.encode = "index", .fill = "mean"}, {"y"});
  EXPECT_EQ(ColumnValues(*data, 0), (Doubles{2, 2, 2, 1, 0}));  // None, a, b: "None" may be a name
  const auto unfilled = Transform(path, {.encode = "index"}, {"y"});
  EXPECT_NE(unfilled->columns()[0].problem.find("row 3, column 'c': missing value"), std::string::npos);
}

TEST(Fill, EachElementOfAnArray) {
  const double nan = std::nan("");
  const HostTensor x = HostTensor::FromDoubles({DType::kFloat32, {3, 2}}, Doubles{1, 10, nan, 30, 3, nan});
  const auto data = *InMemoryDataset("x.npz", {"x"}, {x});
  const auto fitted = *FitTransforms(*data, All(*data), {.fill = "mean"}, {});
  std::vector<std::string> notes;
  EXPECT_EQ(ColumnValues(**ApplyTransforms(data, fitted, &notes), 0), (Doubles{1, 10, 2, 30, 3, 20}));
}

TEST(Fill, RefusesWhatCannotBe) {
  TempDir dir;
  const std::string path = dir.Write("t.csv", "a,b,y\n1,,0\n2,,1\n");
  const auto data = Open(path, {.fill = "mean"});
  EXPECT_EQ(Message(FitTransforms(*data, All(*data), {.fill = "mean"}, {"y"}).status()),
            "`fill`: column 'b' has no value to fit mean to");
  EXPECT_EQ(Message(FitTransforms(*data, All(*data), {.fill_of = {{"y", "0"}}}, {"y"}).status()),
            "`fill` y=0: 'y' is the label");
  EXPECT_EQ(Message(FitTransforms(*data, All(*data), {.encode_of = {{"q", "index"}}}, {"y"}).status()),
            "`encode` q=index: there is no column 'q'");
  for (const char* bad : {"average", "a=", "=", ""}) EXPECT_FALSE(ParseTransforms({}, {bad}).ok()) << bad;
  for (const char* bad : {"hash", "a=labels"}) EXPECT_FALSE(ParseTransforms({bad}, {}).ok()) << bad;
  EXPECT_FALSE(ParseTransforms({}, {"mean", "median"}).ok());
  EXPECT_EQ(ParseTransforms({"a=b=index"}, {})->encode_of.at("a=b"), "index");
}

TEST(Standardize, SurvivesLargeNumbersAndConstants) {
  const HostTensor big = HostTensor::FromDoubles({DType::kFloat64, {4}}, Doubles{1e308, -1e308, 1e308, -1e308});
  const HostTensor offset =
      HostTensor::FromDoubles({DType::kFloat64, {4}}, Doubles{1e9 + 1, 1e9 + 2, 1e9 + 3, 1e9 + 4});
  const HostTensor same = HostTensor::FromDoubles({DType::kFloat64, {4}}, Doubles{0.1, 0.1, 0.1, 0.1});
  const HostTensor odd = HostTensor::FromDoubles({DType::kFloat64, {4}}, Doubles{1, std::nan(""), HUGE_VAL, 3});
  const auto data = *InMemoryDataset("t", {"a", "b", "c", "d"}, {big, offset, same, odd});
  const Standardization s = *FitStandardization(*data, {0, 1, 2, 3});
  EXPECT_NEAR(s.shift[0] / 1e308, 0, 1e-15);
  EXPECT_NEAR(s.divisor[0] / 1e308, 1, 1e-12);
  EXPECT_DOUBLE_EQ(s.shift[1], 1e9 + 2.5);
  EXPECT_DOUBLE_EQ(s.divisor[1], std::sqrt(1.25));
  EXPECT_EQ(s.shift[2], 0.1);
  EXPECT_EQ(s.divisor[2], 1);
  EXPECT_EQ(s.shift[3], 2);
  EXPECT_EQ(s.divisor[3], 1);
}

TEST(Standardize, KeepsFeaturesApartAndPixelsTogether) {
  const HostTensor rows = HostTensor::FromDoubles({DType::kFloat32, {2, 2}}, Doubles{0, 10, 2, 30});
  const HostTensor pictures = HostTensor::FromDoubles({DType::kFloat32, {2, 1, 2}}, Doubles{0, 10, 2, 28});
  const auto data = *InMemoryDataset("t", {"rows", "pictures"}, {rows, pictures});
  EXPECT_EQ(FitStandardization(*data, {0})->shift, (Doubles{1, 20}));
  EXPECT_EQ(FitStandardization(*data, {0})->divisor, (Doubles{1, 10}));
  EXPECT_EQ(FitStandardization(*data, {1})->shift, (Doubles{10}));
}

FeedSpec Pair(std::vector<int> columns, Doubles shift, Doubles divisor) {
  FeedSpec spec{.feed = "x", .columns = std::move(columns)};
  spec.sample = {DType::kFloat32, {2}};
  spec.shift = std::move(shift);
  spec.divisor = std::move(divisor);
  return spec;
}

// Feeds what FeedSpec says, for columns, elements and one number.
TEST(Standardize, IsAppliedByTheLoader) {
  const HostTensor a = HostTensor::FromDoubles({DType::kFloat64, {2}}, Doubles{1, 3});
  const HostTensor b = HostTensor::FromInts({10, 30});
  const HostTensor m = HostTensor::FromDoubles({DType::kFloat32, {2, 2}}, Doubles{1, 10, 3, 30});
  const auto data = *InMemoryDataset("t", {"a", "b", "m"}, {a, b, m});
  const std::vector<FeedSpec> specs = {Pair({0, 1}, {2, 20}, {1, 10}), Pair({2}, {2, 20}, {1, 10}),
                                       Pair({2}, {1}, {2})};
  const auto loader = Loader::Create(data, specs, {.batch_size = 2, .num_workers = 0});
  ASSERT_TRUE(loader.ok()) << loader.status();
  const Batch* batch = *(*loader)->Next();
  EXPECT_EQ(batch->tensors[0].ToDoubles(), (Doubles{-1, -1, 1, 1}));
  EXPECT_EQ(batch->tensors[1].ToDoubles(), (Doubles{-1, -1, 1, 1}));
  EXPECT_EQ(batch->tensors[2].ToDoubles(), (Doubles{0, 4.5, 1, 14.5}));
  FeedSpec wrong = specs[1];
  wrong.shift = wrong.divisor = {1, 1, 1};
  EXPECT_NE(Message(Loader::Create(data, {wrong}, {}).status()).find("standardization of 3 values"), std::string::npos);
  wrong = specs[1];
  wrong.sample.dtype = DType::kInt64;
  EXPECT_NE(Message(Loader::Create(data, {wrong}, {}).status()).find("only floats are standardized"),
            std::string::npos);
}

TEST(Preprocess, HoldsTransforms) {
  Preprocess p;
  p.inputs["x"] = {"a", "c=red"};
  p.standardize["x"] = {{0.1, 0}, {1e-300, 1}};
  p.columns = {{.column = "c", .categories = {"red", "grün, \"x\""}, .one_hot = true, .fill = {1}},
               {.column = "a", .fill = {0.3}}};
  const auto read = ParsePreprocess(ToJson(p));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->standardize.at("x").shift, p.standardize.at("x").shift);
  EXPECT_EQ(read->standardize.at("x").divisor, p.standardize.at("x").divisor);
  EXPECT_EQ(read->columns, p.columns);
  for (const char* bad :
       {R"({"columns":{"c":{"encode":"onehot"}}})", R"({"columns":{"c":{"categories":["a"]}}})", R"({"columns":[]})",
        R"({"columns":{"c":{"encode":"index","categories":["a"],"fill":[7]}}})", R"({"columns":{"c":5}})",
        R"({"inputs":{"x":{"mean":[1],"std":[]}}})", R"({"inputs":{"x":{"mean":[1],"std":[0]}}})"})
    EXPECT_FALSE(ParsePreprocess(bad).ok()) << bad;
}

}  // namespace
}  // namespace onnxtrain
