// Fused and packed nodes: each form against another form of the same computation, or against numbers by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "frontend/base/strings.h"
#include "frontend/ops/host_eval.h"
#include "tests/frontend/ops/import/import_fixture.h"

namespace onnxtrain {
namespace {

constexpr DType kF32 = DType::kFloat32;
constexpr char kMs[] = "com.microsoft";

HostTensor Floats(Shape shape, std::vector<double> values) {
  return HostTensor::FromDoubles({kF32, std::move(shape)}, values);
}
HostTensor Whole(DType dtype, Shape shape, std::vector<int64_t> values) {
  return HostTensor::FromInts({dtype, std::move(shape)}, values);
}

HostTensor Noise(Shape shape, int seed = 0) {
  HostTensor t({kF32, std::move(shape)});
  for (int64_t i = 0; i < t.size(); ++i) t.Set(i, std::sin(static_cast<double>(i * 37 + seed * 101)));
  return t;
}

// Output 0 of a node whose inputs are all constants.
std::vector<double> Outcome(SingleNodeImporter& n) {
  const auto outputs = n.Import();
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  if (!outputs.ok()) return {};
  n.graph().AddOutput("y", outputs->front().id());
  const auto results = Interpret(n.graph(), {});
  EXPECT_TRUE(results.ok()) << results.status();
  return results.ok() ? results->front().ToDoubles() : std::vector<double>();
}

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << i;
}

// [B,S,heads·D] parts side by side along the last axis.
HostTensor Joined(const std::vector<HostTensor>& parts) {
  int64_t width = 0;
  for (const HostTensor& p : parts) width += p.shape()[2];
  const int64_t rows = parts[0].shape()[0] * parts[0].shape()[1];
  HostTensor y({kF32, {parts[0].shape()[0], parts[0].shape()[1], width}});
  for (int64_t r = 0, at = 0; r < rows; ++r) {
    for (const HostTensor& p : parts) {
      for (int64_t i = 0; i < p.shape()[2]; ++i) y.Set(at++, p.At(r * p.shape()[2] + i));
    }
  }
  return y;
}

class Attentions : public testing::Test {
 protected:
  const HostTensor q_ = Noise({2, 3, 8}, 1), k_ = Noise({2, 3, 4}, 2), v_ = Noise({2, 3, 4}, 3);

  std::vector<double> Onnx(const Attrs& attrs, const HostTensor* mask = nullptr) {
    SingleNodeImporter n("Attention", 23);
    n.Constant(q_).Constant(k_).Constant(v_).Attr("q_num_heads", int64_t{4}).Attr("kv_num_heads", int64_t{2});
    if (mask != nullptr) n.Constant(*mask);
    for (const auto& [name, value] : attrs) n.Attr(name, value);
    return Outcome(n);
  }
};

TEST_F(Attentions, GroupedQueriesAreCausal) {
  for (bool packed : {false, true}) {
    SingleNodeImporter n("GroupQueryAttention", 1, kMs);
    if (packed) {
      n.Constant(Joined({q_, k_, v_})).Absent().Absent();
    } else {
      n.Constant(q_).Constant(k_).Constant(v_);
    }
    n.Absent().Absent().Constant(Whole(DType::kInt32, {2}, {2, 2})).Constant(Whole(DType::kInt32, {}, {3}));
    n.Attr("num_heads", int64_t{4}).Attr("kv_num_heads", int64_t{2});
    ExpectNear(Outcome(n), Onnx({{"is_causal", int64_t{1}}}));
  }
}

// A cache with room: sample 0 holds one key, sample 1 two, of four. Without room, each sample alone gives the same.
TEST_F(Attentions, ACacheMayHaveRoom) {
  const HostTensor past_k = Noise({2, 2, 4, 2}, 7), past_v = Noise({2, 2, 4, 2}, 8);
  const HostTensor cos = Noise({8, 1}, 9), sin = Noise({8, 1}, 10);
  const auto attend = [&](const HostTensor& q, const HostTensor& k, const HostTensor& v, const HostTensor& pk,
                          const HostTensor& pv, const std::vector<int64_t>& lengths, int64_t window) {
    SingleNodeImporter n("GroupQueryAttention", 1, kMs);
    n.Constant(q).Constant(k).Constant(v).Constant(pk).Constant(pv);
    n.Constant(Whole(DType::kInt32, {std::ssize(lengths)}, lengths)).Constant(Whole(DType::kInt32, {}, {7}));
    n.Constant(cos).Constant(sin).Attr("do_rotary", int64_t{1}).Attr("local_window_size", window);
    n.Attr("num_heads", int64_t{4}).Attr("kv_num_heads", int64_t{2}).Outputs(3);
    const auto outputs = n.Import();
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    if (!outputs.ok()) return std::vector<std::vector<double>>(3);
    for (int i = 0; i < 3; ++i) n.graph().AddOutput(StrCat(i), (*outputs)[i].id());
    std::vector<std::vector<double>> values;
    const auto results = Interpret(n.graph(), {});
    EXPECT_TRUE(results.ok()) << results.status();
    if (results.ok()) std::ranges::transform(*results, std::back_inserter(values), &HostTensor::ToDoubles);
    values.resize(3);
    return values;
  };
  // Sample `b` of x [2,…], and of its third axis the first `n` elements.
  const auto part = [](const HostTensor& x, int64_t b, int64_t n) {
    Shape shape = x.shape();
    const int64_t row = shape[shape.size() - 1], had = shape[shape.size() - 2], all = x.size() / 2;
    shape[0] = 1;
    shape[shape.size() - 2] = n;
    HostTensor y({kF32, shape});
    for (int64_t i = 0; i < y.size(); ++i) y.Set(i, x.At(b * all + i / (n * row) * had * row + i % (n * row)));
    return y;
  };
  for (int64_t window : {-1, 2}) {
    const auto both = attend(q_, k_, v_, past_k, past_v, {3, 4}, window);
    for (int64_t b : {0, 1}) {
      const int64_t held = b + 1;
      const auto alone = attend(part(q_, b, 3), part(k_, b, 3), part(v_, b, 3), part(past_k, b, held),
                                part(past_v, b, held), {held + 2}, window);
      const size_t size = alone[0].size();
      ExpectNear({both[0].begin() + b * size, both[0].begin() + (b + 1) * size}, alone[0]);
      // Of each group [7,2] of present keys, the first held + 3 rows.
      for (int64_t i = 0; i < std::ssize(alone[1]); ++i) {
        const int64_t rows = (held + 3) * 2, at = b * 28 + i / rows * 14 + i % rows;
        EXPECT_NEAR(both[1][at], alone[1][i], 1e-6) << i;
        EXPECT_NEAR(both[2][at], alone[2][i], 1e-6) << i;
      }
    }
  }
}

TEST_F(Attentions, MasksOfBoolAndFloatSayTheSame) {
  const HostTensor seen = Whole(DType::kBool, {3, 3}, {1, 0, 1, 1, 1, 0, 0, 1, 1});
  HostTensor added({kF32, {3, 3}});
  for (int64_t i = 0; i < 9; ++i) added.Set(i, seen.At(i) != 0 ? 0 : -INFINITY);
  ExpectNear(Onnx({}, &seen), Onnx({}, &added));
}

TEST_F(Attentions, AQueryThatSeesNothingGivesZeros) {
  const HostTensor seen = Whole(DType::kBool, {3, 3}, {1, 1, 1, 0, 0, 0, 1, 1, 1});
  const std::vector<double> y = Onnx({}, &seen);
  ASSERT_EQ(y.size(), 48u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(y[8 + i], 0);
    EXPECT_NE(y[i], 0);
  }
}

TEST_F(Attentions, AFloatMaskMayHideAllKeys) {
  HostTensor mask({kF32, {3, 3}});
  for (int64_t i = 3; i < 6; ++i) mask.Set(i, -INFINITY);
  for (const Attrs& path : {Attrs(), Attrs{{"softcap", 1e4}}}) {
    const std::vector<double> y = Onnx(path, &mask);
    ASSERT_EQ(y.size(), 48u);
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(y[8 + i], 0);
      EXPECT_NE(y[i], 0);
    }
  }
}

// Windows count from a query's own position, behind the cache, and bound what is_causal leaves.
TEST_F(Attentions, WindowsAreMasks) {
  struct WindowCase {
    int64_t left, right, causal;
    std::vector<int64_t> seen;  // [3,3]
  };
  const WindowCase cases[] = {{0, 0, 0, {1, 0, 0, 0, 1, 0, 0, 0, 1}},
                              {1, 0, 0, {1, 0, 0, 1, 1, 0, 0, 1, 1}},
                              {-1, 1, 0, {1, 1, 0, 1, 1, 1, 1, 1, 1}},
                              {1, 1, 1, {1, 0, 0, 1, 1, 0, 0, 1, 1}}};
  for (const WindowCase& c : cases) {
    const HostTensor seen = Whole(DType::kBool, {3, 3}, c.seen);
    ExpectNear(Onnx({{"left_window_size", c.left}, {"right_window_size", c.right}, {"is_causal", c.causal}}),
               Onnx({}, &seen));
  }
}

// A query follows the keys of the cache.
TEST_F(Attentions, CausalQueriesFollowTheCache) {
  const HostTensor past = Noise({2, 2, 2, 2}, 4), seen = Whole(DType::kBool, {3, 5},
                                                               {1, 1, 1, 0, 0,  //
                                                                1, 1, 1, 1, 0,  //
                                                                1, 1, 1, 1, 1});
  const auto attend = [&](const HostTensor* mask) {
    SingleNodeImporter n("Attention", 24);
    n.Constant(q_).Constant(k_).Constant(v_).Attr("q_num_heads", int64_t{4}).Attr("kv_num_heads", int64_t{2});
    mask == nullptr ? n.Absent().Attr("is_causal", int64_t{1}) : n.Constant(*mask);
    return Outcome(n.Constant(past).Constant(past));
  };
  ExpectNear(attend(nullptr), attend(&seen));
}

// The scores that the node gives: products, capped, masked, normalized.
TEST_F(Attentions, ModesGiveTheirScores) {
  const HostTensor mask = Noise({3, 3}, 5);
  const auto scores = [&](int64_t mode) {
    SingleNodeImporter n("Attention", 24);
    n.Constant(q_).Constant(q_).Constant(q_).Constant(mask).Outputs(4);
    n.Attr("q_num_heads", int64_t{4}).Attr("kv_num_heads", int64_t{4});
    n.Attr("softcap", 0.5).Attr("qk_matmul_output_mode", mode);
    const auto outputs = n.Import();
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    n.graph().AddOutput("s", (*outputs)[3].id());
    return Interpret(n.graph(), {})->front().ToDoubles();
  };
  std::vector<double> expected = scores(0);
  for (double& s : expected) s = 0.5 * std::tanh(s / 0.5);
  ExpectNear(scores(1), expected);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += mask.At(static_cast<int64_t>(i % 9));
  ExpectNear(scores(2), expected);
  for (size_t row = 0; row < expected.size(); row += 3) {
    double sum = 0;
    for (size_t i = row; i < row + 3; ++i) sum += expected[i] = std::exp(expected[i]);
    for (size_t i = row; i < row + 3; ++i) expected[i] /= sum;
  }
  ExpectNear(scores(3), expected);
}

// A cap far above all scores changes next to nothing, and takes the path by primitives.
TEST_F(Attentions, SoftcapBendsScores) {
  ExpectNear(Onnx({{"softcap", 1e4}, {"is_causal", int64_t{1}}}), Onnx({{"is_causal", int64_t{1}}}));
  EXPECT_NE(Onnx({{"softcap", 0.1}}), Onnx({}));
}

TEST(MultiHead, FormsOfPackingAgree) {
  const HostTensor q = Noise({1, 2, 4}, 1), k = Noise({1, 2, 4}, 2), v = Noise({1, 2, 4}, 3);
  HostTensor packed({kF32, {1, 2, 2, 3, 2}});  // [B,S,H,3,D]
  for (int64_t s = 0, at = 0; s < 2; ++s) {
    for (int64_t h = 0; h < 2; ++h) {
      for (const HostTensor* part : {&q, &k, &v}) {
        for (int64_t d = 0; d < 2; ++d) packed.Set(at++, part->At(s * 4 + h * 2 + d));
      }
    }
  }
  SingleNodeImporter apart("MultiHeadAttention", 1, kMs), together("MultiHeadAttention", 1, kMs);
  apart.Constant(q).Constant(k).Constant(v).Attr("num_heads", int64_t{2});
  together.Constant(packed).Attr("num_heads", int64_t{2});
  ExpectNear(Outcome(together), Outcome(apart));
}

TEST(Rotary, TurnsPairsByTheAngleOfTheirPosition) {
  const double c = std::cos(0.7), s = std::sin(0.7);
  for (int64_t interleaved : {0, 1}) {
    SingleNodeImporter n("RotaryEmbedding", 23);
    n.Constant(Floats({1, 1, 1, 4}, {1, 2, 3, 4}))
        .Constant(Floats({2, 2}, {1, 1, c, 1}))
        .Constant(Floats({2, 2}, {0, 0, s, 0}));
    n.Constant(Whole(DType::kInt64, {1, 1}, {1})).Attr("interleaved", interleaved);
    const double other = interleaved != 0 ? 2 : 3;
    const double real = c - s * other, imaginary = s + c * other;
    ExpectNear(Outcome(n), interleaved != 0 ? std::vector<double>{real, imaginary, 3, 4}
                                            : std::vector<double>{real, 2, imaginary, 4});
  }
}

TEST(Packed, WeightsOfFourBits) {
  SingleNodeImporter n("MatMulNBits", 1, kMs);
  // Two outputs of one block of 16 each: codes 0…15 less 8 times 0.5, and codes of 9 less 8 times 2.
  std::vector<int64_t> bytes;
  for (int64_t i = 0; i < 16; i += 2) bytes.push_back(i | (i + 1) << 4);
  bytes.insert(bytes.end(), 8, 0x99);
  n.Constant(HostTensor::Filled({kF32, {1, 16}}, 1))
      .Constant(Whole(DType::kUInt8, {2, 1, 8}, bytes))
      .Constant(Floats({2, 1}, {0.5, 2}));
  n.Attr("K", int64_t{16}).Attr("N", int64_t{2}).Attr("bits", int64_t{4}).Attr("block_size", int64_t{16});
  ExpectNear(Outcome(n), {-4, 32});
}

// g_idx names the block of each column, whose scale and zero point hold: (B − zero_points)·scales, packed or not.
// (onnxruntime 1.23 on the CPU agrees where zero points are floats; packed ones it takes for 8 as soon as there is a
// g_idx.)
TEST(Packed, ColumnsNameTheirBlocks) {
  std::vector<int64_t> bytes, columns(32), zero = {0x5a};
  for (int64_t i = 0; i < 32; i += 2) bytes.push_back(i % 16 | (i + 1) % 16 << 4);
  for (int64_t i = 0; i < 32; ++i) columns[i] = i % 3 == 0;
  HostTensor x({kF32, {32, 32}});
  for (int64_t i = 0; i < 32; ++i) x.Set(i * 33, 1);
  for (const HostTensor& z : {Whole(DType::kUInt8, {1}, zero), Floats({1, 2}, {10, 5})}) {
    SingleNodeImporter n("MatMulNBits", 1, kMs);
    n.Constant(x).Constant(Whole(DType::kUInt8, {1, 2, 8}, bytes)).Constant(Floats({1, 2}, {0.5, 2})).Constant(z);
    n.Constant(Whole(DType::kInt32, {32}, columns));
    n.Attr("K", int64_t{32}).Attr("N", int64_t{1}).Attr("bits", int64_t{4}).Attr("block_size", int64_t{16});
    std::vector<double> want;
    for (int64_t i = 0; i < 32; ++i)
      want.push_back(static_cast<double>(i % 16 - (columns[i] != 0 ? 5 : 10)) * (columns[i] != 0 ? 2 : 0.5));
    ExpectNear(Outcome(n), want);
  }
}

TEST(Packed, RefusesWeightsThatAreTooFew) {
  for (int64_t k : {17, 0, 1 << 30}) {
    SingleNodeImporter n("MatMulNBits", 1, kMs);
    n.Constant(HostTensor({kF32, {1, 16}}))
        .Constant(HostTensor({DType::kUInt8, {2, 1, 8}}))
        .Constant(HostTensor({kF32, {2, 1}}));
    n.Attr("K", k).Attr("N", int64_t{2}).Attr("bits", int64_t{4}).Attr("block_size", int64_t{16});
    EXPECT_FALSE(n.Import().ok()) << k;
  }
}

TEST(Fused, ChannelsLastOrSecond) {
  const HostTensor x = Noise({1, 3, 3, 4}), scale = Noise({4}, 5), bias = Noise({4}, 6);
  HostTensor turned({kF32, {1, 4, 3, 3}});
  for (int64_t i = 0; i < 9; ++i) {
    for (int64_t c = 0; c < 4; ++c) turned.Set(c * 9 + i, x.At(i * 4 + c));
  }
  SingleNodeImporter last("GroupNorm", 1, kMs), second("GroupNorm", 1, kMs);
  for (SingleNodeImporter* n : {&last, &second}) {
    n->Constant(n == &last ? x : turned).Constant(scale).Constant(bias);
    n->Attr("groups", int64_t{2}).Attr("activation", int64_t{1}).Attr("channels_last", int64_t{n == &last});
  }
  const std::vector<double> got = Outcome(last), want = Outcome(second);
  ASSERT_EQ(got.size(), 36u);
  ASSERT_EQ(want.size(), 36u);
  for (int64_t i = 0; i < 9; ++i) {
    for (int64_t c = 0; c < 4; ++c) EXPECT_NEAR(got[i * 4 + c], want[c * 9 + i], 1e-5);
  }
}

TEST(Fused, GemmWithActivation) {
  SingleNodeImporter n("FusedGemm", 1, kMs);
  n.Constant(Floats({1, 2}, {1, 2})).Constant(Floats({2, 2}, {1, -1, 1, -1})).Constant(Floats({2}, {1, 1}));
  n.Attr("activation", std::string("LeakyRelu")).Attr("activation_alpha", 0.5);
  ExpectNear(Outcome(n), {4, -1});
}

}  // namespace
}  // namespace onnxtrain
