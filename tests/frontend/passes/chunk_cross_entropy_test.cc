// Heads divided into blocks of rows: the same numbers, smaller values, and heads that stay whole.
#include "frontend/passes/chunk_cross_entropy.h"

#include <algorithm>

#include "frontend/ops/builder.h"
#include "frontend/ops/dequantize.h"
#include "frontend/passes/differentiate.h"
#include "frontend/passes/eliminate.h"
#include "tests/frontend/passes/testing.h"

namespace onnxtrain {
namespace {

constexpr int64_t kRows = 7, kClasses = 5;
constexpr CrossEntropyChunks kSmall = {.min_bytes = 0, .min_rows = 2, .max_blocks = 3, .row_multiple = 1};

struct HeadOptions {
  bool stored = false;  // w is frozen, and multiplied by as the file stores it
  bool bias = true, weight_by_class = true, gradients = true, logits_output = false, squared = false, soft = false;
  Attrs attrs = {};
};

// x [7,1,3]·w (+ bias) → cross entropy → sum, number of correct rows, and gradients of x, w and bias.
class HeadGraph {
 public:
  explicit HeadGraph(const HeadOptions& o) {
    std::vector<Val> weights = {Input("x", {kRows, 1, 3})};
    Val logits = Multiply(Tanh(weights[0]), o, &weights);
    if (o.bias) {
      weights.push_back(Input("bias", {kClasses}));
      logits = logits + weights.back();
    }
    const Val labels = b_.Input(InputKind::kFeed, "labels", {DType::kInt64, {kRows}});
    const Val rows = Reshape(logits, {kRows, kClasses});
    const std::vector<Val> out = b_.Ops("CrossEntropy", {rows, labels}, o.attrs);
    const Val best = b_.Op("ArgMax", {rows}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}});
    Val loss = ReduceSum(o.squared ? out[0] * out[0] : out[0], {}, false);
    if (o.soft) loss = loss + ReduceSum(out[1], {}, false);
    graph_.AddOutput("loss", loss.id());
    graph_.AddOutput("correct", ReduceSum(Cast(Equal(best, labels), DType::kFloat64), {}, false).id());
    if (o.logits_output) graph_.AddOutput("logits", logits.id());
    if (o.gradients) AddGradients(loss, weights);
    EXPECT_TRUE(b_.status().ok()) << b_.status();
    graph_ = Dce(graph_);
  }

  const Graph& graph() const { return graph_; }

 private:
  Val Input(const char* name, Shape shape) {
    return b_.Input(InputKind::kParameter, name, {DType::kFloat64, std::move(shape)});
  }

  // Adds w to the weights unless it is frozen.
  Val Multiply(Val x, const HeadOptions& o, std::vector<Val>* weights) {
    Shape shape = o.weight_by_class ? Shape{kClasses, 3} : Shape{3, kClasses};
    if (o.stored) {
      const Val w = b_.Input(InputKind::kFrozen, "w", {DType::kFloat32, std::move(shape)});
      return MatMulDequantized(x, FloatOperands(w), o.weight_by_class);
    }
    weights->push_back(Input("w", std::move(shape)));
    return MatMul(x, weights->back(), false, o.weight_by_class);
  }

  // The seed is an input, as in training.
  void AddGradients(Val loss, const std::vector<Val>& weights) {
    const Val seed = b_.Input(InputKind::kFeed, "seed", {DType::kFloat64, {}});
    std::vector<ValueId> ids;
    for (const Val& w : weights) ids.push_back(w.id());
    const auto gradients = Differentiate(&graph_, loss.id(), ids, seed.id());
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    for (ValueId w : ids) graph_.AddOutput("d" + graph_.inputs()[graph_.value(w).index].name, gradients->at(w));
  }

  Graph graph_;
  Builder b_{&graph_};
};

Graph Chunk(const Graph& graph, const CrossEntropyChunks& chunks = kSmall) {
  auto chunked = ChunkCrossEntropy(graph, chunks);
  EXPECT_TRUE(chunked.ok()) << chunked.status();
  EXPECT_TRUE(Verify(*chunked).ok()) << Verify(*chunked);
  return *std::move(chunked);
}

int64_t CountHeads(const Graph& graph) { return std::ranges::count(graph.nodes(), "CrossEntropy", &Node::op); }

// Elements of the largest value with as many columns as there are classes.
int64_t MaxLogits(const Graph& graph) {
  int64_t elements = 0;
  for (const Node& node : graph.nodes()) {
    for (ValueId v : node.outputs) {
      const Type& type = graph.type(v);
      if (type.rank() > 1 && type.shape.back() == kClasses && type.shape[0] > 3)
        elements = std::max(elements, type.elements());
    }
  }
  return elements;
}

TEST(ChunkCrossEntropy, SameNumbersInBlocks) {
  const Attrs kAttrs[] = {{}, {{"ignore_index", int64_t{1}}}, {{"label_smoothing", 0.2}}};
  for (const Attrs& attrs : kAttrs) {
    for (bool bias : {true, false}) {
      for (bool by_class : {true, false}) {
        for (bool gradients : {true, false}) {
          const Graph whole =
              HeadGraph({.bias = bias, .weight_by_class = by_class, .gradients = gradients, .attrs = attrs}).graph();
          const Graph chunked = Chunk(whole);
          EXPECT_EQ(CountHeads(chunked), 3) << Print(chunked);
          EXPECT_EQ(MaxLogits(chunked), 0) << Print(chunked);
          EXPECT_EQ(MaxLogits(whole), kRows * kClasses);
          ExpectSameNumbers(whole, chunked, 1e-12);
        }
      }
    }
  }
}

TEST(ChunkCrossEntropy, WeightsAsStored) {
  for (const bool by_class : {true, false}) {
    const Graph whole = HeadGraph({.stored = true, .weight_by_class = by_class}).graph();
    const Graph chunked = Chunk(whole);
    EXPECT_EQ(CountHeads(chunked), 3) << Print(chunked);
    EXPECT_EQ(MaxLogits(chunked), 0) << Print(chunked);
    ExpectSameNumbers(whole, chunked, 1e-12);
  }
}

TEST(ChunkCrossEntropy, GradientsAreThoseOfFiniteDifferences) {
  const Graph chunked = Chunk(HeadGraph({.attrs = {{"label_smoothing", 0.1}}}).graph());
  auto inputs = RandomInputs(chunked);
  inputs.at("seed") = HostTensor::Scalar(DType::kFloat64, 1);
  const std::vector<HostTensor> at = MustRun(chunked, inputs);
  size_t output = 2;
  for (const char* name : {"x", "w", "bias"}) {
    const HostTensor& gradient = at[output++];
    for (int64_t i = 0; i < gradient.size(); ++i) {
      const auto loss_at = [&](double step) {
        auto moved = inputs;
        HostTensor value = inputs.at(name).Clone();
        value.Set(i, value.At(i) + step);
        moved.at(name) = value;
        return MustRun(chunked, moved)[0].At(0);
      };
      EXPECT_NEAR((loss_at(1e-5) - loss_at(-1e-5)) / 2e-5, gradient.At(i), 1e-8) << name << " " << i;
    }
  }
}

TEST(ChunkCrossEntropy, StaysWholeWhereOthersReadIt) {
  for (const HeadOptions& o :
       {HeadOptions{.logits_output = true}, HeadOptions{.squared = true}, HeadOptions{.soft = true}}) {
    const Graph whole = HeadGraph(o).graph();
    EXPECT_EQ(Print(Chunk(whole)), Print(whole));
  }
}

TEST(ChunkCrossEntropy, SmallHeadsStayWhole) {
  const Graph whole = HeadGraph({}).graph();
  EXPECT_FALSE(HasLargeCrossEntropy(whole));
  EXPECT_EQ(CountHeads(Chunk(whole, {})), 1);
  EXPECT_EQ(CountHeads(Chunk(whole, {.min_bytes = 0, .min_rows = 4})), 1) << "two blocks of 4 rows need 8";
}

TEST(ChunkCrossEntropy, BlocksAreNotDividedAgain) {
  const Graph whole = HeadGraph({}).graph();
  EXPECT_EQ(CountHeads(Chunk(whole, {.min_bytes = 0, .min_rows = 1, .max_blocks = 2, .row_multiple = 1})), 2);
}

}  // namespace
}  // namespace onnxtrain
