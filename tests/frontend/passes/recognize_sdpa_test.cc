// Recognize: scaled_dot_product_attention as the exporters of PyTorch 2 write it.
#include <cmath>

#include "frontend/passes/differentiate.h"
#include "frontend/passes/recognize.h"
#include "tests/frontend/passes/recognize_testing.h"

namespace onnxtrain {
namespace {

constexpr std::string_view kQkv = "feed %q: f32[2,2,3,4], feed %k: f32[2,2,5,4], feed %v: f32[2,2,5,6]";

std::string WithMask(std::string_view mask) { return StrCat(kQkv, ", feed %mask: ", mask); }

std::string Numbers() {
  return Constants({{"root", "0.70710677"}, {"zero", "0"}, {"inf", "-inf"}, {"least", "-3.4028235e+38"}}) +
         "%factor: f32[1] = Constant() {value=f32[1](0.70710677)}; ";
}

// √scale times queries and transposed keys, as both exporters write it.
constexpr std::string_view kScores =
    "%t: f32[2,2,4,5] = Transpose(%k) {perm=[0, 1, 3, 2]}; %qs: f32[2,2,3,4] = Mul(%q, %factor); "
    "%ks: f32[2,2,4,5] = Mul(%t, %factor); %a: f32[2,2,3,5] = MatMul(%qs, %ks) {trans_a=0, trans_b=0}; ";
constexpr std::string_view kGuard =
    "%p: f32[2,2,3,5] = Softmax(%s) {axis=3}; %n: bool[2,2,3,5] = IsNaN(%p); "
    "%g: f32[2,2,3,5] = Where(%n, %zero, %p); ";
constexpr std::string_view kProduct = "%y: f32[2,2,3,6] = MatMul(%g, %v) {trans_a=0, trans_b=0}; %y";

TEST(RecognizeSdpa, GuardsAgainstQueriesWithoutKeys) {
  const auto with = [](std::string_view scores) { return StrCat(kScores, scores, kGuard, kProduct); };
  const std::string bool_mask = WithMask("bool[2,1,1,5]"), float_mask = WithMask("f32[2,1,3,5]");
  const std::string chosen = with("%w: f32[2,1,1,5] = Where(%mask, %zero, %inf); %s: f32[2,2,3,5] = Add(%a, %w); ");
  const std::string added = with("%s: f32[2,2,3,5] = Add(%a, %mask); ");
  const std::string filled = with("%s: f32[2,2,3,5] = Where(%mask, %a, %inf); ");
  const std::string finite = with("%s: f32[2,2,3,5] = Where(%mask, %a, %least); ");
  const std::string read = StrCat(kScores, "%s: f32[2,2,3,5] = Add(%a, %mask); ", kGuard, kProduct, ", %p");
  const std::string ones =
      StrCat(kScores, "%s: f32[2,2,3,5] = Add(%a, %mask); %one: f32[] = Constant() {value=f32[](1)}; ",
             "%p: f32[2,2,3,5] = Softmax(%s) {axis=3}; %n: bool[2,2,3,5] = IsNaN(%p); "
             "%g: f32[2,2,3,5] = Where(%n, %one, %p); ",
             kProduct);
  const RecognizeCase kCases[] = {
      {"a boolean mask made additive", bool_mask, chosen, "Attention 1"},
      {"an additive mask", float_mask, added, "Attention 1"},
      {"scores chosen by a mask", bool_mask, filled, "Attention 1"},
      {"scores replaced by the least number", bool_mask, finite, "Attention 1"},
      {"probabilities that somebody reads", float_mask, read, ""},
      {"a guard that gives ones", float_mask, ones, ""},
  };
  for (const RecognizeCase& c : kCases) CheckRecognized(c, Numbers());
}

// The mask hides every key from the queries of the first sample: zeros, before and after.
TEST(RecognizeSdpa, QueriesWithoutKeysGiveZeros) {
  const Graph graph = MustParse(GraphText(
      WithMask("f32[2,1,1,5]"), StrCat(Numbers(), kScores, "%s: f32[2,2,3,5] = Add(%a, %mask); ", kGuard, kProduct)));
  auto inputs = RandomInputs(graph);
  for (int i = 0; i < 5; ++i) inputs.at("mask").Set(i, -INFINITY);
  const Graph canonical = Canonicalize(graph).value();
  EXPECT_NE(Print(canonical).find("= Attention("), std::string::npos);
  const HostTensor before = MustRun(graph, inputs)[0], after = MustRun(canonical, inputs)[0];
  ExpectNear(before, after, 1e-5);
  for (int i = 0; i < after.size() / 2; ++i) ASSERT_EQ(after.At(i), 0);
}

// Keys whose heads are merged with the batch while they are transposed, and a mask per key that is expanded to the
// scores: the operands are those of before, without a copy.
TEST(RecognizeSdpa, KeysAndMaskWithoutCopies) {
  const Graph graph = MustParse(GraphText(
      WithMask("bool[2,1,1,5]"),
      Numbers() +
          "%m: f32[4,5,4] = Reshape(%k) {shape=[4, 5, 4]}; %mt: f32[4,4,5] = Transpose(%m) {perm=[0, 2, 1]}; "
          "%t: f32[2,2,4,5] = Reshape(%mt) {shape=[2, 2, 4, 5]}; %qs: f32[2,2,3,4] = Mul(%q, %factor); "
          "%ks: f32[2,2,4,5] = Mul(%t, %factor); %a: f32[2,2,3,5] = MatMul(%qs, %ks) {trans_a=0, trans_b=0}; "
          "%e: bool[2,2,3,5] = Expand(%mask) {shape=[2, 2, 3, 5]}; %w: f32[2,2,3,5] = Where(%e, %zero, %inf); "
          "%s: f32[2,2,3,5] = Add(%a, %w); " +
          std::string(kGuard) + std::string(kProduct)));
  const Graph canonical = Canonicalize(graph).value();
  EXPECT_EQ(Print(canonical),
            GraphText(WithMask("bool[2,1,1,5]"),
                      "%zero: f32[] = Constant() {value=f32[](0)}; %inf: f32[] = Constant() {value=f32[](-inf)}; "
                      "%6: f32[2,1,1,5] = Where(%mask, %zero, %inf); "
                      "%y: f32[2,2,3,6] = Attention(%q, %k, %v, %6) {ratio=0.0, scale=0.4999999828857291, "
                      "softcap=0.0, stream=0}; %y"));
  ExpectSameNumbers(graph, canonical, 1e-4);
}

// One head of keys and values serves two heads of queries.
TEST(RecognizeSdpa, SharedHeads) {
  constexpr std::string_view inputs = "feed %q: f32[2,4,3,4], feed %kv: f32[2,2,5,4]";
  const RecognizeCase shared = {
      "repeated by Expand", inputs,
      "%u: f32[2,2,1,5,4] = Reshape(%kv) {shape=[2, 2, 1, 5, 4]}; %e: f32[2,2,2,5,4] = Expand(%u) {shape=[2, 2, 2, 5, "
      "4]}; %r: f32[2,4,5,4] = Reshape(%e) {shape=[2, 4, 5, 4]}; %t: f32[2,4,4,5] = Transpose(%r) {perm=[0, 1, 3, 2]}; "
      "%a: f32[2,4,3,5] = MatMul(%q, %t) {trans_a=0, trans_b=0}; %p: f32[2,4,3,5] = Softmax(%a) {axis=3}; "
      "%y: f32[2,4,3,4] = MatMul(%p, %r) {trans_a=0, trans_b=0}; %y",
      "Attention 1"};
  CheckRecognized(shared);
  // All heads of queries read the same keys, or values: the products broadcast. Short rows of scores stay.
  const std::string scores =
      "%a: f32[2,4,9,5] = MatMul(%q, %k) {trans_a=0, trans_b=1}; %p: f32[2,4,9,5] = Softmax(%a) {axis=3}; ";
  const std::string values = scores + "%y: f32[2,4,9,6] = MatMul(%p, %v) {trans_a=0, trans_b=0}; %y";
  CheckRecognized({"one head of keys and values", "feed %q: f32[2,4,9,4], feed %k: f32[2,1,5,4], feed %v: f32[2,1,5,6]",
                   values, "Attention 1"});
  CheckRecognized({"one head of values", "feed %q: f32[2,4,9,4], feed %k: f32[2,4,5,4], feed %v: f32[2,1,5,6]", values,
                   "Attention 1"});
}

// What tf2onnx writes for Keras: heads merged with the batch around the products, and masks as sums of products.
TEST(RecognizeSdpa, ExportsOfKeras) {
  const std::string inputs = "feed %q: f32[4,8,3], feed %k: f32[4,8,5], feed %v: f32[4,5,6], feed %mask: bool[2,1,1,5]";
  const std::string scores =
      "%a: f32[4,3,5] = MatMul(%q, %k) {trans_a=1, trans_b=0}; %r: f32[2,2,3,5] = Reshape(%a) {shape=[2, 2, 3, 5]}; "
      "%m: f32[2,2,3,5] = Mul(%r, %root); ";
  const std::string product =
      "%p: f32[2,2,3,5] = Softmax(%s) {axis=3}; %u: f32[4,3,5] = Reshape(%p) {shape=[4, 3, 5]}; "
      "%y: f32[4,3,6] = MatMul(%u, %v) {trans_a=0, trans_b=0}; %y";
  const std::string chosen = scores +
                             "%c: f32[2,1,1,5] = Cast(%mask) {to=\"f32\"}; %x: f32[2,2,3,5] = Mul(%c, %m); "
                             "%n: bool[2,1,1,5] = Not(%mask); %d: f32[2,1,1,5] = Cast(%n) {to=\"f32\"}; "
                             "%f: f32[2,1,1,5] = Mul(%least, %d); %s: f32[2,2,3,5] = Add(%x, %f); " +
                             product;
  const std::string constant = scores +
                               "%c: f32[1,5] = Constant() {value=f32[1,5](1, 1, 0, 1, 0)}; "
                               "%f: f32[1,5] = Constant() {value=f32[1,5](0, 0, -1e+10, 0, -1e+10)}; "
                               "%x: f32[2,2,3,5] = Mul(%c, %m); %s: f32[2,2,3,5] = Add(%x, %f); " +
                               product;
  const std::string other = scores +
                            "%c: f32[1,5] = Constant() {value=f32[1,5](1, 1, 0, 1, 2)}; "
                            "%f: f32[1,5] = Constant() {value=f32[1,5](0, 0, -1e+10, 0, -1e+10)}; "
                            "%x: f32[2,2,3,5] = Mul(%c, %m); %s: f32[2,2,3,5] = Add(%x, %f); " +
                            product;
  const std::string biased = scores + "%s: f32[2,2,3,5] = Add(%m, %mask_of_heads); " + product;
  const RecognizeCase kCases[] = {
      {"a mask that is fed", inputs, chosen, "Attention 1"},
      {"a mask of constants", inputs, constant, "Attention 1"},
      {"a bias per head", inputs, biased, "Attention 1"},
      {"factors that are no choice", inputs, other, ""},
  };
  for (const RecognizeCase& c : kCases)
    CheckRecognized(c, Numbers() +
                           "%mask_of_heads: f32[2,1,1] = Constant() "
                           "{value=f32[2,1,1](0, 1)}; ");
}

// Distances per head (ALiBi), added where the heads are merged with the batch, and a mask, added where they are not, as
// in BLOOM.
TEST(RecognizeSdpa, AddsToScoresInTwoForms) {
  const std::string inputs =
      "feed %q: f32[4,3,8], feed %k: f32[4,5,8], feed %v: f32[4,5,6], feed %mask: f32[2,1,3,5], ";
  const std::string body =
      "%a: f32[4,3,5] = MatMul(%q, %k) {trans_a=0, trans_b=1}; %m: f32[4,3,5] = Mul(%a, %root); "
      "%b: f32[4,3,5] = Add(%m, %distances); %r: f32[2,2,3,5] = Reshape(%b) {shape=[2, 2, 3, 5]}; "
      "%s: f32[2,2,3,5] = Add(%r, %mask); %p: f32[2,2,3,5] = Softmax(%s) {axis=3}; "
      "%u: f32[4,3,5] = Reshape(%p) {shape=[4, 3, 5]}; %y: f32[4,3,6] = MatMul(%u, %v) {trans_a=0, trans_b=0}; %y";
  for (const std::string_view type : {"f32[4,1,5]", "f32[1,1,5]", "f32[4,3,5]", "f32[5]"}) {
    const std::string all = StrCat(inputs, "feed %distances: ", type);
    CheckRecognized({type, all, body, "Attention 1"}, Numbers());
  }
}

// Dropout of probabilities, which PyTorch writes behind its guard in training mode, with the mask that it has by
// itself.
TEST(RecognizeSdpa, DropsProbabilities) {
  const std::string inputs = StrCat(WithMask("f32[2,1,3,5]"), ", feed %key: u32[4]");
  const auto with = [](std::string_view dropped, std::string_view rest) {
    return StrCat(kScores, "%s: f32[2,2,3,5] = Add(%a, %mask); ", kGuard, dropped, rest);
  };
  const std::string drop = "%d: f32[2,2,3,5] = Dropout(%g, %key) {ratio=0.25, stream=11}; ";
  const std::string product = "%y: f32[2,2,3,6] = MatMul(%d, %v) {trans_a=0, trans_b=0}; %y";
  const std::string merged_inputs = "feed %q: f32[4,8,3], feed %k: f32[4,8,5], feed %v: f32[4,5,6], feed %key: u32[4]";
  const std::string merged =
      "%a: f32[4,3,5] = MatMul(%q, %k) {trans_a=1, trans_b=0}; %s: f32[2,2,3,5] = Reshape(%a) {shape=[2, 2, 3, 5]}; "
      "%g: f32[2,2,3,5] = Softmax(%s) {axis=3}; " +
      drop +
      "%u: f32[4,3,5] = Reshape(%d) {shape=[4, 3, 5]}; "
      "%y: f32[4,3,6] = MatMul(%u, %v) {trans_a=0, trans_b=0}; %y";
  const std::string alone = with(drop, product);
  const std::string read = with(drop, StrCat(product, ", %d"));
  const RecognizeCase kCases[] = {
      {"behind the guard", inputs, alone, "Attention 1"},
      {"heads merged with the batch", merged_inputs, merged, "Attention 1"},
      {"read by somebody else", inputs, read, ""},
  };
  for (const RecognizeCase& c : kCases) CheckRecognized(c, Numbers());
}

TEST(RecognizeSdpa, CapsScores) {
  const std::string numbers = Numbers() + Constants({{"cap", "5"}, {"other", "-3"}});
  const auto with = [](std::string_view scores) {
    return StrCat(kScores, scores, "%g: f32[2,2,3,5] = Softmax(%s) {axis=3}; ", kProduct);
  };
  const std::string capped =
      "%b: f32[2,2,3,5] = Div(%a, %cap); %h: f32[2,2,3,5] = Tanh(%b); %c: f32[2,2,3,5] = Mul(%h, %cap); ";
  const std::string masked = with(StrCat(capped, "%s: f32[2,2,3,5] = Add(%c, %mask); "));
  const std::string unequal =
      with("%b: f32[2,2,3,5] = Mul(%a, %root); %h: f32[2,2,3,5] = Tanh(%b); %s: f32[2,2,3,5] = Mul(%h, %other); ");
  const std::string inside =
      with("%b: f32[2,2,3,5] = Add(%a, %mask); %h: f32[2,2,3,5] = Tanh(%b); %s: f32[2,2,3,5] = Mul(%h, %cap); ");
  const std::string mask = WithMask("f32[2,1,3,5]");
  const RecognizeCase kCases[] = {
      {"before the mask", mask, masked, "Attention 1"},
      {"any factors", kQkv, unequal, "Attention 1"},
      {"a mask inside", mask, inside, ""},
  };
  for (const RecognizeCase& c : kCases) CheckRecognized({c.what, c.inputs, c.before, c.found}, numbers);
}

// Attention by cosines has a learned temperature for each head (SwinV2, XCiT).
TEST(RecognizeSdpa, ScalesHeads) {
  const auto with = [](std::string_view scores) {
    return StrCat(kScores, scores, "%g: f32[2,2,3,5] = Softmax(%s) {axis=3}; ", kProduct);
  };
  const std::string heads = StrCat(WithMask("f32[2,1,3,5]"), ", param %u: f32[2,1,1]");
  const std::string all = StrCat(kQkv, ", param %u: f32[1]"), keys = StrCat(kQkv, ", param %u: f32[1,5]");
  const std::string scaled = with("%s: f32[2,2,3,5] = Mul(%a, %u); ");
  const std::string masked =
      with("%r: f32[2,2,3,5] = Mul(%a, %root); %b: f32[2,2,3,5] = Mul(%u, %r); %s: f32[2,2,3,5] = Add(%b, %mask); ");
  const std::string mask_inside = with("%b: f32[2,2,3,5] = Add(%a, %mask); %s: f32[2,2,3,5] = Mul(%b, %u); ");
  const std::string clipped =
      with("%l: f32[2,1,1] = Clip(%u) {min=-1.0, max=1.0}; %e: f32[2,1,1] = Exp(%l); %s: f32[2,2,3,5] = Mul(%a, %e); ");
  const RecognizeCase kCases[] = {
      {"before the mask", heads, masked, "Attention 1"},
      {"computed from what is learned", heads, clipped, "Attention 1"},
      {"one for all heads", all, scaled, "Attention 1"},
      {"numbers per key are no scale", keys, scaled, ""},
      {"a mask inside", heads, mask_inside, ""},
  };
  for (const RecognizeCase& c : kCases) CheckRecognized(c, Numbers());
}

// The gradients of a weighted sum of %y with respect to %q, %k, %v and what else is a parameter.
std::vector<HostTensor> GradientsOf(Graph graph, const std::map<std::string, HostTensor>& inputs) {
  const ValueId y = graph.outputs()[0].value;
  Builder b(&graph);
  HostTensor weights(graph.type(y));
  for (int64_t i = 0; i < weights.size(); ++i) weights.Set(i, std::sin(static_cast<double>(1 + i)));
  const ValueId loss = ReduceSum(b.Wrap(y) * b.Constant(std::move(weights)), {}, false).id();
  std::vector<ValueId> wrt;
  for (const GraphInput& input : graph.inputs()) {
    if (input.kind == InputKind::kParameter) wrt.push_back(input.value);
  }
  graph.ClearOutputs();
  const auto gradients = Differentiate(&graph, loss, wrt);
  EXPECT_TRUE(gradients.ok()) << gradients.status();
  for (const auto& [v, gradient] : *gradients) graph.AddOutput(StrCat("d", v), gradient);
  return MustRun(Dce(graph), inputs);
}

// Scores that are replaced pass no gradient. A query whose keys are all hidden still gives the mean of the values.
TEST(RecognizeSdpa, QueriesWithoutKeysPassTheSameGradients) {
  const std::string inputs =
      "param %q: f32[2,2,3,4], param %k: f32[2,2,5,4], param %v: f32[2,2,5,6], param %bias: f32[2,3,5], "
      "feed %mask: bool[2,1,3,5], feed %past: bool[3,5]";
  const auto with = [](std::string_view scores) {
    return StrCat(kScores, scores, "%g: f32[2,2,3,5] = Softmax(%s) {axis=3}; ", kProduct);
  };
  const std::string kept = with("%s: f32[2,2,3,5] = Where(%mask, %a, %least); ");
  const std::string twice =
      with("%b: f32[2,2,3,5] = Where(%past, %a, %least); %s: f32[2,2,3,5] = Where(%mask, %b, %least); ");
  const std::string biased = with("%b: f32[2,2,3,5] = Add(%a, %bias); %s: f32[2,2,3,5] = Where(%mask, %b, %least); ");
  const std::string transposed = StrCat(
      "%l: f32[2,3,2,4] = Reshape(%q) {shape=[2, 3, 2, 4]}; %u: f32[2,2,3,4] = Transpose(%l) {perm=[0, 2, 1, 3]}; "
      "%a: f32[2,2,3,5] = MatMul(%u, %k) {trans_a=0, trans_b=1}; %s: f32[2,2,3,5] = Where(%mask, %a, %least); "
      "%g: f32[2,2,3,5] = Softmax(%s) {axis=3}; ",
      kProduct);
  for (const std::string& body : {kept, twice, biased, transposed}) {
    const Graph graph = CleanUp(MustParse(GraphText(inputs, Numbers() + body))).value();
    std::map<std::string, int> found;
    const Graph after = CleanUp(Recognize(graph, &found).value()).value();
    ASSERT_EQ(FoundCounts(found), "Attention 1") << body;
    auto values = RandomInputs(graph);
    for (int64_t i = 0; i < values.at("mask").size(); ++i)
      values.at("mask").SetInt(i, i % 15 < 5 || i % 4 == 0 ? 0 : 1);
    if (values.contains("past")) {
      for (int64_t i = 0; i < 15; ++i)
        values.at("past").SetInt(i, i % 5 == 1 || i < 10 ? 1 : 0);  // hides a row with mask
    }
    ExpectNear(MustRun(graph, values)[0], MustRun(after, values)[0], 1e-5);
    const auto gradients = GradientsOf(graph, values), same = GradientsOf(after, values);
    for (size_t i = 0; i < gradients.size(); ++i) ExpectNear(gradients[i], same[i], 1e-5, StrCat(i, " of ", body));
  }
}

// Exports of GPT-2 replace the scores of later keys and add the mask of padding.
TEST(RecognizeSdpa, TakesFillsBesideAddedMasks) {
  const std::string inputs = StrCat(kQkv, ", feed %mask: bool[3,5], feed %keep: f32[2,1,1,5]");
  const std::string body =
      StrCat(kScores, "%b: f32[2,2,3,5] = Where(%mask, %a, %least); %s: f32[2,2,3,5] = Add(%b, %keep); ",
             "%g: f32[2,2,3,5] = Softmax(%s) {axis=3}; ", kProduct);
  std::map<std::string, int> found;
  EXPECT_TRUE(Recognize(CleanUp(MustParse(GraphText(inputs, Numbers() + body))).value(), &found).ok());
  EXPECT_EQ(FoundCounts(found), "Attention 1");
}

// A mask of constants that leaves every query a key costs nothing.
TEST(RecognizeSdpa, KeepsQueriesOfConstantMasks) {
  const std::string body =
      StrCat(kScores,
             "%past: bool[3,5] = Constant() {value=bool[3,5](1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0)}; "
             "%s: f32[2,2,3,5] = Where(%past, %a, %least); %g: f32[2,2,3,5] = Softmax(%s) {axis=3}; ",
             kProduct);
  const std::string canonical = Print(Canonicalize(MustParse(GraphText(kQkv, Numbers() + body))).value());
  EXPECT_NE(canonical.find("= Attention(%q, %k, %v,"), std::string::npos) << canonical;
  EXPECT_EQ(canonical.find("Where"), std::string::npos) << canonical;
}

// What jax2onnx writes: the mask behind the softmax, whose rows then sum to 1 again, or have zeros alone.
TEST(RecognizeSdpa, MasksProbabilities) {
  const auto with = [](std::string_view mask) {
    return StrCat(kScores, mask,
                  "%p: f32[2,2,3,5] = Softmax(%a) {axis=3}; %m: f32[2,2,3,5] = Mul(%p, %f); "
                  "%sum: f32[2,2,3,1] = ReduceSum(%m) {axes=[3], keepdims=1}; "
                  "%some: bool[2,2,3,1] = Greater(%sum, %zero); %d: f32[2,2,3,1] = Where(%some, %sum, %one); "
                  "%r: f32[2,2,3,5] = Div(%m, %d); %g: f32[2,2,3,5] = Where(%some, %r, %zero); ",
                  kProduct);
  };
  const std::string fed = with("%f: f32[2,1,1,5] = Cast(%mask) {to=\"f32\"}; ");
  const std::string constant = with("%f: f32[1,5] = Constant() {value=f32[1,5](1, 1, 0, 1, 0)}; ");
  const std::string other = with("%f: f32[1,5] = Constant() {value=f32[1,5](1, 1, 0, 1, 2)}; ");
  const std::string numbers = with("%f: f32[2,1,1,5] = Mul(%mask, %root); ");
  const std::string bool_mask = WithMask("bool[2,1,1,5]"), float_mask = WithMask("f32[2,1,1,5]");
  const RecognizeCase kCases[] = {
      {"a mask that is fed", bool_mask, fed, "Attention 1"},
      {"a mask of constants", kQkv, constant, "Attention 1"},
      {"constants that are no choice", kQkv, other, ""},
      {"numbers that may be no choice", float_mask, numbers, ""},
  };
  const std::string constants = Numbers() + Constants({{"one", "1"}});
  for (const RecognizeCase& c : kCases) CheckRecognized(c, constants);
  const Graph graph = MustParse(GraphText(bool_mask, constants + fed));
  auto inputs = RandomInputs(graph);
  for (int i = 0; i < 5; ++i) inputs.at("mask").SetInt(i, 0);
  const HostTensor after = MustRun(Canonicalize(graph).value(), inputs)[0];
  ExpectNear(MustRun(graph, inputs)[0], after, 1e-5);
  for (int i = 0; i < after.size() / 2; ++i) ASSERT_EQ(after.At(i), 0);
}

// Constants that were rounded to bf16: the graph means GELU, as precisely as its numbers.
TEST(RecognizeRounded, Gelu) {
  const auto gelu = [](std::string_view divisor) {
    return StrCat("%root: f32[] = Constant() {value=f32[](", divisor,
                  ")}; %one: f32[] = Constant() {value=f32[](1)}; %half: f32[] = Constant() {value=f32[](0.5)}; "
                  "%a: f32[2,3] = Div(%x, %root); %b: f32[2,3] = Erf(%a); %c: f32[2,3] = Add(%b, %one); "
                  "%d: f32[2,3] = Mul(%x, %half); %e: f32[2,3] = Mul(%d, %c); %e");
  };
  const auto count = [&](std::string_view divisor) {
    std::map<std::string, int> found;
    const Graph graph = CleanUp(MustParse(GraphText("feed %x: f32[2,3]", gelu(divisor)))).value();
    EXPECT_TRUE(Recognize(graph, &found).ok());
    return found["Gelu"];
  };
  EXPECT_EQ(count("1.4140625"), 1);  // of bf16
  EXPECT_EQ(count("1.4142135"), 1);
  EXPECT_EQ(count("1.4141"), 0);  // of no type
  EXPECT_EQ(count("1.4375"), 0);  // of bf16, but another number
}

std::string OnlyMiss(std::string_view inputs, const std::string& body) {
  const auto misses = FindNearMisses(Canonicalize(MustParse(GraphText(inputs, Numbers() + body))).value());
  return misses.size() == 1 ? misses[0] : StrCat(misses.size(), " near misses");
}

TEST(NearMisses, NameWhatIsInTheWay) {
  const std::string scores(kScores), product(kProduct);
  const std::string end = "%g: f32[2,2,3,5] = Softmax(%s) {axis=3} @\"weights\"; ";
  EXPECT_EQ(OnlyMiss(kQkv, scores + "%s: f32[2,2,3,5] = Sigmoid(%a) @\"gate\"; " + end + product),
            "Attention: MatMul: Sigmoid 'gate' is between its products");
  EXPECT_EQ(OnlyMiss(kQkv, scores + "%s: f32[2,2,3,5] = Mul(%a, %root); " + end + product + ", %g"),
            "Attention: MatMul: the result of Softmax 'weights' is an output");
  EXPECT_EQ(OnlyMiss(WithMask("bool[2,1,1,5]"), scores +
                                                    "%some: f32[] = Constant() {value=f32[](-5)}; "
                                                    "%s: f32[2,2,3,5] = Where(%mask, %a, %some); " +
                                                    end + product),
            "Attention: MatMul: somebody else reads its scores, or both forms differ in value");
  EXPECT_EQ(OnlyMiss("feed %q: f32[2,1,3,4], feed %k: f32[2,2,5,4], feed %v: f32[2,2,5,6]",
                     "%s: f32[2,2,3,5] = MatMul(%q, %k) {trans_a=0, trans_b=1}; " + end + product),
            "Attention: MatMul: queries, keys and values have different heads");
  EXPECT_EQ(OnlyMiss(kQkv, scores + "%s: f32[2,2,3,5] = Mul(%a, %root); " + end + product), "0 near misses");
  EXPECT_EQ(
      OnlyMiss("feed %x: f32[4,8]",
               "%m: f32[1,8] = ReduceMean(%x) {axes=[0], keepdims=1}; %c: f32[4,8] = Sub(%x, %m); %p: f32[4,8] = "
               "Mul(%c, %c); %v: f32[1,8] = ReduceMean(%p) {axes=[0], keepdims=1}; %e: f32[1,8] = Add(%v, %root); "
               "%d: f32[1,8] = Sqrt(%e) @\"deviation\"; %y: f32[4,8] = Div(%c, %d); %y"),
      "LayerNorm or RmsNorm: Sqrt 'deviation': its mean is not over the last axes");
  EXPECT_EQ(OnlyMiss("feed %x: f32[4,8]", "%e: f32[4,8] = Erf(%x) @\"erf\"; %y: f32[4,8] = Mul(%e, %x); %y"),
            "Gelu: Erf 'erf': no form of it has the value around this node");
}

}  // namespace
}  // namespace onnxtrain
