// Requirements, differences of tensors, fields of CSV.
#include <gtest/gtest.h>

#include <cmath>

#include "tools/onnxtrain/flags/require.h"
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

TEST(CsvField, Quotes) {
  EXPECT_EQ(CsvField("plain"), "plain");
  EXPECT_EQ(CsvField("a,b"), "\"a,b\"");
  EXPECT_EQ(CsvField("say \"hi\""), "\"say \"\"hi\"\"\"");
  EXPECT_EQ(CsvField("two\nlines"), "\"two\nlines\"");
}

}  // namespace
}  // namespace onnxtrain::cli
