// Convolution, pooling and random operators, which the host does not evaluate.
#include <cmath>

#include "frontend/ops/builder.h"
#include "frontend/ops/random.h"
#include "tests/backends/cpu/testing.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;

Type F(Shape shape) { return {DType::kFloat32, std::move(shape)}; }

struct ConvCase {
  Shape x, w;
  Ints strides, pads, dilations;
  int64_t group = 1;

  Attrs attrs() const { return {{"strides", strides}, {"pads", pads}, {"dilations", dilations}, {"group", group}}; }
};

const ConvCase kConvs[] = {
    {{2, 3, 8, 9}, {4, 3, 3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
    {{2, 1, 28, 28}, {6, 1, 5, 5}, {1, 1}, {2, 2, 2, 2}, {1, 1}},
    {{2, 16, 9, 9}, {32, 16, 3, 3}, {2, 2}, {1, 0, 0, 1}, {1, 1}},
    {{2, 16, 9, 9}, {24, 16, 1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}},
    {{2, 6, 11, 10}, {4, 3, 2, 3}, {2, 1}, {0, 1, 1, 2}, {2, 2}, 2},
    {{2, 32, 7, 7}, {32, 1, 3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 32},
    {{3, 4, 17}, {5, 4, 3}, {2}, {1, 1}, {1}},
    {{1, 3, 5, 6, 7}, {4, 3, 2, 3, 2}, {1, 2, 1}, {0, 1, 1, 0, 1, 0}, {1, 1, 1}},
};

// The convolution by its definition, in double precision.
std::vector<double> NaiveConv(const ConvCase& c, const HostTensor& x, const HostTensor& w, const Shape& y) {
  const size_t axes = c.strides.size();
  const Shape xs = Strides(c.x), ws = Strides(c.w), ys = Strides(y);
  const int64_t per_group = c.w[0] / c.group;
  std::vector<double> result(NumElements(y), 0.0);
  const Shape window(c.w.begin() + 2, c.w.end());
  const Shape window_strides = Strides(window);
  for (int64_t i = 0; i < NumElements(y); ++i) {
    const int64_t n = i / ys[0], m = i / ys[1] % y[1];
    for (int64_t channel = 0; channel < c.w[1]; ++channel) {
      for (int64_t k = 0; k < NumElements(window); ++k) {
        int64_t at = n * xs[0] + (m / per_group * c.w[1] + channel) * xs[1];
        bool inside = true;
        for (size_t a = 0; a < axes; ++a) {
          const int64_t o = i / ys[2 + a] % y[2 + a], tap = k / window_strides[a] % window[a];
          const int64_t position = o * c.strides[a] - c.pads[a] + tap * c.dilations[a];
          inside = inside && position >= 0 && position < c.x[2 + a];
          at += position * xs[2 + a];
        }
        if (inside) result[i] += x.At(at) * w.At(m * ws[0] + channel * ws[1] + k);
      }
    }
  }
  return result;
}

double Dot(const HostTensor& a, const HostTensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.size(); ++i) sum += a.At(i) * b.At(i);
  return sum;
}

TEST(CpuNn, ConvolutionAndItsGradients) {
  for (const ConvCase& c : kConvs) {
    SCOPED_TRACE(StrCat(ToString(c.x), ToString(c.w)));
    std::mt19937 random(3);
    Graph graph;
    Builder b(&graph);
    const Val x = b.Input(InputKind::kFeed, "x", F(c.x)), w = b.Input(InputKind::kParameter, "w", F(c.w));
    const Val bias = b.Input(InputKind::kParameter, "b", F({c.w[0]}));
    const Val y = b.Op("Conv", {x, w}, c.attrs());
    const Val biased = b.Op("Conv", {x, w, bias}, c.attrs());
    const Val dy = b.Input(InputKind::kFeed, "dy", y.type());
    Attrs transposed = c.attrs(), weights = c.attrs();
    transposed.Set("output_shape", Ints(c.x.begin() + 2, c.x.end()));
    weights.Set("kernel_shape", Ints(c.w.begin() + 2, c.w.end()));
    const Val outputs[] = {y, biased, b.Op("ConvTranspose", {dy, w}, transposed),
                           b.Op("ConvWeightGrad", {x, dy}, weights)};
    ASSERT_TRUE(b.status().ok()) << b.status().message();
    for (const Val& v : outputs) graph.AddOutput(StrCat("v", v.id()), v.id());

    const HostTensor hx = RandomTensor(F(c.x), random), hw = RandomTensor(F(c.w), random),
                     hdy = RandomTensor(y.type(), random);
    const HostTensor hb = RandomTensor(F({c.w[0]}), random);
    const auto got = RunOnce(Cpu(), graph, {{"x", hx}, {"w", hw}, {"dy", hdy}, {"b", hb}});
    const auto want = NaiveConv(c, hx, hw, y.shape());
    const int64_t plane = y.type().elements() / y.dim(0) / y.dim(1);
    for (int64_t i = 0; i < got[0].size(); ++i) {
      ASSERT_NEAR(got[0].At(i), want[i], 3e-5) << i;
      ASSERT_NEAR(got[1].At(i), want[i] + hb.At(i / plane % c.w[0]), 3e-5) << i;
    }
    // The convolution is bilinear: ⟨conv(x, w), dy⟩ = ⟨x, its transpose(dy, w)⟩ = ⟨w, its weight gradient(x, dy)⟩.
    const double expected = Dot(got[0], hdy), scale = std::sqrt(Dot(got[0], got[0]) * Dot(hdy, hdy));
    EXPECT_NEAR(Dot(hx, got[2]), expected, 1e-5 * scale);
    EXPECT_NEAR(Dot(hw, got[3]), expected, 1e-5 * scale);
  }
}

struct PoolCase {
  Shape x;
  Ints kernel, strides, pads, dilations;
  int64_t include_pad = 0;

  Attrs attrs(bool average) const {
    Attrs a = {{"kernel_shape", kernel}, {"strides", strides}, {"pads", pads}, {"dilations", dilations}};
    if (average) a.Set("count_include_pad", include_pad);
    return a;
  }
};

const PoolCase kPools[] = {
    {{2, 3, 8, 9}, {2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}},
    {{2, 3, 9, 9}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}},
    {{2, 3, 9, 10}, {2, 3}, {1, 3}, {1, 0, 0, 2}, {2, 1}, 1},
    {{2, 3, 17}, {3}, {2}, {1, 1}, {1}, 1},
    {{1, 2, 5, 600}, {3, 2}, {2, 1}, {1, 0, 0, 1}, {1, 3}},
    {{1, 2, 30, 31}, {5, 4}, {3, 4}, {2, 1, 2, 2}, {1, 1}},
    {{1, 2, 5, 6, 7}, {2, 3, 2}, {1, 2, 2}, {0, 1, 1, 1, 0, 0}, {1, 1, 1}},
    // Wide along the first axis alone.
    {{2, 1, 7, 12}, {5, 1}, {1, 1}, {2, 0, 2, 0}, {1, 1}, 1},
    {{2, 3, 9, 3, 4}, {3, 1, 1}, {2, 1, 1}, {1, 0, 0, 0, 0, 0}, {2, 1, 1}},
    {{2, 3, 7, 12}, {3, 1}, {1, 2}, {0, 0, 0, 0}, {1, 1}},
    {{2, 3, 7, 12}, {3, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}},
};

struct Window {
  double max = -1e30, sum = 0;
  int64_t where = -1, count = 0;
};

Window NaiveWindow(const PoolCase& c, const HostTensor& x, const Shape& y, int64_t i) {
  const size_t axes = c.kernel.size();
  const Shape xs = Strides(c.x), ys = Strides(y), ks = Strides(c.kernel);
  Window w;
  for (int64_t k = 0; k < NumElements(c.kernel); ++k) {
    int64_t at = 0;
    bool inside = true;
    for (size_t a = 0; a < axes; ++a) {
      const int64_t p = i / ys[2 + a] % y[2 + a] * c.strides[a] - c.pads[a] + k / ks[a] % c.kernel[a] * c.dilations[a];
      inside = inside && p >= 0 && p < c.x[2 + a];
      at += p * xs[2 + a];
    }
    if (!inside) continue;
    const double value = x.At(i / ys[1] * xs[1] + at);
    ++w.count;
    w.sum += value;
    if (value > w.max) {
      w.max = value;
      w.where = at;
    }
  }
  return w;
}

TEST(CpuNn, Pooling) {
  for (const PoolCase& c : kPools) {
    SCOPED_TRACE(ToString(c.x));
    std::mt19937 random(4);
    Graph graph;
    Builder b(&graph);
    const Val x = b.Input(InputKind::kFeed, "x", F(c.x));
    const auto max = b.Ops("MaxPool", {x}, c.attrs(false));
    const Val average = b.Op("AveragePool", {x}, c.attrs(true));
    const Val dy = b.Input(InputKind::kFeed, "dy", average.type());
    const Val dmax = b.Op("MaxPoolGrad", {dy, max[1]}, {{"input_shape", c.x}});
    Attrs grad = c.attrs(true);
    grad.Set("input_shape", c.x);
    const Val daverage = b.Op("AveragePoolGrad", {dy}, grad);
    ASSERT_TRUE(b.status().ok()) << b.status().message();
    for (const Val& v : {max[0], max[1], average, dmax, daverage}) graph.AddOutput(StrCat("v", v.id()), v.id());
    const HostTensor hx = RandomTensor(F(c.x), random), hdy = RandomTensor(average.type(), random);
    const auto got = RunOnce(Cpu(), graph, {{"x", hx}, {"dy", hdy}});
    const Shape xs = Strides(c.x), ys = Strides(average.shape());
    std::vector<double> scattered(hx.size(), 0.0);
    for (int64_t i = 0; i < hdy.size(); ++i) {
      const Window w = NaiveWindow(c, hx, average.shape(), i);
      ASSERT_EQ(got[0].At(i), w.max);
      ASSERT_EQ(got[1].IntAt(i), w.where);
      const double divisor = c.include_pad != 0 ? NumElements(c.kernel) : w.count;
      ASSERT_NEAR(got[2].At(i), w.sum / divisor, 1e-6);
      scattered[i / ys[1] * xs[1] + w.where] += hdy.At(i);
    }
    for (int64_t i = 0; i < hx.size(); ++i) ASSERT_NEAR(got[3].At(i), scattered[i], 1e-6);
    EXPECT_NEAR(Dot(hx, got[4]), Dot(got[2], hdy), 1e-5 * std::sqrt(Dot(got[2], got[2]) * Dot(hdy, hdy)));
  }
}

TEST(CpuNn, RandomOperatorsFollowTheSpecification) {
  const Shape shape = {3, 347};  // no multiple of the generator's block
  Graph graph;
  Builder b(&graph);
  const Val key = b.Input(InputKind::kFeed, "key", {DType::kUInt32, {4}}), x = b.Input(InputKind::kFeed, "x", F(shape));
  const int64_t stream = 12345;
  const Val outputs[] = {
      b.Op("Dropout", {x, key}, {{"ratio", 0.3}, {"stream", stream}}),
      b.Op("RandomUniform", {key}, {{"shape", shape}, {"low", -1.0}, {"high", 3.0}, {"stream", stream}}),
      b.Op("RandomNormal", {key}, {{"shape", shape}, {"mean", 1.0}, {"scale", 2.0}, {"stream", stream}})};
  ASSERT_TRUE(b.status().ok()) << b.status().message();
  for (const Val& v : outputs) graph.AddOutput(StrCat("v", v.id()), v.id());
  std::mt19937 random(5);
  const HostTensor hx = RandomTensor(F(shape), random);
  const uint32_t piece = MakePiece(7, 5);
  const int64_t words[] = {42, 7, 3, piece};
  const auto got = RunOnce(Cpu(), graph, {{"key", HostTensor::FromInts({DType::kUInt32, {4}}, words)}, {"x", hx}});
  const PhiloxKey k{42, 7, 3, piece};
  const auto first = static_cast<int64_t>(FirstElement(piece, hx.size()));
  for (int64_t i = 0; i < hx.size(); ++i) {
    const int64_t e = first + i;
    const PhiloxBlock block = RandomBlock(k, stream, e / 4);
    const float u = WordToUniform(block[e % 4]);
    const float expected = u >= 0.3f ? hx.data<float>()[i] / 0.7f : 0.0f;
    ASSERT_EQ(got[0].data<float>()[i], expected) << i;
    ASSERT_NEAR(got[1].At(i), -1 + 4 * u, 1e-6);
    ASSERT_NEAR(got[2].At(i), 1 + 2 * BoxMuller(block[e % 4 / 2 * 2], block[e % 4 / 2 * 2 + 1])[e % 2], 1e-6);
  }
}

}  // namespace
}  // namespace onnxtrain
