// Small judgements of the tool: is a model trained, is a requirement met, what a data set is split into,
// preprocess.json.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "frontend/base/status.h"
#include "tools/onnxtrain/data_view.h"
#include "tools/onnxtrain/differences.h"
#include "tools/onnxtrain/predictions.h"
#include "tools/onnxtrain/preprocess.h"
#include "tools/onnxtrain/pretrained.h"
#include "tools/onnxtrain/require.h"

namespace onnxtrain::cli {
namespace {

template <typename Draw>
HostTensor Drawn(Shape shape, Draw draw) {
  HostTensor t({DType::kFloat32, std::move(shape)});
  for (int64_t i = 0; i < t.size(); ++i) t.Set(i, draw());
  return t;
}

TEST(JudgeWeights, WhatInitializersDraw) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(-0.1, 0.1);
  std::normal_distribution<double> normal(0, 0.02);
  const auto truncated = [&] {
    double x;
    do x = normal(random);
    while (std::abs(x) > 0.04);
    return x;
  };
  for (const Shape& shape : {Shape{20, 20}, Shape{64, 128}, Shape{32, 16, 3, 3}}) {
    EXPECT_FALSE(JudgeWeights({{"w", Drawn(shape, [&] { return uniform(random); })}}).trained) << ToString(shape);
    EXPECT_FALSE(JudgeWeights({{"w", Drawn(shape, [&] { return normal(random); })}}).trained) << ToString(shape);
    EXPECT_FALSE(JudgeWeights({{"w", Drawn(shape, truncated)}}).trained) << ToString(shape);
    EXPECT_FALSE(JudgeWeights({{"w", Drawn(shape, [] { return 0.0; })}}).trained) << ToString(shape);
  }
}

TEST(JudgeWeights, WhatTrainingLeaves) {
  std::mt19937 random(2);
  std::normal_distribution<double> normal(0, 0.02);
  std::student_t_distribution<double> tails(4);
  EXPECT_TRUE(JudgeWeights({{"w", Drawn({64, 128}, [&] { return tails(random); })}}).trained);
  EXPECT_TRUE(JudgeWeights({{"w", Drawn({64, 128}, [&] { return 0.01 + normal(random); })}}).trained);
  const HostTensor drawn = Drawn({64, 128}, [&] { return normal(random); });
  // Statistics move when a new model is traced in training mode.
  EXPECT_FALSE(JudgeWeights({{"w", drawn}, {"bn.mean", Drawn({8}, [] { return 0.3; }), true}}).trained);
  EXPECT_FALSE(JudgeWeights({{"w", drawn},
                             {"bn.mean", Drawn({8}, [] { return 0.0; }), true},
                             {"bn.var", Drawn({8}, [] { return 1.0; }), true}})
                   .trained);
}

TEST(Requirement, ParsesAndDecides) {
  struct Row {
    const char* text;
    double value;
    bool met;
  };
  const Row rows[] = {{"accuracy>=0.9", 0.9, true}, {"accuracy>=0.9", 0.89, false}, {"loss<=0.1", 0.1, true},
                      {"loss < 0.1", 0.1, false},   {"loss > -1", 0, true},         {"samples==100", 100, true},
                      {"samples==100", 99, false},  {"accuracy>=0.9", NAN, false},  {"loss<=1", INFINITY, false}};
  for (const Row& row : rows) {
    const auto requirement = ParseRequirement(row.text);
    ASSERT_TRUE(requirement.ok()) << row.text;
    EXPECT_EQ(Unmet({*requirement}, [&](const std::string&) { return std::optional(row.value); }).empty(), row.met)
        << row.text << row.value;
  }
  for (const char* bad :
       {"", "accuracy", ">=1", "accuracy>=", "accuracy>=x", "accuracy=>1", "accuracy=0.9", "accuracy>=0.9%"}) {
    EXPECT_FALSE(ParseRequirement(bad).ok()) << bad;
  }
  EXPECT_EQ(Unmet({*ParseRequirement("x>=1")}, [](const std::string&) { return std::optional<double>(); }).size(), 1u);
}

std::shared_ptr<const Dataset> Counting(int64_t n) {
  HostTensor t({DType::kInt64, {n}});
  for (int64_t i = 0; i < n; ++i) t.SetInt(i, i);
  return *InMemoryDataset("count", {"i"}, {t});
}

std::vector<int64_t> Rows(const Dataset& d) {
  std::vector<int64_t> rows(d.size());
  for (int64_t i = 0; i < d.size(); ++i) EXPECT_TRUE(d.Read(i, 0, std::as_writable_bytes(std::span(&rows[i], 1))).ok());
  return rows;
}

TEST(SplitDataset, EachSampleOnce) {
  for (bool last : {false, true}) {
    for (int64_t n : {2, 10, 101}) {
      const Split split = SplitDataset(Counting(n), 0.3, last, 42);
      const std::vector<int64_t> train = Rows(*split.train), eval = Rows(*split.eval);
      std::set<int64_t> all(train.begin(), train.end());
      all.insert(eval.begin(), eval.end());
      EXPECT_EQ(train.size() + eval.size(), static_cast<size_t>(n));
      EXPECT_EQ(all.size(), static_cast<size_t>(n));
      EXPECT_EQ(eval.size(), static_cast<size_t>(std::clamp<int64_t>(std::llround(0.3 * n), 1, n - 1)));
      EXPECT_TRUE(std::is_sorted(train.begin(), train.end()) && std::is_sorted(eval.begin(), eval.end()));
      EXPECT_EQ(eval.front() == n - static_cast<int64_t>(eval.size()), last || n == 2) << n;
      EXPECT_EQ(Rows(*SplitDataset(Counting(n), 0.3, last, 42).eval), eval);
    }
  }
}

TEST(Preprocess, RoundTrip) {
  Preprocess p{.normalize = "0.1/0.2",
               .inputs = {{"x", {"a", "b,\"c"}}},
               .layout = {{"x", {1, 2}}},
               .label = {"y"},
               .classes = {"no", "yes"},
               .loss = "bce",
               .output = "out"};
  const auto read = ParsePreprocess(ToJson(p));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->normalize, p.normalize);
  EXPECT_EQ(read->inputs, p.inputs);
  EXPECT_EQ(read->layout, p.layout);
  EXPECT_EQ(read->label, p.label);
  EXPECT_EQ(read->classes, p.classes);
  EXPECT_EQ(read->loss, p.loss);
  EXPECT_EQ(read->output, p.output);
  for (const char* bad : {"", "[]", "{", "3", R"({"inputs": 3})", R"({"inputs": {"x": 3}})", R"({"label": "y"})",
                          R"({"classes": [1]})", R"({"normalize": {}})"}) {
    EXPECT_FALSE(ParsePreprocess(bad).ok()) << bad;
  }
  EXPECT_TRUE(ParsePreprocess(R"({"something_newer": 1})").ok());
}

TEST(Differences, FiniteAndNot) {
  const auto tensor = [](std::vector<double> v) {
    return HostTensor::FromDoubles({DType::kFloat64, {static_cast<int64_t>(v.size())}}, v);
  };
  EXPECT_EQ(Compare("", tensor({1, 2}), tensor({1, 2})).relative, 0);
  EXPECT_NEAR(Compare("", tensor({3, 4.1}), tensor({3, 4})).relative, 0.02, 0.001);
  EXPECT_NEAR(Compare("", tensor({3, 4.1}), tensor({3, 4})).largest, 0.1, 1e-12);
  EXPECT_EQ(Compare("", tensor({NAN}), tensor({NAN})).largest, 0);
  EXPECT_TRUE(std::isinf(Compare("", tensor({NAN}), tensor({1})).relative));
  EXPECT_TRUE(std::isinf(Compare("", tensor({INFINITY}), tensor({1})).relative));
  EXPECT_TRUE(std::isinf(Compare("", tensor({1}), tensor({1, 2})).relative));
  EXPECT_EQ(Compare("", tensor({0.5}), tensor({0})).relative, 0.5);
}

TEST(CsvField, Quotes) {
  EXPECT_EQ(CsvField("plain"), "plain");
  EXPECT_EQ(CsvField("a,b"), "\"a,b\"");
  EXPECT_EQ(CsvField("say \"hi\""), "\"say \"\"hi\"\"\"");
  EXPECT_EQ(CsvField("two\nlines"), "\"two\nlines\"");
}

}  // namespace
}  // namespace onnxtrain::cli
