#include "frontend/data/bind/preprocess.h"

#include <gtest/gtest.h>

namespace onnxtrain {
namespace {

TEST(Preprocess, RoundTrip) {
  Preprocess p{.normalize = "0.1/0.2",
               .inputs = {{"x", {"a", "b,\"c"}}},
               .layout = {{"x", {1, 2}}},
               .pixels = {"x"},
               .label = {"y"},
               .classes = {"no", "yes"},
               .loss = "bce",
               .output = "out"};
  const auto read = ParsePreprocess(ToJson(p));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->normalize, p.normalize);
  EXPECT_EQ(read->inputs, p.inputs);
  EXPECT_EQ(read->layout, p.layout);
  EXPECT_EQ(read->pixels, p.pixels);
  EXPECT_EQ(read->label, p.label);
  EXPECT_EQ(read->classes, p.classes);
  EXPECT_EQ(read->loss, p.loss);
  EXPECT_EQ(read->output, p.output);
  for (const char* bad :
       {"", "[]", "{", "3", R"({"inputs": 3})", R"({"inputs": {"x": 3}})", R"({"label": "y"})", R"({"classes": [1]})",
        R"({"normalize": {}})", R"({"inputs": {"x": {"columns": [], "pixels": 1}}})", R"({"pictures": {"height": -8}})",
        R"({"pictures": {"width": 4294967304}})", R"({"pictures": {"size_multiple": -8}})",
        R"({"pictures": {"channels": 7}})"}) {
    EXPECT_FALSE(ParsePreprocess(bad).ok()) << bad;
  }
  EXPECT_TRUE(ParsePreprocess(R"({"something_newer": 1})").ok());
}

TEST(ParseNormalize, NamesAndNumbers) {
  const auto unit = ParseNormalize("unit"), raw = ParseNormalize("raw"), one = ParseNormalize("0.1307/0.3081");
  const auto three = ParseNormalize("0.5,0.4,0.3/0.2,0.2,0.1"), imagenet = ParseNormalize("imagenet");
  ASSERT_TRUE(unit.ok() && raw.ok() && one.ok() && three.ok() && imagenet.ok());
  EXPECT_EQ(unit->scale, 1.0 / 255);
  EXPECT_EQ(raw->scale, 1);
  EXPECT_TRUE(raw->mean.empty());
  EXPECT_EQ(one->scale, 1.0 / 255);
  EXPECT_EQ(one->mean, std::vector<double>{0.1307});
  EXPECT_EQ(one->std, std::vector<double>{0.3081});
  EXPECT_EQ(three->mean, (std::vector<double>{0.5, 0.4, 0.3}));
  EXPECT_EQ(imagenet->std.size(), 3u);
  for (const char* bad :
       {"", "0.5", "0.5/", "/0.5", "0.5/0", "0.5/-1", "0.5,0.5/0.2", "a/b", "0.5/0.5/0.5", "Unit", "1,/1,"}) {
    EXPECT_FALSE(ParseNormalize(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace onnxtrain
