#include "frontend/data/bind/binding.h"

#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {
namespace {

using Input = ModelInput;

Input F32(std::string name, std::vector<int64_t> dims) {
  return {std::move(name), DType::kFloat32, std::move(dims), {}};
}
Input I64(std::string name, std::vector<int64_t> dims) { return {std::move(name), DType::kInt64, std::move(dims), {}}; }

struct Col {
  std::string name;
  DType dtype;
  Shape sample;
};

std::shared_ptr<const Dataset> Data(const std::vector<Col>& columns, int64_t n = 3) {
  std::vector<std::string> names;
  std::vector<HostTensor> tensors;
  for (const Col& c : columns) {
    Shape shape = c.sample;
    shape.insert(shape.begin(), n);
    names.push_back(c.name);
    tensors.emplace_back(Type{c.dtype, shape});
  }
  return *InMemoryDataset("data", names, tensors);
}

// "x←1,2 label←0", or the error.
std::string Bound(const std::vector<Input>& inputs, const std::vector<Col>& columns, const BindSpec& spec = {}) {
  const auto bound = BindData(inputs, Data(columns), spec);
  if (!bound.ok()) return std::string(ToStd(bound.status().message()));
  std::string text;
  const auto list = [&](const std::vector<int>& cs) {
    for (size_t i = 0; i < cs.size(); ++i) StrAppend(&text, i == 0 ? "" : ",", cs[i]);
  };
  for (const FeedSpec& feed : bound->feeds) {
    StrAppend(&text, feed.feed, "←");
    list(feed.columns);
    StrAppend(&text, " ");
  }
  text += "label←";
  list(bound->label.columns);
  return text;
}

constexpr DType kF = DType::kFloat32, kU = DType::kUInt8, kI = DType::kInt64;

TEST(Bind, FindsTheOnlyWay) {
  EXPECT_EQ(Bound({F32("in", {-1, 1, 28, 28})}, {{"image", kU, {28, 28}}, {"label", kU, {}}}), "in←0 label←1");
  EXPECT_EQ(Bound({F32("in", {-1, 784})}, {{"y", kI, {}}, {"pixels", kF, {784}}}), "in←1 label←0");
  EXPECT_EQ(Bound({F32("in", {-1, 4})}, {{"data", kF, {4}}, {"what", kI, {}}}),
            "in←0 label←1");  // the other one is the label
  EXPECT_EQ(Bound({F32("in", {-1, 3})}, {{"a", kF, {}}, {"b", kF, {}}, {"c", kF, {}}, {"d", kI, {}}}),
            "in←0,1,2 label←3");
  EXPECT_EQ(Bound({F32("in", {-1, 3})}, {{"target", kF, {}}, {"b", kF, {}}, {"c", kF, {}}, {"d", kI, {}}}),
            "in←1,2,3 label←0");
  EXPECT_EQ(Bound({F32("a", {-1, 2}), F32("b", {-1, 3})}, {{"b", kF, {3}}, {"a", kF, {2}}, {"y", kI, {}}}),
            "a←1 b←0 label←2");
  EXPECT_EQ(Bound({F32("in", {-1, 2})}, {{"p", kF, {2}}, {"q", kF, {5}}, {"y", kI, {}}}),
            "in←0 label←2");  // only one fits
}

// The inputs that are fed with pixels; the value is that of every byte.
std::string PixelInputs(const std::vector<Col>& columns, uint8_t value, const BindSpec& spec) {
  std::vector<std::string> names;
  std::vector<HostTensor> tensors;
  std::vector<Input> inputs;
  for (const Col& c : columns) {
    Shape shape = c.sample;
    shape.insert(shape.begin(), 3);
    names.push_back(c.name);
    tensors.push_back(HostTensor::Filled({c.dtype, shape}, value));
    shape[0] = -1;
    inputs.push_back(F32(c.name, shape));
  }
  const auto bound = BindData(inputs, *InMemoryDataset("data", names, tensors), spec);
  EXPECT_TRUE(bound.ok()) << bound.status();
  std::string pixels;
  for (const FeedSpec& feed : bound->feeds) {
    const bool image = bound->dataset->columns()[feed.columns[0]].image;
    EXPECT_EQ(feed.scale != 1, image) << feed.feed;
    if (image) pixels += feed.feed;
  }
  EXPECT_EQ(bound->has_images, !pixels.empty());
  return pixels;
}

// Bits, counts and categories of a byte each are features, however many there are.
TEST(Bind, RowsOfBytesArePixelsWhereTheyAreBright) {
  const BindSpec spec{.want_label = false, .pixels = {.scale = 1.0 / 255}};
  const std::vector<Col> row = {{"x", kU, {1024}}}, both = {{"x", kU, {1024}}, {"p", kU, {8, 8}}};
  EXPECT_EQ(PixelInputs(row, 1, spec), "");
  EXPECT_EQ(PixelInputs(row, 127, spec), "");
  EXPECT_EQ(PixelInputs(row, 255, spec), "x");
  EXPECT_EQ(PixelInputs({{"x", kU, {1000}}}, 255, spec), "");  // of no square
  EXPECT_EQ(PixelInputs(both, 1, spec), "p");
  BindSpec asked = spec;
  asked.pixels_requested = true;
  EXPECT_EQ(PixelInputs(row, 1, asked), "x");
  EXPECT_EQ(PixelInputs(both, 1, asked), "p");
  BindSpec trained = asked;
  trained.pixel_inputs = {"p"};
  EXPECT_EQ(PixelInputs(both, 255, trained), "p");
  trained.pixel_inputs = {"p", "x"};
  EXPECT_EQ(PixelInputs(both, 0, trained), "xp");
}

TEST(Bind, WhatIsAmbiguousIsAnError) {
  const std::string two = Bound({F32("in", {-1, 2})}, {{"p", kF, {2}}, {"q", kF, {2}}, {"y", kI, {}}});
  EXPECT_NE(two.find("not clear"), std::string::npos) << two;
  EXPECT_NE(two.find("`input` in=COLUMN"), std::string::npos) << two;
  EXPECT_NE(two.find("'p' f32[2]"), std::string::npos) << two;
  const std::string labels = Bound({F32("in", {-1, 2})}, {{"p", kF, {2}}, {"label", kI, {}}, {"target", kI, {}}});
  EXPECT_NE(labels.find("both 'label' and 'target'"), std::string::npos) << labels;
  const std::string inputs =
      Bound({F32("a", {-1, 2}), F32("b", {-1, 2})}, {{"p", kF, {2}}, {"q", kF, {2}}, {"y", kI, {}}});
  EXPECT_NE(inputs.find("`input` a=COLUMN"), std::string::npos) << inputs;
  const std::string width = Bound({F32("in", {-1, 5})}, {{"a", kF, {}}, {"b", kF, {}}, {"c", kI, {}}});
  EXPECT_NE(width.find("does not fit the 2 numeric columns"), std::string::npos) << width;
  const std::vector<Col> pairs = {{"a", kF, {2}}, {"b", kF, {2}}, {"c", kI, {}}};
  EXPECT_NE(Bound({F32("in", {-1, 2})}, pairs).find("=COLUMN and `label` COLUMN"), std::string::npos);
  EXPECT_TRUE(Bound({F32("in", {-1, 2})}, pairs, {.label = {"c"}}).ends_with("choose with `input` in=COLUMN"));
  const std::string none = Bound({F32("in", {-1, 5})}, {{"label", kI, {}}});
  EXPECT_NE(none.find("no column is left"), std::string::npos) << none;
}

TEST(Bind, KnowsWhatExportersAddToNames) {
  const std::vector<Col> columns = {{"mask", kI, {5}}, {"ids", kI, {5}}, {"y", kI, {}}};
  for (const char* form : {"$:0", "serving_default_$:0", "model/encoder/$", "serving_default_$"}) {
    const auto name = [&](const char* stem) { return absl::StrReplaceAll(form, {{"$", stem}}); };
    EXPECT_EQ(Bound({I64(name("ids"), {-1, 5}), I64(name("mask"), {-1, 5})}, columns),
              StrCat(name("ids"), "←1 ", name("mask"), "←0 label←2"));
  }
  EXPECT_EQ(Bound({I64("12", {-1, 5}), I64("x/34:0", {-1, 5})}, {{"34", kI, {5}}, {"12", kI, {5}}, {"y", kI, {}}}),
            "12←1 x/34:0←0 label←2");
  EXPECT_NE(Bound({I64("a/ids", {-1, 5}), I64("b/ids", {-1, 5})}, columns).find("not clear"), std::string::npos);
  EXPECT_EQ(Bound({F32("a:0", {-1, 2})}, {{"a", kF, {}}, {"b", kF, {}}, {"y", kI, {}}}), "a:0←0,1 label←2")
      << "the only input of a table";
}

// WebDataset calls the label cls.
TEST(Bind, ClsIsALabel) {
  EXPECT_EQ(Bound({F32("in", {-1, 2})}, {{"npy", kF, {2}}, {"weight", kF, {}}, {"cls", kI, {}}}), "in←0 label←2");
}

TEST(Bind, ExplicitBindings) {
  EXPECT_EQ(Bound({F32("in", {-1, 2})}, {{"y", kF, {2}}, {"b", kF, {3}}}, {.inputs = {{"in", {"y"}}}}), "in←0 label←0")
      << "an autoencoder";
  BindSpec spec;
  spec.inputs = {{"in", {"q"}}};
  spec.label = {"p"};
  EXPECT_EQ(Bound({F32("in", {-1, 2})}, {{"p", kF, {2}}, {"q", kF, {2}}}, spec), "in←1 label←0");
  spec.inputs = {{"in", {"2", "0"}}};
  spec.label = {"1"};
  EXPECT_EQ(Bound({F32("in", {-1, 2})}, {{"a", kF, {}}, {"b", kF, {}}, {"c", kF, {}}}, spec), "in←2,0 label←1");
  spec.label = {"b", "c"};
  spec.inputs = {{"in", {"a"}}};
  EXPECT_EQ(Bound({F32("in", {-1, 1})}, {{"a", kF, {}}, {"b", kF, {}}, {"c", kF, {}}}, spec), "in←0 label←1,2");
  spec.inputs = {{"nosuch", {"a"}}};
  EXPECT_NE(Bound({F32("in", {-1, 1})}, {{"a", kF, {}}, {"b", kF, {}}}, spec)
                .find("the model has no such input; it has 'in' f32[?,1]"),
            std::string::npos);
  spec.inputs = {{"in", {"zz"}}};
  EXPECT_NE(Bound({F32("in", {-1, 1})}, {{"a", kF, {}}, {"b", kF, {}}}, spec).find("there is no column 'zz'"),
            std::string::npos);
  spec.inputs = {};
  spec.label = {"zz"};
  EXPECT_NE(Bound({F32("in", {-1, 1})}, {{"a", kF, {}}, {"b", kF, {}}}, spec).find("`label`: there is no column 'zz'"),
            std::string::npos);
}

TEST(Bind, TextModelsHaveDefaults) {
  const std::vector<Input> bert = {I64("input_ids", {-1, -1}), I64("token_type_ids", {-1, -1}),
                                   I64("attention_mask", {-1, -1})};
  for (const char* name : {"input_ids", "tokens"}) {
    const auto bound = BindData(bert, Data({{name, kI, {8}}, {"label", kI, {}}}), {});
    ASSERT_TRUE(bound.ok()) << bound.status();
    ASSERT_EQ(bound->feeds.size(), 3u);
    EXPECT_EQ(bound->label.columns, std::vector<int>{1});
    const auto value = [&](int feed) {
      std::vector<int64_t> sample(8);
      const FeedSpec& spec = bound->feeds[feed];
      EXPECT_EQ(spec.sample, (Type{kI, {8}}));
      EXPECT_TRUE(bound->dataset->Read(2, spec.columns[0], std::as_writable_bytes(std::span(sample))).ok());
      return sample;
    };
    EXPECT_EQ(value(1), std::vector<int64_t>(8, 0));
    EXPECT_EQ(value(2), std::vector<int64_t>(8, 1));
    EXPECT_EQ(bound->input_shapes.at("attention_mask"), (Shape{-1, 8}));
  }
}

// Said aloud, in words that the start page shows; masks of PyTorch mark padding, those of others what is none.
TEST(Bind, MasksLetEverythingThrough) {
  const struct {
    const char* mask;
    int64_t value;
  } kMasks[] = {{"attention_mask", 1},
                {"encoder_attention_mask", 1},
                {"input_mask", 1},
                {"padding_mask", 1},
                {"src_key_padding_mask", 0}};
  for (const auto& row : kMasks) {
    const auto bound = BindData({I64("input_ids", {-1, -1}), I64(row.mask, {-1, -1})},
                                Data({{"tokens", kI, {4}}, {"label", kI, {}}}), {});
    ASSERT_TRUE(bound.ok()) << bound.status();
    std::vector<int64_t> sample(4);
    EXPECT_TRUE(bound->dataset->Read(0, bound->feeds[1].columns[0], std::as_writable_bytes(std::span(sample))).ok());
    EXPECT_EQ(sample, std::vector<int64_t>(4, row.value)) << row.mask;
    const std::string want = StrCat("input '", row.mask, "' is not in the data: ", row.value == 1 ? "ones" : "zeros",
                                    ", nothing is padding");
    const bool said = std::any_of(bound->notes.begin(), bound->notes.end(),
                                  [&](const std::string& note) { return note.starts_with(want); });
    EXPECT_TRUE(said) << row.mask;
  }
}

// Names in every order: constants are bound while others still look for a shape.
TEST(Bind, DefaultsInAnyOrder) {
  for (const char* real : {"aaa", "input_ids", "zzz"}) {
    const std::vector<Input> inputs = {I64("attention_mask", {-1, -1}), I64("token_type_ids", {-1, -1}),
                                       I64(real, {-1, -1}), I64("position_ids", {-1, -1})};
    for (const char* column : {real, "tokens"}) {
      const auto bound = BindData(inputs, Data({{column, kI, {6}}, {"label", kI, {}}}), {});
      ASSERT_TRUE(bound.ok()) << real << bound.status();
      for (const FeedSpec& feed : bound->feeds) EXPECT_EQ(feed.sample, (Type{kI, {6}})) << real << feed.feed;
    }
  }
}

TEST(Bind, NoLabelWanted) {
  BindSpec spec;
  spec.want_label = false;
  EXPECT_EQ(Bound({F32("in", {-1, 3})}, {{"a", kF, {}}, {"b", kF, {}}, {"c", kF, {}}}, spec), "in←0,1,2 label←");
  EXPECT_EQ(Bound({F32("in", {-1, 2})}, {{"a", kF, {}}, {"label", kI, {}}, {"c", kF, {}}}, spec), "in←0,2 label←1");
  spec.read_labels = false;
  spec.inputs["in"] = {"a", "c"};
  EXPECT_EQ(Bound({F32("in", {-1, 2})}, {{"a", kF, {}}, {"label", kI, {}}, {"y", kI, {}}, {"c", kF, {}}}, spec),
            "in←0,3 label←");
}

TEST(Bind, PixelsByChannel) {
  BindSpec spec;
  spec.pixels = {1.0 / 255, {0.5, 0.4, 0.3}, {0.1, 0.1, 0.1}};
  const auto first = BindData({F32("in", {-1, 3, 8, 8})}, Data({{"image", kU, {3, 8, 8}}, {"label", kI, {}}}), spec);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->feeds[0].channel_axis, 0);
  EXPECT_TRUE(first->has_images);
  const auto last = BindData({F32("in", {-1, 8, 8, 3})}, Data({{"image", kU, {8, 8, 3}}, {"label", kI, {}}}), spec);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->feeds[0].channel_axis, 2);
  EXPECT_FALSE(BindData({F32("in", {-1, 1, 8, 8})}, Data({{"image", kU, {8, 8}}, {"label", kI, {}}}), spec).ok());
}

TEST(FitSample, Table) {
  struct Row {
    Shape data, fixed, want;  // want {-9}: an error
  };
  const Shape kBad = {-9};
  const Row rows[] = {
      {{28, 28}, {1, 28, 28}, {1, 28, 28}},
      {{28, 28}, {28, 28, 1}, {28, 28, 1}},
      {{28, 28}, {784}, {784}},
      {{784}, {1, 28, 28}, {1, 28, 28}},
      {{3, 32, 32}, {3, 32, 32}, {3, 32, 32}},
      {{32, 32, 3}, {3, 32, 32}, kBad},
      {{28, 28}, {14, 56}, kBad},
      {{5}, {4}, kBad},
      {{128}, {-1}, {128}},
      {{28, 28}, {-1}, kBad},
      {{28, 28}, {1, -1, -1}, {1, 28, 28}},
      {{28, 28}, {-1, -1, -1}, {1, 28, 28}},
      {{3, 32, 32}, {-1, -1}, kBad},
      {{1, 28, 28}, {28, 28}, {28, 28}},
      {{}, {1}, {1}},
      {{}, {}, {}},
      {{1}, {}, {}},
      {{4}, {}, kBad},
      {{32, 32, 3}, {-1, -1, 3}, {32, 32, 3}},
      {{32, 32, 4}, {-1, -1, 3}, kBad},
  };
  for (const Row& row : rows) {
    const auto fitted = FitSample(row.data, row.fixed);
    EXPECT_EQ(fitted.ok() ? *fitted : kBad, row.want)
        << ToString(row.data) << " as " << ToString(row.fixed) << " " << fitted.status();
  }
}

TEST(Bind, FlattensPicturesForRowsOfAnyLength) {
  const auto data =
      *InMemoryDataset("data", {"image", "label"}, {HostTensor({kF, {2, 4, 5}}), HostTensor::FromInts({0, 1})});
  const auto bound = BindData({F32("in", {-1, -1})}, data, {});
  ASSERT_TRUE(bound.ok()) << bound.status();
  EXPECT_EQ(bound->feeds[0].sample.shape, (Shape{20}));
  EXPECT_EQ(bound->input_shapes.at("in"), (Shape{-1, 20}));
}

// Labels 7, 3, 10 of classes 3, 7, 10 are the scores 1, 0, 2.
TEST(Bind, NumbersTheModelsClasses) {
  const auto labels = HostTensor::FromInts({7, 3, 10});
  const auto data = *InMemoryDataset("data", {"x", "label"}, {HostTensor({kF, {3, 2}}), labels});
  const auto bound = BindData({F32("in", {-1, 2})}, data, {.classes = {"3", "7", "10"}});
  ASSERT_TRUE(bound.ok()) << bound.status();
  EXPECT_EQ(bound->label.info.max_value, 2);
  EXPECT_EQ(bound->classes, (std::vector<std::string>{"3", "7", "10"}));
  int64_t index = -1;
  for (const auto& [row, want] : {std::pair(0, 1), {1, 0}, {2, 2}}) {
    ASSERT_TRUE(bound->dataset->Read(row, 1, std::as_writable_bytes(std::span(&index, 1))).ok());
    EXPECT_EQ(index, want);
  }
  const auto other = BindData({F32("in", {-1, 2})}, data, {.classes = {"3", "8", "10"}});
  EXPECT_NE(
      other.status().message().find("sample 0, column 'label': label 7 is not among the model's classes 3, 8, 10"),
      absl::string_view::npos)
      << other.status();
}

TEST(Bind, WarnsOfALabelThatIsProbablyTheFirstColumn) {
  const auto table = [](const std::vector<int64_t>& last) {
    return *InMemoryDataset("data", {"a", "b", "c"},
                            {HostTensor::FromInts({0, 1, 2}), HostTensor({kF, {3}}), HostTensor::FromInts(last)});
  };
  const auto constant = BindData({F32("in", {-1, 2})}, table({0, 0, 0}), {});
  ASSERT_TRUE(constant.ok()) << constant.status();
  ASSERT_EQ(constant->warnings.size(), 1u);
  EXPECT_NE(constant->warnings[0].find("`label` a"), std::string::npos) << constant->warnings[0];
  EXPECT_TRUE(BindData({F32("in", {-1, 2})}, table({0, 1, 0}), {})->warnings.empty());
}

TEST(Bind, NamesColumnsThatDivideOrNumberTheData) {
  const std::vector<Col> columns = {{"id", kI, {}}, {"a", kF, {}}, {"b", kF, {}}, {"split", kI, {}}, {"kind", kI, {}}};
  EXPECT_EQ(Bound({F32("in", {-1, 2})}, columns), "in←1,2 label←4");
  const std::string text = Bound({F32("in", {-1, 3})}, columns);
  EXPECT_NE(text.find("`eval_split` split"), std::string::npos) << text;
  EXPECT_NE(text.find("'id' may number the rows"), std::string::npos) << text;
  const std::string last = Bound({F32("in", {-1, 2})}, {{"a", kF, {}}, {"b", kF, {}}, {"split", kI, {}}});
  EXPECT_NE(last.find("the label would be the last column, 'split'"), std::string::npos) << last;
}

TEST(Bind, RowsThatSpoilAllColumnsAreNamed) {
  const auto column = [](const char* name) {
    return NamedTensor{name, HostTensor::FromInts({0, 0}), {}, StrCat("t.csv: row 1, column '", name, "': 'A'")};
  };
  auto table = *MakeMemoryDataset({column("a"), column("b"), {"y", HostTensor::FromInts({0, 1})}},
                                  [](int64_t) { return "t.csv"; });
  const auto bound = BindData({F32("in", {-1, 2})}, table, {});
  EXPECT_NE(ToStd(bound.status().message()).find("; if row 1 alone is so: remove it, or `on_bad_sample` skip"),
            std::string::npos)
      << bound.status();
}

TEST(Bind, ChannelsOfArraysMoveToWhereTheInputHasThem) {
  HostTensor pixels({kU, {2, 2, 2, 3}}), labels({kI, {2}});
  for (int64_t i = 0; i < pixels.size(); ++i) pixels.SetInt(i, i);
  const auto bind = [&](const HostTensor& x, std::vector<int64_t> dims) {
    return BindData({F32("in", std::move(dims))}, *InMemoryDataset("d", {"x", "label"}, {x, labels}), {});
  };
  const auto first = bind(pixels, {-1, 3, 2, 2});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->feeds[0].sample.shape, (Shape{3, 2, 2}));
  std::vector<uint8_t> sample(12);
  ASSERT_TRUE(first->dataset->Read(1, 0, std::as_writable_bytes(std::span(sample))).ok());
  EXPECT_EQ(sample, (std::vector<uint8_t>{12, 15, 18, 21, 13, 16, 19, 22, 14, 17, 20, 23}));
  EXPECT_EQ(first->notes[0],
            "column 'x' u8[2,2,3] is transposed to u8[3,2,2]: the channels of the input are along its first axis");

  const HostTensor planes({kF, {2, 3, 8, 9}});
  const auto last = bind(planes, {-1, -1, -1, 3});
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->feeds[0].sample.shape, (Shape{8, 9, 3}));
  EXPECT_EQ(bind(planes, {-1, 3, -1, -1})->feeds[0].sample.shape, (Shape{3, 8, 9}));  // as it is
  EXPECT_FALSE(bind(planes, {-1, 9, 8, 3}).ok());                                     // width before height
  EXPECT_FALSE(bind(HostTensor({kF, {2, 8, 8, 5}}), {-1, 5, 8, 8}).ok());             // no channels of pictures
}

}  // namespace
}  // namespace onnxtrain
