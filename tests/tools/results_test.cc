// Requirements, differences of tensors, fields of CSV.
#include <gmock/gmock.h>

#include <cmath>

#include "tools/onnxtrain/flags/flags.h"
#include "tools/onnxtrain/report/differences.h"
#include "tools/onnxtrain/report/predictions.h"

namespace onnxtrain::cli {
namespace {

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
    EXPECT_EQ(
        FindUnmetRequirements({*requirement}, [&](const std::string&) { return std::optional(row.value); }).empty(),
        row.met)
        << row.text << row.value;
  }
  for (const char* bad :
       {"", "accuracy", ">=1", "accuracy>=", "accuracy>=x", "accuracy=>1", "accuracy=0.9", "accuracy>=0.9%"}) {
    EXPECT_FALSE(ParseRequirement(bad).ok()) << bad;
  }
  EXPECT_EQ(
      FindUnmetRequirements({*ParseRequirement("x>=1")}, [](const std::string&) { return std::optional<double>(); })
          .size(),
      1u);
}

TEST(Differences, FiniteAndNot) {
  const auto tensor = [](std::vector<double> v) {
    return HostTensor::FromDoubles({DType::kFloat64, {static_cast<int64_t>(v.size())}}, v);
  };
  EXPECT_EQ(CompareTensors("", tensor({1, 2}), tensor({1, 2})).relative, 0);
  EXPECT_NEAR(CompareTensors("", tensor({3, 4.1}), tensor({3, 4})).relative, 0.02, 0.001);
  EXPECT_NEAR(CompareTensors("", tensor({3, 4.1}), tensor({3, 4})).largest, 0.1, 1e-12);
  EXPECT_EQ(CompareTensors("", tensor({NAN}), tensor({NAN})).largest, 0);
  EXPECT_TRUE(std::isinf(CompareTensors("", tensor({NAN}), tensor({1})).relative));
  EXPECT_TRUE(std::isinf(CompareTensors("", tensor({INFINITY}), tensor({1})).relative));
  EXPECT_TRUE(std::isinf(CompareTensors("", tensor({1}), tensor({1, 2})).relative));
  EXPECT_EQ(CompareTensors("", tensor({0.5}), tensor({0})).relative, 0.5);
}

HostTensor Vector(const std::vector<double>& v) {
  return HostTensor::FromDoubles({DType::kFloat32, {static_cast<int64_t>(v.size())}}, v);
}

TEST(Differences, AreJudgedByWhatNudgesMove) {
  const std::map<std::string, HostTensor> usual = {
      {"steady", Vector({1})}, {"shaky", Vector({1})}, {"chaos", Vector({1})}};
  const std::map<std::string, HostTensor> moved = {
      {"steady", Vector({1.0001})}, {"shaky", Vector({1.01})}, {"chaos", Vector({1.5})}};
  const auto judge = [&](double apart) {
    auto differences = CompareTensorMaps(
        {{"steady", Vector({1 + apart})}, {"shaky", Vector({1 + apart})}, {"chaos", Vector({1 + apart})}}, usual);
    JudgeDifferences({CompareTensorMaps(usual, usual), CompareTensorMaps(moved, usual)}, &differences);
    std::map<std::string, bool> agrees;
    for (const Difference& d : differences) agrees[d.name] = d.agrees();
    EXPECT_EQ(differences[0].name, "steady");
    EXPECT_FALSE(differences.back().judged());
    return agrees;
  };
  EXPECT_THAT(judge(0.0009), testing::Each(testing::Pair(testing::_, true)));
  EXPECT_FALSE(judge(0.002)["steady"]);
  EXPECT_TRUE(judge(0.02)["shaky"]);
  EXPECT_FALSE(judge(0.04)["shaky"]);
}

TEST(Differences, OfASmallGradientCountAgainstAllGradients) {
  const std::map<std::string, HostTensor> a = {{"grad:w", Vector({1})}, {"grad:zero", Vector({1e-8})}},
                                          b = {{"grad:w", Vector({1})}, {"grad:zero", Vector({2e-8})}};
  EXPECT_NEAR(CompareTensorMaps(a, b)[1].relative, 1e-5, 1e-8);
}

TEST(Nudge, MovesByUlps) {
  const HostTensor x = Vector({1.5, -3, 0, 1e-20}), moved = Nudge(x, 1, false), kept = Nudge(x, 1, true);
  EXPECT_EQ(kept.At(1), -3);
  EXPECT_EQ(moved.At(2), 0);
  for (int i : {0, 1, 3}) {
    EXPECT_NE(moved.At(i), x.At(i)) << i;
    EXPECT_LE(std::abs(moved.At(i) / x.At(i) - 1), kNudgeUlps * 0x1p-23) << i;
  }
  EXPECT_TRUE(Nudge(x, 1, false).SameBytes(moved));
  EXPECT_FALSE(Nudge(x, 2, false).SameBytes(moved));
}

TEST(CsvField, Quotes) {
  EXPECT_EQ(CsvField("plain"), "plain");
  EXPECT_EQ(CsvField("a,b"), "\"a,b\"");
  EXPECT_EQ(CsvField("say \"hi\""), "\"say \"\"hi\"\"\"");
  EXPECT_EQ(CsvField("two\nlines"), "\"two\nlines\"");
}

}  // namespace
}  // namespace onnxtrain::cli
