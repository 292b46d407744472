// Tests the text form of graphs: printing, the exact round trip, and errors that name the line.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "frontend/base/strings.h"
#include "frontend/graph/graph.h"
#include "frontend/graph/text_form.h"

namespace onnxtrain {
namespace {

constexpr std::string_view kMlp = R"(graph(feed %x: f32[2,4], param %fc.weight: f32[3,4], state %2 "the mean": f32[3]) {
  %3 "hidden layer": f32[2,3] = MatMul(%x, %fc.weight) {trans_a=0, trans_b=1} @"fc/gemm"
  %4: f32[] = Constant() {value=f32[](0.5)}
  %y: f32[2,3] = Add(%3, %4)
  feed %lr "learning rate" as "lr": f32[]
  %mean: f32[3], %8: f32[3] = Moments(%y, _, %lr) {alpha=0.1, axes=[0, 1], betas=[0.5, 1.0], )"
                                  R"(mode="a \"b\"", none=[], nones=floats[]}
  return %y "logits", %mean, %8 "new mean" into %2
}
)";

TEST(GraphText, ReadsAndPrintsTheSame) {
  const auto graph = Parse(kMlp);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(Print(*graph), kMlp);
  EXPECT_EQ(graph->inputs().size(), 4);
  EXPECT_EQ(graph->FindInput("learning rate")->value, 6);
  EXPECT_EQ(graph->value(3).name, "hidden layer");
  EXPECT_EQ(*graph->nodes()[0].source, "fc/gemm");
  EXPECT_EQ(graph->nodes()[3].inputs, (ValueIds{5, kNoValue, 6}));
  EXPECT_EQ(graph->nodes()[3].attrs.Floats("betas"), (std::vector<double>{0.5, 1.0}));
  EXPECT_EQ(graph->nodes()[3].attrs.String("mode"), "a \"b\"");
  EXPECT_EQ(graph->FindOutput("new mean")->into, 2);
}

TEST(GraphText, LayoutsFollowTypes) {
  constexpr std::string_view kText = R"(graph(feed %x: f32[2,3,4,5]:nhwc, derived %w: bf16[8,3,3,3]:packed(1024)) {
  %y: f32[2,8,4,5]:nhwc = Conv(%x, %w)
  return %y
}
)";
  const auto graph = Parse(kText);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(Print(*graph), kText);
  EXPECT_EQ(graph->type(0).layout, Layout::kChannelsLast);
  EXPECT_EQ(graph->type(1).bytes(), 1024);
  for (std::string_view bad : {"f32[2,3]:nhwc", "f32[2]:blocked", "f32[2]:packed", "f32[2]:packed(-1)"}) {
    EXPECT_FALSE(Parse(StrCat("graph(feed %x: ", bad, ") { return %x }")).ok()) << bad;
  }
}

TEST(GraphText, CommentsAndLineBreaksAnywhere) {
  const auto graph =
      Parse("graph( # inputs\n feed\n%a: f32[2] )\n{ %b: f32[2] = Neg ( %a ) # { not this\n return %b \"#\" }");
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(Print(*graph), "graph(feed %a: f32[2]) {\n  %b: f32[2] = Neg(%a)\n  return %b \"#\"\n}\n");
}

TEST(GraphText, NamesThatAreNotUniqueBecomeIds) {
  Graph g;
  const ValueId x = g.AddInput(InputKind::kFeed, "x", {DType::kFloat32, {}});
  const ValueId y = g.AddNode("Neg", {x}, {}, {{DType::kFloat32, {}}}).outputs[0];
  g.SetValueName(y, "x");
  g.AddOutput("x", y);
  EXPECT_EQ(Print(g), "graph(feed %0 \"x\": f32[]) {\n  %1 \"x\": f32[] = Neg(%0)\n  return %1 \"x\"\n}\n");
  EXPECT_TRUE(*Parse(Print(g)) == g);
}

struct TensorCase {
  HostTensor tensor;
  std::string text;
};

HostTensor Bits32(std::vector<uint32_t> bits) {
  HostTensor t({DType::kFloat32, {static_cast<int64_t>(bits.size())}});
  for (size_t i = 0; i < bits.size(); ++i) t.mutable_data<uint32_t>()[i] = bits[i];
  return t;
}

TEST(GraphText, Tensors) {
  const double inf = std::numeric_limits<double>::infinity();
  HostTensor half({DType::kFloat16, {3}});
  half.mutable_data<uint16_t>()[0] = 0x7e01;  // a NaN
  half.mutable_data<uint16_t>()[1] = 0x0001;  // the smallest subnormal
  half.mutable_data<uint16_t>()[2] = 0x3555;
  HostTensor big({DType::kUInt64, {2}});
  big.mutable_data<uint64_t>()[0] = ~uint64_t{0};
  HostTensor ramp({DType::kInt8, {40}});
  for (int i = 0; i < 40; ++i) ramp.SetInt(i, i);
  const TensorCase kCases[] = {
      {HostTensor::FromDoubles({DType::kFloat32, {4}}, std::vector{0.1, -0.0, inf, -inf}),
       "f32[4](0.1, -0, inf, -inf)"},
      {HostTensor::FromDoubles({DType::kFloat64, {2}}, std::vector{0.1, 1e300}), "f64[2](0.1, 1e+300)"},
      {Bits32({0x7fc00000, 0x7fc00001, 0xffc00000, 1}), "f32[4](nan, nan(7fc00001), nan(ffc00000), 1e-45)"},
      {half, "f16[3](nan(7e01), 5.9604645e-08, 0.33325195)"},
      {big, "u64[2](18446744073709551615, 0)"},
      {HostTensor::FromInts({1, -2}), "i64[2](1, -2)"},
      {HostTensor::Filled({DType::kBool, {3}}, 1), "bool[3](splat 1)"},
      {HostTensor::Filled({DType::kFloat32, {1000, 1000}}, 0.25), "f32[1000,1000](splat 0.25)"},
      {HostTensor({DType::kFloat32, {0, 5}}), "f32[0,5]()"},
      {ramp, "i8[40](hex \"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f2021222324252627\")"},
  };
  for (const TensorCase& c : kCases) {
    Graph g;
    g.AddNode("Constant", {}, {{"value", c.tensor}}, {c.tensor.type()});
    const std::string expected = StrCat("{value=", c.text, "}");
    EXPECT_EQ(Print(g.nodes()[0].attrs), expected);
    const auto back = Parse(Print(g));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(*back == g) << c.text;
  }
}

TEST(GraphText, ElidedTensorsAreForPeople) {
  const Attrs attrs = {{"value", HostTensor::FromInts({1, 2, 3})}};
  EXPECT_EQ(Print(attrs, {.list_elements = 2, .elide_bytes = 8}), "{value=i64[3](...)}");
}

// Generates random graphs that use everything a graph can hold.
class RandomGraph {
 public:
  explicit RandomGraph(int seed) : random_(seed) {}

  Graph Make() {
    for (int i = 0, n = Draw(3); i < n; ++i) AddInput();
    for (int i = 0, n = Draw(8); i < n; ++i) {
      AddNode();
      if (Draw(5) == 0) AddInput();
    }
    for (ValueId v = 0; v < Count(); ++v) {
      if (Draw(3) == 0) g_.AddOutput(StrCat(Text(), v), v, g_.IsInput(v) && Draw(2) == 0 ? v : kNoValue);
    }
    return std::move(g_);
  }

 private:
  int Draw(int n) { return static_cast<int>(random_() % n); }
  ValueId Count() const { return static_cast<ValueId>(g_.values().size()); }

  std::string Text() {
    static const std::string kTexts[] = {"",
                                         "x",
                                         "layer1/conv.weight",
                                         "a b",
                                         "\"\\\n\t\x01",
                                         "ü→",
                                         "return",
                                         "_",
                                         "7",
                                         "graph",
                                         "feed",
                                         "nan",
                                         "x9",
                                         "#",
                                         "%",
                                         "f32"};
    return kTexts[Draw(std::size(kTexts))];
  }

  double Number() {
    if (Draw(4) == 0) return Draw(100) - 50;
    return std::bit_cast<double>(random_());
  }

  Type AnyType() {
    Type type{static_cast<DType>(Draw(13)), {}};
    for (int i = 0, n = Draw(3); i < n; ++i) type.shape.push_back(Draw(6));
    return type;
  }

  HostTensor Tensor() {
    HostTensor t(AnyType());
    const bool splat = Draw(3) == 0;
    for (std::byte& b : t.mutable_bytes()) b = splat ? std::byte{0xff} : static_cast<std::byte>(random_());
    return t;
  }

  AttrValue Attr() {
    switch (Draw(6)) {
      case 0:
        return static_cast<int64_t>(random_());
      case 1:
        return Number();
      case 2:
        return Text();
      case 3:
        return std::vector<int64_t>(Draw(3), static_cast<int64_t>(random_()));
      case 4:
        return std::vector<double>(Draw(3), Number());
      default:
        return Tensor();
    }
  }

  void AddInput() {
    const ValueId v = g_.AddInput(static_cast<InputKind>(Draw(5)), StrCat(Text(), Count()), AnyType());
    if (Draw(2) == 0) g_.SetValueName(v, Text());
  }

  void AddNode() {
    ValueIds inputs;
    for (int i = 0, n = Draw(4); i < n; ++i) inputs.push_back(Draw(Count() + 1) - 1);
    Attrs attrs;
    for (int i = 0, n = Draw(4); i < n; ++i) attrs.Set(Text(), Attr());
    std::vector<Type> types;
    for (int i = 0, n = 1 + Draw(2); i < n; ++i) types.push_back(AnyType());
    const ValueIds outputs = g_.AddNode(StrCat("Op", Text()), inputs, attrs, types, Text()).outputs;
    for (ValueId v : outputs) g_.SetValueName(v, Text());
  }

  std::mt19937_64 random_;
  Graph g_;
};

TEST(GraphText, RandomGraphsReadBackTheSame) {
  for (int seed = 0; seed < 500; ++seed) {
    const Graph graph = RandomGraph(seed).Make();
    const std::string text = Print(graph);
    const auto back = Parse(text);
    ASSERT_TRUE(back.ok()) << back.status() << "\n" << text;
    ASSERT_TRUE(*back == graph) << text;
  }
}

// For any text the parser terminates with a valid graph or an error that names the line.
TEST(GraphText, DamagedTextGivesAnErrorOrASoundGraph) {
  std::mt19937_64 random(1);
  for (int seed = 0; seed < 300; ++seed) {
    std::string text = Print(RandomGraph(seed).Make());
    for (int i = 0; i < 3; ++i) {
      const size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text[at] = static_cast<char>(random() % 128);
      } else {
        text.erase(at, random() % 10);
      }
    }
    const auto graph = Parse(text);
    if (graph.ok()) {
      EXPECT_TRUE(VerifyStructure(*graph).ok()) << text;
    } else {
      EXPECT_EQ(graph.status().message().substr(0, 5), "line ");
    }
  }
}

TEST(GraphText, Errors) {
  const struct {
    std::string_view text;
    std::string_view message;
  } kCases[] = {
      {"", "line 1: expected 'graph', got the end of the text"},
      {"graph(\n\nfeed x: f32[]) {}", "line 3: expected a value, got 'x'"},
      {"graph(feed %x: f3[]) {}", "line 1: expected an element type, got 'f3'"},
      {"graph(feed %x: f32[2.5]) {}", "line 1: expected an extent, got '2.5'"},
      {"graph(feed %x: f32[-1]) {}", "line 1: shape [-1] has a negative extent"},
      {"graph(feed %x: f32[9999999,9999999]) {}", "line 1: shape [9999999,9999999] has more than 2^40 elements"},
      {"graph(feed %x: f32[99999999999999999999]) {}", "line 1: expected an extent, got '99999999999999999999'"},
      {"graph(feed %x: f32[], feed %y \"x\": f32[]) {}", "line 1: two inputs are named \"x\""},
      {"graph(feed %x: f32[], feed %x \"y\": f32[]) {}", "line 1: %x is defined twice"},
      {"graph(weight %x: f32[]) {}", "line 1: expected the kind of an input, got 'weight'"},
      {"graph(feed %1: f32[]) {}", "line 1: expected the name of an input in quotes, got ':'"},
      {"graph(feed %x: f32[]) {\n  %y: f32[] = Neg(%z)\n  return\n}", "line 2: %z is not defined before it is read"},
      {"graph() {\n  %y: f32[] = (%z)\n  return\n}", "line 2: expected an operator, got '('"},
      {"graph() {\n  %y = Neg()\n  return\n}", "line 2: expected ':', got '='"},
      {"graph() { %y: f32[] = A() {a=1, a=2} return }", "line 1: attribute 'a' stands twice"},
      {"graph() { %y: f32[] = A() {a=[1, 2.0]} return }", "line 1: expected an integer, got '2.0'"},
      {"graph() { %y: f32[] = A() {a=[1.0, 2]} return }", "line 1: expected a number with a point, got '2'"},
      {"graph() { %y: f32[] = A() {a=[1 2]} return }", "line 1: expected ',', got '2'"},
      {"graph() { %y: f32[] = A() {a=1x} return }", "line 1: expected the value of an attribute, got '1x'"},
      {"graph() { %y: f32[] = A() {a=f32[2](1)} return }", "line 1: a tensor of type f32[2] has 8 bytes, got 4"},
      {"graph() { %y: f32[] = A() {a=i8[1](200)} return }", "line 1: expected a number of type i8, got '200'"},
      {"graph() { %y: f32[] = A() {a=f32[1](nan(0))} return }", "line 1: expected a number of type f32, got 'nan(0)'"},
      {"graph() { %y: f32[] = A() {a=f32[1](hex \"0g\")} return }",
       "line 1: expected hexadecimal bytes in quotes, got \"0g\""},
      {"graph() { %y: f32[] = A() {a=f32[1099511627776](splat 0)} return }",
       "line 1: a tensor of type f32[1099511627776] is above the size limit"},
      {"graph() { %y: f32[] = A() {a=f32[3](...)} return }", "line 1: unexpected \".\""},
      {"graph() {\n return _ \"y\"\n}", "line 2: an output needs a value"},
      {"graph(feed %x: f32[]) { return %x, %x }", "line 1: two outputs are named \"x\""},
      {"graph(feed %x: f32[], feed %z: f64[]) { return %x into %z }",
       "line 1: output \"x\" of type f32[] is written into an input of type f64[]"},
      {"graph(feed %x: f32[]) { %y: f32[] = Neg(%x) return %x into %y }",
       "line 1: output \"x\" is not written into an input"},
      {"graph() {\n return }\n}", "line 3: expected the end of the text, got '}'"},
      {"graph() { %y: f32[] = A() @\"abc", "line 1: a string has no end"},
      {"graph() { %y: f32[] = A() @\"\\n\"", "line 1: unknown escape in a string"},
      {"graph() { %y: f32[] = A() @\"\\x4\"", "line 1: \\x needs two hexadecimal digits"},
      {"graph() {", "line 1: expected a value, got the end of the text"},
      {"graph() { ? }", "line 1: unexpected \"?\""},
  };
  for (const auto& c : kCases) {
    const auto graph = Parse(c.text);
    ASSERT_FALSE(graph.ok()) << c.text;
    EXPECT_EQ(ToStd(graph.status().message()), c.message) << c.text;
  }
}

}  // namespace
}  // namespace onnxtrain
