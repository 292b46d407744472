// Recognize: what exporters write, as text, and the composite that comes out, with the same numbers from both.
#include "tests/frontend/passes/recognize_testing.h"

namespace onnxtrain {
namespace {

TEST(Recognize, FunctionsOfOneNumber) {
  constexpr std::string_view x = "feed %x: f32[2,3]";
  const std::string constants = Constants({{"half", "0.5"},
                                           {"one", "1"},
                                           {"root2", "1.4142135"},
                                           {"iroot2", "0.70710677"},
                                           {"three", "3"},
                                           {"cube", "0.044715"},
                                           {"s", "0.7978846"},
                                           {"two", "2"},
                                           {"six", "6"},
                                           {"near", "0.72"}});
  const RecognizeCase kCases[] = {
      {"PyTorch: x * 0.5 * (1 + erf(x / sqrt2))", x,
       "%a: f32[2,3] = Div(%x, %root2); %b: f32[2,3] = Erf(%a); %c: f32[2,3] = Add(%b, %one); %d: f32[2,3] = Mul(%x, "
       "%c); "
       "%e: f32[2,3] = Mul(%d, %half); %e",
       "Gelu 1"},
      {"0.5 * x first", x,
       "%a: f32[2,3] = Mul(%x, %iroot2); %b: f32[2,3] = Erf(%a); %c: f32[2,3] = Add(%one, %b); %h: f32[2,3] = "
       "Mul(%half, %x); "
       "%e: f32[2,3] = Mul(%h, %c); %e",
       "Gelu 1"},
      {"0.5 * (1 + erf) first", x,
       "%a: f32[2,3] = Div(%x, %root2); %b: f32[2,3] = Erf(%a); %c: f32[2,3] = Add(%b, %one); %h: f32[2,3] = Mul(%c, "
       "%half); "
       "%e: f32[2,3] = Mul(%x, %h); %e",
       "Gelu 1"},
      {"0.5 * erf + 0.5", x,
       "%a: f32[2,3] = Div(%x, %root2); %b: f32[2,3] = Erf(%a); %c: f32[2,3] = Mul(%b, %half); %h: f32[2,3] = Add(%c, "
       "%half); "
       "%e: f32[2,3] = Mul(%h, %x); %e",
       "Gelu 1"},
      {"a wrong divisor is no Gelu", x,
       "%a: f32[2,3] = Mul(%x, %near); %b: f32[2,3] = Erf(%a); %c: f32[2,3] = Add(%b, %one); %d: f32[2,3] = Mul(%x, "
       "%c); "
       "%e: f32[2,3] = Mul(%d, %half); %e",
       ""},
      {"another factor is no Gelu", "feed %x: f32[2,3], feed %y: f32[2,3]",
       "%a: f32[2,3] = Div(%x, %root2); %b: f32[2,3] = Erf(%a); %c: f32[2,3] = Add(%b, %one); %d: f32[2,3] = Mul(%y, "
       "%c); "
       "%e: f32[2,3] = Mul(%d, %half); %e",
       ""},
      {"tanh form, cube by Pow", x,
       "%p: f32[2,3] = Pow(%x, %three); %q: f32[2,3] = Mul(%p, %cube); %r: f32[2,3] = Add(%x, %q); %t: f32[2,3] = "
       "Mul(%r, %s); "
       "%u: f32[2,3] = Tanh(%t); %v: f32[2,3] = Add(%u, %one); %h: f32[2,3] = Mul(%x, %half); %e: f32[2,3] = Mul(%h, "
       "%v); %e",
       "Gelu 1"},
      {"tanh form, x * (1 + 0.044715 x * x)", x,
       "%p: f32[2,3] = Mul(%x, %x); %q: f32[2,3] = Mul(%p, %cube); %r: f32[2,3] = Add(%q, %one); %w: f32[2,3] = "
       "Mul(%r, %x); "
       "%t: f32[2,3] = Mul(%w, %s); %u: f32[2,3] = Tanh(%t); %v: f32[2,3] = Add(%one, %u); %h: f32[2,3] = Mul(%v, %x); "
       "%e: f32[2,3] = Mul(%half, %h); %e",
       "Gelu 1"},
      {"PyTorch: Mish", x, "%a: f32[2,3] = Softplus(%x); %b: f32[2,3] = Tanh(%a); %c: f32[2,3] = Mul(%x, %b); %c",
       "Mish 1"},
      {"PyTorch: Hardswish", x,
       "%a: f32[2,3] = Add(%x, %three); %b: f32[2,3] = Clip(%a) {max=6.0, min=0.0}; %c: f32[2,3] = Div(%b, %six); "
       "%d: f32[2,3] = Mul(%x, %c); %d",
       "HardSwish 1"},
      {"Softplus", x, "%a: f32[2,3] = Exp(%x); %b: f32[2,3] = Add(%a, %one); %c: f32[2,3] = Log(%b); %c", "Softplus 1"},
      {"Sigmoid", x,
       "%a: f32[2,3] = Neg(%x); %b: f32[2,3] = Exp(%a); %c: f32[2,3] = Add(%b, %one); %d: f32[2,3] = Div(%one, %c); %d",
       "Sigmoid 1"},
      {"Swish stays", x, "%a: f32[2,3] = Sigmoid(%x); %b: f32[2,3] = Mul(%x, %a); %b", ""},
      {"two in a row", x,
       "%a: f32[2,3] = Softplus(%x); %b: f32[2,3] = Tanh(%a); %c: f32[2,3] = Mul(%x, %b); %d: f32[2,3] = Softplus(%c); "
       "%e: f32[2,3] = Tanh(%d); %f: f32[2,3] = Mul(%e, %c); %f",
       "Mish 2"},
  };
  for (const RecognizeCase& c : kCases) CheckRecognized(c, constants);
}

TEST(Recognize, Normalizations) {
  constexpr std::string_view x = "feed %x: f32[2,3,8]", xw = "feed %x: f32[2,3,8], param %g: f32[8], param %b: f32[8]";
  const std::string constants =
      Constants({{"two", "2"}, {"eps", "1e-05"}, {"one", "1"}, {"large", "0.5"}, {"zero", "0"}});
  constexpr std::string_view kPlain =
      "%m: f32[2,3,1] = ReduceMean(%x) {axes=[2], keepdims=1}; %c: f32[2,3,8] = Sub(%x, %m); %p: f32[2,3,8] = Pow(%c, "
      "%two); "
      "%v: f32[2,3,1] = ReduceMean(%p) {axes=[2], keepdims=1}; %e: f32[2,3,1] = Add(%v, %eps); %s: f32[2,3,1] = "
      "Sqrt(%e); "
      "%n: f32[2,3,8] = Div(%c, %s); ";
  const std::string affine = StrCat(kPlain, "%t: f32[2,3,8] = Mul(%n, %g); %y: f32[2,3,8] = Add(%t, %b); %y");
  const std::string scaled = StrCat(kPlain, "%t: f32[2,3,8] = Mul(%g, %n); %t");
  const std::string plain = StrCat(kPlain, "%n");
  const std::string residual =
      StrCat(kPlain, "%t: f32[2,3,8] = Mul(%n, %g); %y: f32[2,3,8] = Add(%t, %b); %z: f32[2,3,8] = Add(%x, %y); %z");
  const RecognizeCase kCases[] = {
      {"PyTorch", xw, affine, "LayerNorm 1"},
      {"root mean square of transformers' Llama", xw,
       "%p: f32[2,3,8] = Pow(%x, %two); %v: f32[2,3,1] = ReduceMean(%p) {axes=[2], keepdims=1}; "
       "%e: f32[2,3,1] = Add(%v, %eps); %s: f32[2,3,1] = Sqrt(%e); %r: f32[2,3,1] = Reciprocal(%s); "
       "%n: f32[2,3,8] = Mul(%x, %r); %t: f32[2,3,8] = Mul(%g, %n); %t",
       "RmsNorm 1"},
      {"root mean square without scale", x,
       "%p: f32[2,3,8] = Mul(%x, %x); %v: f32[2,3,1] = ReduceMean(%p) {axes=[2], keepdims=1}; "
       "%e: f32[2,3,1] = Add(%v, %eps); %s: f32[2,3,1] = Sqrt(%e); %n: f32[2,3,8] = Div(%x, %s); %n",
       "RmsNorm 1"},
      {"scale alone", xw, scaled, "LayerNorm 1"},
      {"without affine", x, plain, "LayerNorm 1"},
      {"with a residual", xw, residual, "LayerNorm 1"},
      {"TensorFlow: rsqrt times scale, bias minus mean", xw,
       "%m: f32[2,3,1] = ReduceMean(%x) {axes=[2], keepdims=1}; %c: f32[2,3,8] = Sub(%x, %m); %p: f32[2,3,8] = Mul(%c, "
       "%c); "
       "%v: f32[2,3,1] = ReduceMean(%p) {axes=[2], keepdims=1}; %e: f32[2,3,1] = Add(%v, %eps); %s: f32[2,3,1] = "
       "Sqrt(%e); "
       "%r: f32[2,3,1] = Reciprocal(%s); %rg: f32[2,3,8] = Mul(%r, %g); %xr: f32[2,3,8] = Mul(%x, %rg); "
       "%mr: f32[2,3,8] = Mul(%m, %rg); %bm: f32[2,3,8] = Sub(%b, %mr); %y: f32[2,3,8] = Add(%xr, %bm); %y",
       "LayerNorm 1"},
      {"JAX: mean of squares minus square of mean, not below zero", xw,
       "%m: f32[2,3,1] = ReduceMean(%x) {axes=[2], keepdims=1}; %c: f32[2,3,8] = Sub(%x, %m); "
       "%p: f32[2,3,8] = Mul(%x, %x); %q: f32[2,3,1] = ReduceMean(%p) {axes=[2], keepdims=1}; "
       "%mm: f32[2,3,1] = Mul(%m, %m); %d: f32[2,3,1] = Sub(%q, %mm); %v: f32[2,3,1] = Max(%d, %zero); "
       "%e: f32[2,3,1] = Add(%v, %eps); %s: f32[2,3,1] = Sqrt(%e); %n: f32[2,3,8] = Div(%c, %s); "
       "%t: f32[2,3,8] = Mul(%n, %g); %y: f32[2,3,8] = Add(%t, %b); %y",
       "LayerNorm 1"},
      {"over two axes", "feed %x: f32[2,3,8], param %g: f32[3,8], param %b: f32[1,3,8]",
       "%m: f32[2,1,1] = ReduceMean(%x) {axes=[1, 2], keepdims=1}; %c: f32[2,3,8] = Sub(%x, %m); %p: f32[2,3,8] = "
       "Mul(%c, %c); "
       "%v: f32[2,1,1] = ReduceMean(%p) {axes=[1, 2], keepdims=1}; %e: f32[2,1,1] = Add(%v, %eps); %s: f32[2,1,1] = "
       "Sqrt(%e); "
       "%n: f32[2,3,8] = Div(%c, %s); %t: f32[2,3,8] = Mul(%n, %g); %y: f32[2,3,8] = Add(%t, %b); %y",
       "LayerNorm 1"},
      {"a scale that is fed stays outside", "feed %x: f32[2,3,8], feed %g: f32[8], param %b: f32[8]", affine,
       "LayerNorm 1"},
      {"epsilon outside the root is no LayerNorm", x,
       "%m: f32[2,3,1] = ReduceMean(%x) {axes=[2], keepdims=1}; %c: f32[2,3,8] = Sub(%x, %m); %p: f32[2,3,8] = Mul(%c, "
       "%c); "
       "%v: f32[2,3,1] = ReduceMean(%p) {axes=[2], keepdims=1}; %s: f32[2,3,1] = Sqrt(%v); %e: f32[2,3,1] = Add(%s, "
       "%eps); "
       "%n: f32[2,3,8] = Div(%c, %e); %n",
       ""},
      {"leading axes are no LayerNorm", x,
       "%m: f32[2,1,8] = ReduceMean(%x) {axes=[1], keepdims=1}; %c: f32[2,3,8] = Sub(%x, %m); %p: f32[2,3,8] = Mul(%c, "
       "%c); "
       "%v: f32[2,1,8] = ReduceMean(%p) {axes=[1], keepdims=1}; %e: f32[2,1,8] = Add(%v, %eps); %s: f32[2,1,8] = "
       "Sqrt(%e); "
       "%n: f32[2,3,8] = Div(%c, %s); %n",
       ""},
      {"Softmax", x,
       "%m: f32[2,3,1] = ReduceMax(%x) {axes=[2], keepdims=1}; %c: f32[2,3,8] = Sub(%x, %m); %e: f32[2,3,8] = Exp(%c); "
       "%s: f32[2,3,1] = ReduceSum(%e) {axes=[2], keepdims=1}; %y: f32[2,3,8] = Div(%e, %s); %y",
       "Softmax 1"},
      {"Log(Softmax)", x, "%s: f32[2,3,8] = Softmax(%x) {axis=1}; %y: f32[2,3,8] = Log(%s); %y", "LogSoftmax 1"},
      {"x - log(sum(exp(x)))", x,
       "%e: f32[2,3,8] = Exp(%x); %s: f32[2,1,8] = ReduceSum(%e) {axes=[1], keepdims=1}; %l: f32[2,1,8] = Log(%s); "
       "%y: f32[2,3,8] = Sub(%x, %l); %y",
       "LogSoftmax 1"},
      {"exp(x - log(sum(exp(x))))", x,
       "%e: f32[2,3,8] = Exp(%x); %s: f32[2,1,8] = ReduceSum(%e) {axes=[1], keepdims=1}; %l: f32[2,1,8] = Log(%s); "
       "%d: f32[2,3,8] = Sub(%x, %l); %y: f32[2,3,8] = Exp(%d); %y",
       "Softmax 1"},
      {"exp(x - ReduceLogSumExp(x))", x,
       "%m: f32[2,1,8] = ReduceMax(%x) {axes=[1], keepdims=1}; %i: bool[2,1,8] = IsInf(%m) {detect_negative=1, "
       "detect_positive=1}; %g: f32[2,1,8] = Where(%i, %zero, %m); %c: f32[2,3,8] = Sub(%x, %g); "
       "%e: f32[2,3,8] = Exp(%c); %s: f32[2,1,8] = ReduceSum(%e) {axes=[1], keepdims=1}; %l: f32[2,1,8] = Log(%s); "
       "%z: f32[2,1,8] = Add(%l, %g); %d: f32[2,3,8] = Sub(%x, %z); %y: f32[2,3,8] = Exp(%d); %y",
       "Softmax 1"},
  };
  for (const RecognizeCase& c : kCases) CheckRecognized(c, constants);
}

TEST(Recognize, KeepsScaleBiasAndEpsilonApart) {
  const Graph graph = MustParse(
      GraphText("feed %x: f32[2,8], param %b: f32[8], param %g: f32[1,8]",
                Constants({{"eps", "1e-12"}}) +
                    "%m: f32[2,1] = ReduceMean(%x) {axes=[1], keepdims=1}; %c: f32[2,8] = Sub(%x, %m); %p: f32[2,8] = "
                    "Mul(%c, %c); "
                    "%v: f32[2,1] = ReduceMean(%p) {axes=[1], keepdims=1}; %e: f32[2,1] = Add(%v, %eps); %s: f32[2,1] "
                    "= Sqrt(%e); "
                    "%n: f32[2,8] = Div(%c, %s); %t: f32[2,8] = Mul(%n, %g); %y: f32[2,8] = Add(%t, %b); %y"));
  EXPECT_EQ(
      Print(Canonicalize(graph).value()),
      GraphText(
          "feed %x: f32[2,8], param %b: f32[8], param %g: f32[1,8]",
          "%3: f32[8] = Reshape(%g) {shape=[8]}; %y: f32[2,8], %5: f32[2,1], %6: f32[2,1] = LayerNorm(%x, %3, %b) "
          "{axis=1, epsilon=9.999999960041972e-13}; %y"));
}

TEST(Recognize, Attention) {
  constexpr std::string_view qkv = "feed %q: f32[2,2,3,4], feed %k: f32[2,2,5,4], feed %v: f32[2,2,5,6]";
  constexpr std::string_view masked =
      "feed %q: f32[2,2,3,4], feed %k: f32[2,2,5,4], feed %v: f32[2,2,5,6], feed %mask: f32[2,1,1,5]";
  constexpr std::string_view chosen =
      "feed %q: f32[2,2,3,4], feed %k: f32[2,2,5,4], feed %v: f32[2,2,5,6], feed %mask: bool[3,5]";
  const std::string constants =
      Constants({{"eight", "8"}, {"root", "0.35"}, {"least", "-3.4028235e+38"}, {"inf", "-inf"}, {"some", "-5"}});
  constexpr std::string_view kEnd =
      "%p: f32[2,2,3,5] = Softmax(%s) {axis=3}; %y: f32[2,2,3,6] = MatMul(%p, %v) {trans_a=0, trans_b=0}; %y";
  constexpr std::string_view kScores =
      "%t: f32[2,2,4,5] = Transpose(%k) {perm=[0, 1, 3, 2]}; %a: f32[2,2,3,5] = MatMul(%q, %t) {trans_a=0, "
      "trans_b=0}; ";
  auto with = [&](std::string_view middle) { return StrCat(kScores, middle, kEnd); };
  const std::string divided = with("%s: f32[2,2,3,5] = Div(%a, %eight); ");
  const std::string added = with("%d: f32[2,2,3,5] = Div(%a, %eight); %s: f32[2,2,3,5] = Add(%d, %mask); ");
  const std::string added_first = with("%d: f32[2,2,3,5] = Add(%mask, %a); %s: f32[2,2,3,5] = Mul(%d, %root); ");
  const std::string filled = with("%d: f32[2,2,3,5] = Mul(%a, %root); %s: f32[2,2,3,5] = Where(%mask, %least, %d); ");
  const std::string kept = with("%d: f32[2,2,3,5] = Mul(%a, %root); %s: f32[2,2,3,5] = Where(%mask, %d, %inf); ");
  const std::string raised = with("%d: f32[2,2,3,5] = Mul(%a, %root); %s: f32[2,2,3,5] = Where(%mask, %d, %some); ");
  const std::string shown = StrCat(kScores, "%s: f32[2,2,3,5] = Div(%a, %eight); ", kEnd, ", %p");
  const std::string unscaled = StrCat(kScores, "%s: f32[2,2,3,5] = Neg(%a); ", kEnd);
  const RecognizeCase kCases[] = {
      {"divided scores", qkv, divided, "Attention 1"},
      {"a mask added", masked, added, "Attention 1"},
      {"a mask added before scaling", masked, added_first, "Attention 1"},
      {"masked_fill", chosen, filled, "Attention 1"},
      {"where to keep", chosen, kept, "Attention 1"},
      {"a fill that is no mask", chosen, raised, ""},
      {"probabilities that somebody reads", qkv, shown, ""},
      {"other things between", qkv, unscaled, ""},
      {"scaled operands", qkv,
       "%qs: f32[2,2,3,4] = Mul(%q, %root); %t: f32[2,2,4,5] = Transpose(%k) {perm=[0, 1, 3, 2]}; %ks: f32[2,2,4,5] = "
       "Mul(%t, %root); "
       "%s: f32[2,2,3,5] = MatMul(%qs, %ks) {trans_a=0, trans_b=0}; %p: f32[2,2,3,5] = Softmax(%s) {axis=3}; "
       "%y: f32[2,2,3,6] = MatMul(%p, %v) {trans_a=0, trans_b=0}; %y",
       "Attention 1"},
      {"three axes, keys transposed with the heads", "feed %q: f32[6,3,4], feed %k: f32[5,6,4], feed %v: f32[6,5,4]",
       "%t: f32[6,4,5] = Transpose(%k) {perm=[1, 2, 0]}; %s: f32[6,3,5] = MatMul(%q, %t) {trans_a=0, trans_b=0}; "
       "%p: f32[6,3,5] = Softmax(%s) {axis=2}; %y: f32[6,3,4] = MatMul(%p, %v) {trans_a=0, trans_b=0}; %y",
       "Attention 1"},
      {"softmax over the queries", qkv,
       "%a: f32[2,2,3,5] = MatMul(%q, %k) {trans_a=0, trans_b=1}; %p: f32[2,2,3,5] = Softmax(%a) {axis=2}; "
       "%y: f32[2,2,3,6] = MatMul(%p, %v) {trans_a=0, trans_b=0}; %y",
       ""},
      {"heads that broadcast", "feed %q: f32[2,2,3,4], feed %k: f32[2,1,5,4], feed %v: f32[2,1,5,6]",
       "%a: f32[2,2,3,5] = MatMul(%q, %k) {trans_a=0, trans_b=1}; %p: f32[2,2,3,5] = Softmax(%a) {axis=3}; "
       "%y: f32[2,2,3,6] = MatMul(%p, %v) {trans_a=0, trans_b=0}; %y",
       ""},
  };
  for (const RecognizeCase& c : kCases) CheckRecognized(c, constants);
}

// What paddle2onnx writes: constants of shape [1], scales that are reshaped, queries scaled before the product.
TEST(Recognize, ExportsOfPaddle) {
  std::string constants;
  for (const auto& [name, value] : {std::pair<const char*, const char*>{"half", "0.5"},
                                    {"one", "1"},
                                    {"root2", "1.4142135"},
                                    {"three", "3"},
                                    {"six", "6"},
                                    {"two", "2"},
                                    {"eps", "1e-05"},
                                    {"scale", "0.35355338"}}) {
    StrAppend(&constants, "%", name, ": f32[1] = Constant() {value=f32[1](", value, ")}; ");
  }
  const RecognizeCase kCases[] = {
      {"gelu", "feed %x: f32[2,3]",
       "%a: f32[2,3] = Div(%x, %root2); %b: f32[2,3] = Erf(%a); %c: f32[2,3] = Add(%b, %one); %d: f32[2,3] = Mul(%x, "
       "%c); "
       "%e: f32[2,3] = Mul(%d, %half); %e",
       "Gelu 1"},
      {"hard_swish", "feed %x: f32[2,3]",
       "%a: f32[2,3] = Add(%x, %three); %b: f32[2,3] = Clip(%a) {max=6.0, min=0.0}; %c: f32[2,3] = Mul(%x, %b); "
       "%d: f32[2,3] = Div(%c, %six); %d",
       "HardSwish 1"},
      {"layer_norm over two axes", "feed %x: f32[2,3,8], param %g: f32[24], param %b: f32[24]",
       "%m: f32[2,1,1] = ReduceMean(%x) {axes=[1, 2], keepdims=1}; %c: f32[2,3,8] = Sub(%x, %m); %p: f32[2,3,8] = "
       "Pow(%c, %two); "
       "%v: f32[2,1,1] = ReduceMean(%p) {axes=[1, 2], keepdims=1}; %e: f32[2,1,1] = Add(%v, %eps); %s: f32[2,1,1] = "
       "Sqrt(%e); "
       "%gs: f32[3,8] = Reshape(%g) {shape=[3, 8]}; %bs: f32[3,8] = Reshape(%b) {shape=[3, 8]}; %n: f32[2,3,8] = "
       "Div(%c, %s); "
       "%t: f32[2,3,8] = Mul(%n, %gs); %y: f32[2,3,8] = Add(%t, %bs); %y",
       "LayerNorm 1"},
      {"MultiHeadAttention",
       "feed %q: f32[2,2,3,8], feed %k: f32[2,2,5,8], feed %w: f32[2,2,5,6], feed %mask: f32[2,1,1,5]",
       "%qs: f32[2,2,3,8] = Mul(%q, %scale); %t: f32[2,2,8,5] = Transpose(%k) {perm=[0, 1, 3, 2]}; "
       "%a: f32[2,2,3,5] = MatMul(%qs, %t) {trans_a=0, trans_b=0}; %s: f32[2,2,3,5] = Add(%a, %mask); "
       "%p: f32[2,2,3,5] = Softmax(%s) {axis=3}; %y: f32[2,2,3,6] = MatMul(%p, %w) {trans_a=0, trans_b=0}; %y",
       "Attention 1"},
  };
  for (const RecognizeCase& c : kCases) CheckRecognized(c, constants);
}

TEST(Recognize, CrossEntropy) {
  const RecognizeCase kCases[] = {
      {"PyTorch: nll_loss of log_softmax", "feed %x: f32[4,3,2], feed %t: i64[4,2]",
       "%l: f32[4,3,2] = LogSoftmax(%x) {axis=1}; %i: i64[4,1,2] = Reshape(%t) {shape=[4, 1, 2]}; "
       "%g: f32[4,1,2] = GatherElements(%l, %i) {axis=1}; %r: f32[4,2] = Reshape(%g) {shape=[4, 2]}; %n: f32[4,2] = "
       "Neg(%r); %n",
       "CrossEntropy 1"},
      {"classes on the last axis", "feed %x: f32[4,2,3], feed %i: i64[4,2,1]",
       "%l: f32[4,2,3] = LogSoftmax(%x) {axis=2}; %g: f32[4,2,1] = GatherElements(%l, %i) {axis=2}; %g",
       "CrossEntropy 1"},
      {"log-probabilities that somebody reads", "feed %x: f32[4,3], feed %i: i64[4,1]",
       "%l: f32[4,3] = LogSoftmax(%x) {axis=1}; %g: f32[4,1] = GatherElements(%l, %i) {axis=1}; %g, %l", ""},
      {"two labels a sample", "feed %x: f32[4,3], feed %i: i64[4,2]",
       "%l: f32[4,3] = LogSoftmax(%x) {axis=1}; %g: f32[4,2] = GatherElements(%l, %i) {axis=1}; %g", ""},
      {"another axis", "feed %x: f32[4,3], feed %i: i64[4,1]",
       "%l: f32[4,3] = LogSoftmax(%x) {axis=0}; %g: f32[4,1] = GatherElements(%l, %i) {axis=1}; %g", ""},
  };
  for (const RecognizeCase& c : kCases) CheckRecognized(c);
  const Graph loss = MustParse(GraphText(kCases[0].inputs, kCases[0].before));
  EXPECT_EQ(Print(Canonicalize(loss).value()),
            GraphText(kCases[0].inputs,
                      "%n: f32[4,2], %3: f32[4,3,2] = CrossEntropy(%x, %t) {ignore_index=-9223372036854775808, "
                      "label_smoothing=0.0}; %n"));
  constexpr std::string_view inputs = "feed %x: f32[4,3], feed %i: i64[4,1]";
  const Graph apart = MustParse(GraphText(inputs,
                                          "%s: f32[4,3] = Softmax(%x) {axis=1}; %l: f32[4,3] = Log(%s); %g: f32[4,1] = "
                                          "GatherElements(%l, %i) {axis=1}; %g"));
  EXPECT_EQ(
      Print(Canonicalize(apart).value()),
      GraphText(inputs,
                "%2: i64[4] = Reshape(%i) {shape=[4]}; %3: f32[4], %4: f32[4,3] = CrossEntropy(%x, %2) "
                "{ignore_index=-9223372036854775808, label_smoothing=0.0}; %5: f32[4,1] = Reshape(%3) {shape=[4, 1]}; "
                "%g: f32[4,1] = Neg(%5); %g"));
}

}  // namespace
}  // namespace onnxtrain
