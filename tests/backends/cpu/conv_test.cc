// The three products of convolutions, channels last in float32, against plain loops in float64.
#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/graph/text_form.h"
#include "frontend/ops/builder.h"
#include "tests/backends/cpu/testing.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;

struct ConvCase {
  Shape x, w;
  int64_t stride = 1, dilation = 1;
  Ints pads = {1, 1, 1, 1};
  std::vector<std::string_view> ops = {"Conv", "Conv", "ConvWeightGrad"};
};
void PrintTo(const ConvCase& c, std::ostream* out) {
  *out << ToString(Type{DType::kFloat32, c.x}) << " by " << ToString(Type{DType::kFloat32, c.w}) << " stride "
       << c.stride << " dilation " << c.dilation;
}

int64_t Outputs(const ConvCase& c, int axis) {
  return (c.x[2 + axis] + c.pads[axis] + c.pads[2 + axis] - c.dilation * (c.w[2 + axis] - 1) - 1) / c.stride + 1;
}

// y, dx and dw.
Graph ConvGraph(const ConvCase& c, DType dtype) {
  Graph graph;
  Builder b(&graph);
  const auto input = [&](const std::string& name, Shape shape) {
    return b.Input(InputKind::kFeed, name, {dtype, std::move(shape)});
  };
  const Val x = input("x", c.x), w = input("w", c.w), dy = input("dy", {c.x[0], c.w[0], Outputs(c, 0), Outputs(c, 1)});
  const Attrs attrs = {
      {"strides", Ints(2, c.stride)}, {"pads", c.pads}, {"dilations", Ints(2, c.dilation)}, {"group", int64_t{1}}};
  Attrs back = attrs, weights = attrs;
  back.Set("output_shape", Ints{c.x[2], c.x[3]});
  weights.Set("kernel_shape", Ints{c.w[2], c.w[3]});
  graph.AddOutput("y", b.Op("Conv", {x, w}, attrs).id());
  graph.AddOutput("dx", b.Op("ConvTranspose", {dy, w}, back).id());
  graph.AddOutput("dw", b.Op("ConvWeightGrad", {x, dy}, weights).id());
  EXPECT_TRUE(b.status().ok()) << b.status().message();
  return graph;
}

// Of a size at which single sums do not vanish.
double Size(const HostTensor& t) {
  double squares = 0;
  for (int64_t i = 0; i < t.size(); ++i) squares += t.At(i) * t.At(i);
  return std::sqrt(squares / static_cast<double>(t.size()));
}

// The largest error, in units of Size, of a thousand float32 sums of n products added one after another: each addition
// rounds a partial sum, which grows to Size, by up to half an epsilon, so the errors add up to eps·√(n/24); 8 of that.
double SumTolerance(int64_t n) {
  const double rounding = std::numeric_limits<float>::epsilon() * std::sqrt(static_cast<double>(n) / 24);
  return std::max(1e-5, 8 * rounding);
}

class CpuConv : public testing::TestWithParam<ConvCase> {
 protected:
  void Check() const {
    const Graph graph = ConvGraph(GetParam(), DType::kFloat32), exact = ConvGraph(GetParam(), DType::kFloat64);
    std::mt19937 random(3);
    std::map<std::string, HostTensor> inputs, wide;
    for (const GraphInput& input : graph.inputs()) {
      const HostTensor& narrow = inputs[input.name] = RandomTensor(graph.type(input.value), random);
      HostTensor& same = wide[input.name] = HostTensor({DType::kFloat64, narrow.type().shape});
      for (int64_t i = 0; i < narrow.size(); ++i) same.Set(i, narrow.At(i));
    }
    const Shape &w = GetParam().w, &dy = inputs.at("dy").type().shape;
    const int64_t terms[] = {NumElements(w) / w[0], NumElements(w) / w[1], NumElements(dy) / dy[1]};
    const auto got = RunOnce(Cpu(), graph, inputs), want = RunOnce(Cpu(), exact, wide);
    for (size_t o = 0; o < got.size(); ++o) {
      const double tolerance = SumTolerance(terms[o]) * Size(want[o]);
      for (int64_t i = 0; i < got[o].size(); ++i)
        ASSERT_NEAR(got[o].At(i), want[o].At(i), tolerance) << "output " << o << " at " << i;
    }
  }
};

TEST_P(CpuConv, AgreesWithLoopsInDouble) {
  ForEachTarget([&] { Check(); });
}

// At stride 1, the gradient of the input is a convolution, too.
TEST_P(CpuConv, RunsAsTheRightKernel) {
  const auto legal = Cpu().Legalize(ConvGraph(GetParam(), DType::kFloat32));
  ASSERT_TRUE(legal.ok()) << legal.status().message();
  for (size_t o = 0; o < 3; ++o) {
    const auto made = [&](const Node& n) { return n.op == GetParam().ops[o]; };
    EXPECT_EQ(std::count_if(legal->nodes().begin(), legal->nodes().end(), made),
              std::count(GetParam().ops.begin(), GetParam().ops.end(), GetParam().ops[o]))
        << Print(*legal);
  }
}

// The code that oneDNN generates grows with the padding.
TEST(CpuConvTest, HugePaddingIsRefused) {
  constexpr int64_t kPad = int64_t{1} << 28;
  const Graph graph =
      ConvGraph({.x = {1, 1, 4, 4}, .w = {1, 1, 3, 3}, .stride = kPad, .pads = Ints(4, kPad)}, DType::kFloat32);
  const auto legal = Cpu().Legalize(graph);
  ASSERT_FALSE(legal.ok());
  EXPECT_NE(legal.status().message().find("a padding of 268435456 is too large"), absl::string_view::npos)
      << legal.status();
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CpuConv,
    testing::Values(
        ConvCase{{2, 20, 40, 70}, {32, 20, 3, 3}},   // one block of rows and what is left
        ConvCase{{3, 16, 17, 150}, {64, 16, 3, 3}},  // rows longer than a block
        ConvCase{{4, 23, 30, 31}, {96, 23, 3, 3}, 2, 1, {1, 1, 1, 1}, {"Conv", "ConvTranspose", "ConvWeightGrad"}},
        ConvCase{{4, 17, 24, 25}, {32, 17, 1, 1}, 2, 1, {0, 0, 0, 0}, {"Conv", "ConvTranspose", "ConvWeightGrad"}},
        ConvCase{{2, 19, 30, 33}, {160, 19, 3, 2}, 1, 2, {0, 1, 3, 2}},  // unlike pads, a dilation
        ConvCase{{2, 16, 3, 41}, {32, 16, 5, 9}, 1, 1, {4, 8, 4, 8}},    // windows that miss whole rows
        ConvCase{{2, 40, 21, 22}, {48, 40, 3, 3}},                       // no whole blocks of output channels
        ConvCase{{2, 16, 9, 9},
                 {32, 16, 2, 2},
                 1,
                 1,
                 {2, 0, 0, 2},
                 {"Conv", "ConvTranspose", "ConvWeightGrad"}}));  // would need negative pads

}  // namespace
}  // namespace onnxtrain
