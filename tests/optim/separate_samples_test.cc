// SeparateSamples: text in, text out; rows of several samples compute what each sample computes alone.
#include "optim/step/separate_samples.h"

#include <gmock/gmock.h>

#include "absl/strings/str_replace.h"
#include "frontend/passes/differentiate.h"
#include "tests/frontend/passes/testing.h"

namespace onnxtrain {
namespace {

using testing::HasSubstr;

const PackedInputs kInputs = {.tokens = {"ids"}, .constants = {{"mask", 1}}};
constexpr std::string_view kFeeds =
    "feed %ids: i64[2,6], feed %mask: i64[2,6], param %e: f32[5,4], param %p: f32[6,4], param %w: f32[4,4]";
constexpr std::string_view kEmbedded = "%x: f32[2,6,4] = Gather(%e, %ids) {axis=0}; ";

absl::StatusOr<Graph> Separate(std::string_view body, const PackedInputs& inputs = kInputs) {
  return SeparateSamples(MustParse(GraphText(kFeeds, body)), inputs);
}

TEST(SeparateSamples, RowsOfAPositionTableAreLookedUp) {
  const auto separated = Separate(StrCat(kEmbedded, "%y: f32[2,6,4] = Add(%x, %p); %y"));
  ASSERT_TRUE(separated.ok()) << separated.status();
  const std::string feeds = StrCat(kFeeds, ", feed %5 \"$positions\": i64[2,6]");
  EXPECT_EQ(Print(*separated),
            Print(MustParse(GraphText(feeds, StrCat(kEmbedded,
                                                    "%7: f32[1,6,4] = Reshape(%p) {shape=[1, 6, 4]}; "
                                                    "%8: f32[1,2,6,4] = Gather(%7, %5) {axis=1, padding_idx=-1}; "
                                                    "%9: f32[2,6,4] = Reshape(%8) {shape=[2, 6, 4]}; "
                                                    "%y: f32[2,6,4] = Add(%x, %9); %y")))));
}

// The rows of a product with quantized weights are those of its operand.
TEST(SeparateSamples, ProductsWithQuantizedWeightsKeepTheirRows) {
  const std::string feeds = StrCat(kFeeds, ", frozen %q: u8[4,2], frozen %s: f32[4,1]");
  const std::string product =
      "%z: f32[2,6,4] = MatMulDequantized(%x, %q, %s) {bits=4, block=[1, 4], columns=4, transposed=0, zero=8.0}; ";
  const auto separate = [&](const std::string& body) {
    return SeparateSamples(MustParse(GraphText(feeds, StrCat(kEmbedded, product, body))), kInputs);
  };
  EXPECT_TRUE(separate("%y: f32[2,6,4] = Add(%z, %p); %y").ok());
  const auto mixed =
      separate("%m: f32[2,1,4] = ReduceMean(%z) {axes=[1], keepdims=1}; %y: f32[2,6,4] = Add(%z, %m); %y");
  EXPECT_THAT(mixed.status().message(), HasSubstr("combines the tokens of a row"));
}

// Attention with positions in a table and a causal mask, over a head for each row of the batch or over several.
constexpr std::string_view kCausal =
    "%m: f32[6,6] = Constant() {value=f32[6,6](0, -inf, -inf, -inf, -inf, -inf, 0, 0, -inf, -inf, -inf, -inf, 0, 0, 0, "
    "-inf, -inf, -inf, 0, 0, 0, 0, -inf, -inf, 0, 0, 0, 0, 0, -inf, 0, 0, 0, 0, 0, 0)}; ";
const std::string kModels[] = {
    StrCat(kEmbedded, kCausal,
           "%y: f32[2,6,4] = Add(%x, %p); %a: f32[2,6,4] = Attention(%y, %y, %y, %m) {scale=0.5}; %a"),
    // The batch and the tokens, and the batch and the heads, are one axis.
    StrCat(
        kEmbedded, kCausal,
        "%z: f32[2,6,4] = Expand(%p) {shape=[2, 6, 4]}; %zf: f32[12,4] = Reshape(%z) {shape=[12, 4]}; "
        "%xf: f32[12,4] = Reshape(%x) {shape=[12, 4]}; %s: f32[12,4] = Add(%xf, %zf); "
        "%q: f32[12,4] = MatMul(%s, %w) {trans_a=0, trans_b=0}; %h: f32[2,6,2,2] = Reshape(%q) {shape=[2, 6, 2, 2]}; "
        "%t: f32[2,2,6,2] = Transpose(%h) {perm=[0, 2, 1, 3]}; %g: f32[4,6,2] = Reshape(%t) {shape=[4, 6, 2]}; "
        "%a: f32[4,6,2] = Attention(%g, %g, %g, %m) {scale=0.5}; %b: f32[2,2,6,2] = Reshape(%a) {shape=[2, 2, 6, "
        "2]}; %c: f32[2,6,2,2] = Transpose(%b) {perm=[0, 2, 1, 3]}; %d: f32[2,6,4] = Reshape(%c) {shape=[2, 6, 4]}; "
        "%d")};

HostTensor Ints(const std::vector<int64_t>& values) { return HostTensor::FromInts({DType::kInt64, {2, 6}}, values); }

// Adds the gradients of the parameters, for the feed "dy" of gradients of the output.
Graph WithGradients(Graph graph) {
  Builder b(&graph);
  const ValueId y = graph.outputs()[0].value;
  const ValueId dy = b.Input(InputKind::kFeed, "dy", graph.type(y)).id();
  std::vector<ValueId> parameters;
  for (const GraphInput& input : graph.inputs()) {
    if (input.kind == InputKind::kParameter) parameters.push_back(input.value);
  }
  const Seed seeds[] = {{y, dy}};
  const auto gradients = Differentiate(&graph, seeds, parameters);
  EXPECT_TRUE(gradients.ok()) << gradients.status();
  for (const auto& [parameter, gradient] : *gradients) graph.AddOutput(StrCat("grad", parameter), gradient);
  return graph;
}

// Output and gradients in float64 of the sample 1 2 3 4, whose tokens begin at `begin` in the first row.
std::vector<HostTensor> RunSample(const Graph& graph, const std::map<std::string, HostTensor>& inputs, int64_t begin) {
  std::map<std::string, HostTensor> fed = inputs;
  HostTensor dy({DType::kFloat64, {2, 6, 4}});
  for (int64_t k = 0; k < 16; ++k) dy.Set(begin * 4 + k, std::sin(static_cast<double>(k)));
  fed.insert_or_assign("dy", std::move(dy));
  return MustRun(graph, fed);
}

TEST(SeparateSamples, ASampleComputesWhatItComputesAlone) {
  for (const std::string& body : kModels) {
    const Graph alone = MustParse(absl::StrReplaceAll(GraphText(kFeeds, body), {{"f32", "f64"}}));
    const auto separated = SeparateSamples(alone, kInputs);
    ASSERT_TRUE(separated.ok()) << separated.status();
    auto inputs = RandomInputs(alone);
    inputs.at("ids") = Ints({1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0});
    const std::vector<HostTensor> first = RunSample(WithGradients(alone), inputs, 0);
    // Both rows have the sample behind another one.
    inputs.at("ids") = Ints({4, 4, 1, 2, 3, 4, 3, 1, 2, 3, 4, 0});
    inputs["$positions"] = Ints({0, 1, 0, 1, 2, 3, 0, 0, 1, 2, 3, 0});
    for (const int64_t begin : {2, 6 + 1}) {
      const std::vector<HostTensor> packed = RunSample(WithGradients(*separated), inputs, begin);
      for (int64_t k = 0; k < 16; ++k) EXPECT_NEAR(packed[0].At(begin * 4 + k), first[0].At(k), 1e-12) << body;
      for (size_t g = 1; g < first.size(); ++g) ExpectNear(packed[g], first[g], 1e-12, StrCat("gradient ", g));
    }
  }
}

TEST(SeparateSamples, NodesThatCombineTokensAreNamed) {
  constexpr std::string_view kNodes[] = {
      "%y: f32[2,6,4] = CumSum(%x) {axis=1, exclusive=0, reverse=0} @\"node\"; %y",
      "%m: f32[2,1,4] = ReduceMean(%x) {axes=[1], keepdims=1} @\"node\"; %y: f32[2,6,4] = Add(%x, %m); %y",
      "%m: f32[2,1,4] = ReduceSum(%x) {axes=[1], keepdims=1} @\"node\"; %y: f32[2,6,4] = Add(%x, %m); %y",
      "%s: f32[2,6,6] = MatMul(%x, %x) {trans_a=0, trans_b=1} @\"node\"; %y: f32[2,6,4] = MatMul(%s, %x) {trans_a=0, "
      "trans_b=0}; %y",
      "%s: f32[2,6,4] = Softmax(%x) {axis=1} @\"node\"; %s",
      "%s: f32[2,5,4] = Slice(%x) {starts=[0, 0, 0], sizes=[2, 5, 4], steps=[1, 1, 1]} @\"node\"; "
      "%y: f32[2,6,4] = Pad(%s) {pads=[0, 1, 0, 0, 0, 0], value=0.0}; %y"};
  for (const std::string_view nodes : kNodes) {
    const auto separated = Separate(StrCat(kEmbedded, nodes));
    ASSERT_FALSE(separated.ok()) << nodes;
    EXPECT_THAT(std::string(separated.status().message()), HasSubstr("'node'] combines the tokens of a row")) << nodes;
    PackedInputs fed = kInputs;
    fed.separates = true;
    EXPECT_TRUE(Separate(StrCat(kEmbedded, nodes), fed).ok()) << "a fed mask may separate them";
  }
}

// The mask of padding becomes a constant, so that positions that the graph counts with it are looked up, too.
TEST(SeparateSamples, CountedPositionsAreLookedUp) {
  const auto separated = Separate(StrCat("%c: i64[2,6] = CumSum(%mask) {axis=1, exclusive=1, reverse=0}; ", kEmbedded,
                                         "%r: f32[2,6,4] = Gather(%p, %c) {axis=0}; %y: f32[2,6,4] = Add(%x, %r); %y"));
  ASSERT_TRUE(separated.ok()) << separated.status();
  std::map<std::string, HostTensor> inputs = RandomInputs(*separated);
  inputs.at("$positions") = Ints({0, 1, 2, 0, 1, 2, 0, 0, 0, 0, 1, 2});
  inputs.at("ids") = Ints({1, 2, 3, 1, 2, 3, 1, 1, 1, 1, 2, 3});
  const HostTensor y = MustRun(*separated, inputs)[0].Clone();
  for (int64_t k = 0; k < 12; ++k) {
    EXPECT_EQ(y.At(k), y.At(12 + k));
    EXPECT_EQ(y.At(k), y.At(36 + k));
  }
}

}  // namespace
}  // namespace onnxtrain
