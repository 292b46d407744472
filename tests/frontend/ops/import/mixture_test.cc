// Mixtures of experts: results of ONNX Runtime's CPU kernels, forms that it computes on GPUs only against others, and
// gradients against central differences in float64. mixture_values.py prints the expected values.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "frontend/base/strings.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/single_node_importer.h"
#include "frontend/passes/differentiate.h"

namespace onnxtrain {
namespace {

constexpr DType kF32 = DType::kFloat32;
constexpr int64_t kExperts = 4, kTokens = 3;

HostTensor Noise(Shape shape, int seed, DType dtype = kF32) {
  HostTensor t({dtype, std::move(shape)});
  for (int64_t i = 0; i < t.size(); ++i) t.Set(i, std::sin(static_cast<double>(i * 37 + seed * 101)));
  return t;
}

HostTensor Mapped(HostTensor t, const std::function<double(double)>& f) {
  for (int64_t i = 0; i < t.size(); ++i) t.Set(i, f(t.At(i)));
  return t;
}

HostTensor Numbers(Shape shape, int seed) {
  HostTensor t({DType::kUInt8, std::move(shape)});
  for (int64_t i = 0; i < t.size(); ++i) t.SetInt(i, (i * 89 + seed * 57 + i / 7 * 31) % 256);
  return t;
}

// The first three elements of each token.
void ExpectFirst(SingleNodeImporter& n, const std::vector<double>& want) {
  const auto outputs = n.Import();
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  n.graph().AddOutput("y", outputs->front().id());
  const auto results = Interpret(n.graph(), {});
  ASSERT_TRUE(results.ok()) << results.status();
  const int64_t width = results->front().shape().back();
  for (int64_t i = 0; i < std::ssize(want); ++i)
    EXPECT_NEAR(results->front().At(i / 3 * width + i % 3), want[static_cast<size_t>(i)], 1e-5) << i;
}

struct FloatCase {
  std::string activation;
  Attrs attrs;
  std::vector<double> want;
};

constexpr int64_t kWidth = 4, kUnits = 5;

std::vector<HostTensor> FloatInputs(int64_t outputs, DType dtype = kF32) {
  return {Noise({kTokens, kWidth}, 1, dtype),           Noise({kTokens, kExperts}, 2, dtype),
          Noise({kExperts, outputs, kWidth}, 3, dtype), Noise({kExperts, outputs}, 4, dtype),
          Noise({kExperts, kWidth, kUnits}, 5, dtype),  Noise({kExperts, kWidth}, 6, dtype)};
}

TEST(Mixtures, AgreeWithOnnxRuntime) {
  const Attrs normalized = {{"normalize_routing_weights", int64_t{1}}};
  Attrs limited = normalized;
  limited.Set("activation_alpha", 1.702);
  limited.Set("activation_beta", 1.0);
  limited.Set("swiglu_limit", 0.5);
  const std::vector<FloatCase> cases = {
      {"relu",
       {},
       {0.711267, -0.2304939, 0.5586832, 0.7347834, -0.6628304, 0.8276313, 0.3441048, -0.1427026, 0.3813223}},
      {"gelu",
       {},
       {0.6017761, -0.1784553, 0.570549, 0.7880665, -0.668615, 0.7852001, 0.2829508, -0.1664696, 0.4870632}},
      {"silu",
       {},
       {0.6128845, -0.2400428, 0.6749793, 0.7777216, -0.58693, 0.6423034, 0.2669321, -0.2092931, 0.5834194}},
      {"identity",
       {},
       {1.268826, -1.384759, 2.166537, 1.044288, -0.3937399, 0.01331007, 0.3117628, -0.5966297, 1.265236}},
      {"swiglu",
       {},
       {0.8051877, -0.9081973, 1.736141, 0.4733388, 0.1856307, -0.5026459, 0.2341933, 0.07740831, 0.07830295}},
      {"silu",
       normalized,
       {0.7948705, -0.3113196, 0.8754033, 1.011574, -0.7634138, 0.8354373, 0.3691583, -0.2894455, 0.8068498}},
      {"swiglu",
       limited,
       {0.3992062, 0.05570325, 0.5825288, 0.144788, 0.2820729, -0.2591202, 0.110837, 0.1198596, 0.2973103}},
  };
  for (const FloatCase& c : cases) {
    SCOPED_TRACE(c.activation);
    const bool gated = c.activation == "swiglu";
    SingleNodeImporter n("MoE", 1, "com.microsoft");
    for (const HostTensor& input : FloatInputs(gated ? 2 * kUnits : kUnits)) n.Constant(input);
    n.Attr("k", int64_t{2}).Attr("activation_type", c.activation).Attr("swiglu_fusion", int64_t{gated});
    for (const auto& [name, value] : c.attrs) n.Attr(name, value);
    ExpectFirst(n, c.want);
  }
}

struct QuantizedCase {
  int64_t bits, block;
  bool zeros, router, normalize;
  std::vector<double> want;
};

// fc1 [4,32,32] and fc2 [4,32,16] of numbers, zero points and scales by formulas.
void AddInputs(const QuantizedCase& c, SingleNodeImporter* importer) {
  constexpr int64_t kWide = 32, kInner = 16;
  SingleNodeImporter& n = *importer;
  n.Constant(Noise({kTokens, kWide}, 1)).Constant(Noise({kTokens, kExperts}, 2));
  std::vector<HostTensor> zeros;
  for (const int layer : {0, 1}) {
    const int64_t outputs = kWide, inputs = layer == 0 ? kWide : kInner, blocks = c.block == 0 ? 1 : inputs / c.block;
    const double factor = 0.002 * static_cast<double>(1 << (8 - c.bits));
    const Shape scales = c.block == 0 ? Shape{kExperts, outputs} : Shape{kExperts, outputs, blocks};
    n.Constant(Numbers({kExperts, outputs, inputs * c.bits / 8}, layer + 3));
    n.Constant(Mapped(Noise(scales, layer + 5), [&](double x) { return factor * (2 + x); }));
    n.Constant(Noise({kExperts, outputs}, layer + 8));
    zeros.push_back(Numbers(c.block == 0 ? Shape{kExperts, (outputs * c.bits + 7) / 8}
                                         : Shape{kExperts, outputs, (blocks * c.bits + 7) / 8},
                            layer + 7));
  }
  n.Absent().Absent().Absent();
  for (const HostTensor& zero : zeros) c.zeros ? n.Constant(zero) : n.Absent();
  n.Absent();
  if (c.router) n.Constant(Mapped(Noise({kTokens, kExperts}, 10), [](double x) { return std::abs(x); }));
  n.Attr("k", int64_t{2}).Attr("activation_type", std::string("swiglu")).Attr("swiglu_fusion", int64_t{1});
  n.Attr("expert_weight_bits", c.bits).Attr("normalize_routing_weights", int64_t{c.normalize});
  if (c.block != 0) n.Attr("block_size", c.block);
}

TEST(Mixtures, QuantizedOnesAgreeWithOnnxRuntime) {
  const std::vector<QuantizedCase> cases = {
      {4,
       16,
       false,
       false,
       false,
       {-0.8984851, -1.738782, 0.05281484, -0.2528067, -1.19611, -0.3755406, -0.07921442, -0.4486538, 0.1577903}},
      {4,
       16,
       true,
       false,
       false,
       {-1.559426, -4.824179, 0.1966359, 0.1541139, -1.538914, -0.9161398, -1.163507, -1.527064, -0.4920371}},
      {4,
       0,
       true,
       false,
       false,
       {-0.4085409, -0.6388379, -0.1325661, 2.245827, -0.07593695, -2.272409, -0.05348399, -0.3829587, 2.027684}},
      {8,
       16,
       true,
       false,
       false,
       {-0.8377246, 2.811027, 1.865171, -0.7610316, -0.3459444, -2.256083, 0.03420328, 2.63778, 0.853474}},
      {8,
       0,
       true,
       true,
       false,
       {0.6267965, 3.942345, 1.982618, 0.7439008, -1.09086, 0.1511685, 2.670125, 3.184607, 1.734391}},
      {2,
       16,
       true,
       false,
       false,
       {-5.617292, -2.020679, 6.257202, -1.098724, 1.125207, 0.4607651, 1.047449, 1.273037, 0.601905}},
      {4,
       0,
       false,
       true,
       true,
       {-0.2734423, -1.063123, 0.4984495, -0.7463107, -1.283999, -0.2012642, -0.2399691, -0.243812, 0.6986174}},
      // The softmax over the chosen experts is normalized already.
      {4,
       16,
       false,
       false,
       true,
       {-0.8984851, -1.738782, 0.05281484, -0.2528067, -1.19611, -0.3755406, -0.07921442, -0.4486538, 0.1577903}},
  };
  for (const QuantizedCase& c : cases) {
    SCOPED_TRACE(StrCat(c.bits, " bits in blocks of ", c.block));
    SingleNodeImporter n("QMoE", 1, "com.microsoft");
    AddInputs(c, &n);
    ExpectFirst(n, c.want);
  }
}

std::vector<double> Outcome(SingleNodeImporter& n) {
  const auto outputs = n.Import();
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  if (!outputs.ok()) return {};
  n.graph().AddOutput("y", outputs->front().id());
  const auto results = Interpret(n.graph(), {});
  EXPECT_TRUE(results.ok()) << results.status();
  return results.ok() ? results->front().ToDoubles() : std::vector<double>();
}

// Copies the rows of each expert: `place(i)` is the row of fc1 that holds row i of `part`.
void PlaceRows(const HostTensor& part, const std::function<int64_t(int64_t)>& place, HostTensor* all) {
  const int64_t rows = part.shape()[1], size = part.size() / (kExperts * rows), all_rows = all->shape()[1];
  for (int64_t e = 0; e < kExperts; ++e) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < size; ++i)
        all->Set((e * all_rows + place(r)) * size + i, part.At((e * rows + r) * size + i));
    }
  }
}

// Gates and values in fc1 and fc3, alternating in fc1, and one after the other in fc1.
TEST(Mixtures, LayoutsOfGatesSayTheSame) {
  const HostTensor gate = Noise({kExperts, kUnits, kWidth}, 3), value = Noise({kExperts, kUnits, kWidth}, 7);
  const HostTensor gate_bias = Noise({kExperts, kUnits}, 4), value_bias = Noise({kExperts, kUnits}, 8);
  std::vector<std::vector<double>> results;
  for (const int64_t fusion : {0, 1, 2}) {
    HostTensor fc1({kF32, {kExperts, 2 * kUnits, kWidth}}), bias({kF32, {kExperts, 2 * kUnits}});
    for (const bool second : {false, true}) {
      const auto place = [&](int64_t row) {
        return fusion == 1 ? 2 * row + (second ? 1 : 0) : row + (second ? kUnits : 0);
      };
      PlaceRows(second ? value : gate, place, &fc1);
      PlaceRows(second ? value_bias : gate_bias, place, &bias);
    }
    const std::vector<HostTensor> inputs = FloatInputs(kUnits);
    SingleNodeImporter n("MoE", 1, "com.microsoft");
    n.Constant(inputs[0]).Constant(inputs[1]);
    n.Constant(fusion == 0 ? gate : fc1).Constant(fusion == 0 ? gate_bias : bias);
    n.Constant(inputs[4]).Constant(inputs[5]);
    if (fusion == 0) n.Constant(value).Constant(value_bias);
    n.Attr("k", int64_t{2}).Attr("activation_type", std::string("swiglu")).Attr("swiglu_fusion", fusion);
    results.push_back(Outcome(n));
  }
  ASSERT_EQ(results[0].size(), static_cast<size_t>(kTokens * kWidth));
  for (size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_NEAR(results[0][i], results[1][i], 1e-6);
    EXPECT_NEAR(results[0][i], results[2][i], 1e-6);
  }
}

// The last axes of a shape may be in the other order, as in older files; the numbers are not.
TEST(Mixtures, ShapesOfOlderFilesSayTheSame) {
  std::vector<std::vector<double>> results;
  for (const bool old : {false, true}) {
    SingleNodeImporter n("MoE", 1, "com.microsoft");
    for (HostTensor& input : FloatInputs(kUnits)) {
      const Shape& shape = input.shape();
      n.Constant(old && shape.size() == 3 ? input.Reshaped({shape[0], shape[2], shape[1]}) : input);
    }
    results.push_back(Outcome(n));
  }
  EXPECT_EQ(results[0], results[1]);
}

// silu(fc1)·fc3, as Mixtral has it, is SwiGLU with its default parameters.
TEST(Mixtures, AGateMayMultiplyEveryActivation) {
  std::vector<std::vector<double>> results;
  for (const char* activation : {"silu", "swiglu"}) {
    SingleNodeImporter n("MoE", 1, "com.microsoft");
    for (const HostTensor& input : FloatInputs(kUnits)) n.Constant(input);
    n.Constant(Noise({kExperts, kUnits, kWidth}, 7)).Attr("activation_type", std::string(activation));
    results.push_back(Outcome(n));
  }
  for (size_t i = 0; i < results[0].size(); ++i) EXPECT_NEAR(results[0][i], results[1][i], 1e-6);
}

class MixtureGradients : public testing::Test {
 protected:
  // Imports the node over fed inputs of float64 and differentiates a weighted sum of its result.
  void Build(const std::vector<HostTensor>& inputs, const Attrs& attrs) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool absent = inputs[i].shape().empty() && inputs[i].At(0) == 0;
      absent ? n_.Absent() : n_.Input(inputs[i].type());
      if (!absent) feeds_.emplace(StrCat("x", i), inputs[i]);
    }
    for (const auto& [name, value] : attrs) n_.Attr(name, value);
    const auto outputs = n_.Import();
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    Builder& b = n_.b();
    const Val y = outputs->front();
    const Val loss = ReduceSum(y * b.Constant(Noise(y.shape(), 20, DType::kFloat64)), {}, false);
    n_.graph().AddOutput("loss", loss.id());
    std::vector<ValueId> wrt;
    for (const auto& [name, value] : feeds_) wrt.push_back(FindInput(name));
    const auto grads = Differentiate(&n_.graph(), loss.id(), wrt);
    ASSERT_TRUE(grads.ok()) << grads.status();
    for (size_t i = 0; const auto& [name, value] : feeds_) n_.graph().AddOutput(name, grads->at(wrt[i++]));
  }

  ValueId FindInput(const std::string& name) {
    for (const GraphInput& input : n_.graph().inputs()) {
      if (n_.graph().value(input.value).name == name) return input.value;
    }
    return kNoValue;
  }

  double Loss(const std::string& name, int64_t element, double step) {
    auto feeds = feeds_;
    HostTensor moved = feeds.at(name).Clone();
    moved.Set(element, moved.At(element) + step);
    feeds.insert_or_assign(name, moved);
    return Interpret(n_.graph(), feeds)->at(0).At(0);
  }

  void Check() {
    const auto results = Interpret(n_.graph(), feeds_);
    ASSERT_TRUE(results.ok()) << results.status();
    for (size_t i = 1; const auto& [name, value] : feeds_) {
      const HostTensor& grad = results->at(i++);
      for (int64_t e = 0; e < grad.size(); e += std::max<int64_t>(1, grad.size() / 12)) {
        const double h = 1e-5, expected = (Loss(name, e, h) - Loss(name, e, -h)) / (2 * h);
        EXPECT_NEAR(grad.At(e), expected, 1e-6 * std::max(1.0, std::abs(expected))) << name << " at " << e;
      }
    }
  }

  SingleNodeImporter n_{"MoE", 1, "com.microsoft"};
  std::map<std::string, HostTensor> feeds_;
};

HostTensor None() { return HostTensor::Scalar(DType::kFloat64, 0); }

const Attrs& TwoOfSwiGlu() {
  static const Attrs attrs = {{"k", int64_t{2}},
                              {"activation_type", std::string("swiglu")},
                              {"swiglu_fusion", int64_t{1}},
                              {"normalize_routing_weights", int64_t{1}},
                              {"activation_alpha", 1.7},
                              {"activation_beta", 1.0},
                              {"swiglu_limit", 0.9}};
  return attrs;
}

TEST_F(MixtureGradients, AgreeWithCentralDifferences) {
  Build(FloatInputs(2 * kUnits, DType::kFloat64), TwoOfSwiGlu());
  Check();
}

TEST_F(MixtureGradients, AgreeForAGateOfItsOwn) {
  std::vector<HostTensor> inputs = FloatInputs(kUnits, DType::kFloat64);
  inputs.push_back(Noise({kExperts, kUnits, kWidth}, 7, DType::kFloat64));
  inputs.push_back(Noise({kExperts, kUnits}, 8, DType::kFloat64));
  Build(inputs, {{"k", int64_t{2}}, {"activation_type", std::string("silu")}});
  Check();
}

// The last inputs are those that low-rank updates add: A, B and the scale of each layer.
TEST_F(MixtureGradients, AgreeForLowRankUpdates) {
  constexpr int64_t kRank = 2;
  std::vector<HostTensor> inputs = FloatInputs(2 * kUnits, DType::kFloat64);
  inputs.insert(inputs.end(), {None(), None()});
  for (const auto& [in, out] : {std::pair(kWidth, 2 * kUnits), {kUnits, kWidth}}) {
    inputs.push_back(Noise({kExperts * kRank, in}, 11, DType::kFloat64));
    inputs.push_back(Noise({out, kRank * kExperts}, 12, DType::kFloat64));
    inputs.push_back(HostTensor::Scalar(DType::kFloat64, 0.5));
  }
  Build(inputs, TwoOfSwiGlu());
  Check();
}

TEST_F(MixtureGradients, ExpertsThatNoTokenChoseHaveNone) {
  std::vector<HostTensor> inputs = FloatInputs(2 * kUnits, DType::kFloat64);
  for (int64_t t = 0; t < kTokens; ++t) inputs[1].Set(t * kExperts + 3, -9);
  Build(inputs, TwoOfSwiGlu());
  const auto results = Interpret(n_.graph(), feeds_);
  ASSERT_TRUE(results.ok()) << results.status();
  for (size_t i = 1; const auto& [name, value] : feeds_) {
    const HostTensor& grad = results->at(i++);
    if (grad.shape()[0] != kExperts) continue;
    const int64_t size = grad.size() / kExperts;
    for (int64_t e = 3 * size; e < grad.size(); ++e) EXPECT_EQ(grad.At(e), 0) << name;
  }
}

TEST(Mixtures, RefuseWhatTheyCannotCompute) {
  const auto expect = [](SingleNodeImporter& n, const std::string& why) {
    const auto outputs = n.Import();
    ASSERT_FALSE(outputs.ok()) << why;
    EXPECT_NE(outputs.status().message().find(why), std::string::npos) << outputs.status();
  };
  struct Refused {
    std::string attr;
    AttrValue value;
    std::string why;
  };
  const std::vector<Refused> refused = {
      {"use_sparse_mixer", int64_t{1}, "use_sparse_mixer"},
      {"quant_type", std::string("fp4"), "the quant_type 'fp4'"},
      {"weights_prepacked", int64_t{1}, "weights_prepacked 1"},
      {"activation_type", std::string("tanh"), "the activation_type 'tanh'"},
      {"k", int64_t{5}, "k is 5 of 4 experts"},
      {"swiglu_fusion", int64_t{0}, "swiglu_fusion is 0, but there is no input 8 with fc3"},
      {"expert_weight_bits", int64_t{3}, "experts of 3 bits"},
      {"fc2_expert_weight_bits", int64_t{8}, "fc1 has 32 outputs, fc2 8 inputs"},
      {"block_size", int64_t{32}, "scales"},
  };
  for (const Refused& r : refused) {
    SCOPED_TRACE(r.attr);
    SingleNodeImporter n("QMoE", 1, "com.microsoft");
    AddInputs({4, 16, false, false, false, {}}, &n);
    n.Attr(r.attr, r.value);
    expect(n, r.why);
  }
  SingleNodeImporter n("MoE", 1, "com.microsoft");
  std::vector<HostTensor> inputs = FloatInputs(kUnits);
  inputs[1] = Noise({kTokens + 1, kExperts}, 2);
  for (const HostTensor& input : inputs) n.Constant(input);
  expect(n, "router_probs f32[4,4] for 3 tokens");
}

}  // namespace
}  // namespace onnxtrain
