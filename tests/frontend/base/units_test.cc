#include "frontend/base/units.h"

#include <gtest/gtest.h>

namespace onnxtrain {
namespace {

struct NumberRow {
  const char* text;
  double value;  // negative: an error
};

TEST(Units, Durations) {
  const NumberRow rows[] = {{"90", 90},   {"90s", 90},   {"1.5m", 90},  {"10m", 600}, {"10min", 600},
                            {"2h", 7200}, {"1d", 86400}, {"0", -1},     {"0s", -1},   {"-5", -1},
                            {"", -1},     {"m", -1},     {"10 m", -1},  {"10x", -1},  {"1m30s", -1},
                            {"inf", -1},  {"nan", -1},   {"1e999", -1}, {"0x10", -1}};
  for (const NumberRow& row : rows) {
    const auto value = ParseDuration(row.text);
    EXPECT_EQ(value.value_or(-1), row.value) << row.text;
  }
}

TEST(Units, Rates) {
  const std::pair<double, const char*> rows[] = {{12345.6, "12,346"}, {100, "100"},     {45.67, "45.7"},
                                                 {9.87, "9.9"},       {0.1267, "0.13"}, {0, "0"}};
  for (const auto& [rate, text] : rows) EXPECT_EQ(FormatRate(rate), text);
}

TEST(Units, Sizes) {
  const NumberRow rows[] = {{"4096", 4096},
                            {"4096B", 4096},
                            {"1KiB", 1024},
                            {"512MiB", 512.0 * (1 << 20)},
                            {"1.5GiB", 1.5 * (1 << 30)},
                            {"2TiB", 2199023255552.0},
                            {"1KB", -1},
                            {"1GB", -1},
                            {"0", -1},
                            {"-1", -1},
                            {"MiB", -1},
                            {"9999999TiB", -1}};
  for (const NumberRow& row : rows) {
    const auto value = ParseSize(row.text);
    EXPECT_EQ(static_cast<double>(value.value_or(-1)), row.value) << row.text;
  }
}

TEST(Units, Intervals) {
  struct Row {
    const char* text;
    Interval::Unit unit;
    double value;
  };
  const Row rows[] = {{"500", Interval::Unit::kSteps, 500},   {"1", Interval::Unit::kSteps, 1},
                      {"1ep", Interval::Unit::kEpochs, 1},    {"0.5ep", Interval::Unit::kEpochs, 0.5},
                      {"10m", Interval::Unit::kSeconds, 600}, {"30s", Interval::Unit::kSeconds, 30}};
  for (const Row& row : rows) {
    const auto interval = ParseInterval(row.text);
    ASSERT_TRUE(interval.ok()) << row.text << interval.status();
    EXPECT_EQ(interval->unit, row.unit) << row.text;
    EXPECT_EQ(interval->value, row.value) << row.text;
  }
  for (const char* bad : {"", "0", "-1", "1.5", "ep", "0ep", "-1ep", "10 ep", "10epochs", "1epm", "sep"}) {
    EXPECT_FALSE(ParseInterval(bad).ok()) << bad;
  }
}

TEST(Units, ListsAndPairs) {
  EXPECT_EQ(*ParseList("a,b c,d"), (std::vector<std::string>{"a", "b c", "d"}));
  for (const char* bad : {"", ",", "a,", ",a", "a,,b"}) EXPECT_FALSE(ParseList(bad).ok()) << bad;
  EXPECT_EQ(ParsePair("a=b=c", "X=Y")->second, "b=c");
  for (const char* bad : {"", "a", "=", "a=", "=b"}) EXPECT_FALSE(ParsePair(bad, "X=Y").ok()) << bad;
}

TEST(Units, Numbers) {
  EXPECT_EQ(*ParseNumber("1e-3"), 1e-3);
  EXPECT_EQ(*ParseInt("-100"), -100);
  for (const char* bad : {"", "x", "1x", " 1", "1 ", "inf", "nan", "--1"}) EXPECT_FALSE(ParseNumber(bad).ok()) << bad;
  for (const char* bad : {"", "1.0", "1e3", "99999999999999999999"}) EXPECT_FALSE(ParseInt(bad).ok()) << bad;
}

}  // namespace
}  // namespace onnxtrain
