// Collective operators within programs of several ranks. Ranks are threads with a backend and Gloo connections each.
#include <map>
#include <optional>
#include <set>

#include "backends/bound_program.h"
#include "backends/registry.h"
#include "frontend/base/strings.h"
#include "frontend/graph/text_form.h"
#include "frontend/ops/collective.h"
#include "frontend/ops/row.h"
#include "frontend/passes/collectives.h"
#include "frontend/passes/differentiate.h"
#include "optim/step/program/optimize.h"
#include "tests/optim/parallel/gloo_ranks.h"
#include "tests/optim/parallel/local_device.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

// Element i of input `seed` on a rank.
double Element(int rank, int seed, int64_t i) { return rank * 10 + seed * 0.5 + static_cast<double>(i % 7) * 0.25; }

HostTensor MakeInput(const Type& type, int rank, int seed) {
  HostTensor tensor(type);
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.Set(i, Element(rank, seed, i));
  return tensor;
}

using Outputs = std::map<std::string, HostTensor>;

class CollectiveOps : public Scratch, public ::testing::WithParamInterface<std::string> {
 protected:
  // Runs the graph on every rank, with feeds of MakeInput. Returns the outputs by rank.
  std::vector<Outputs> RunOnRanks(int size, const Graph& graph) const {
    std::vector<Outputs> all(size);
    RunRanks(Path("meet"), size, [&](Collectives& ranks) {
      auto outputs = RunOn(ranks, graph);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      all[ranks.rank()] = *std::move(outputs);
    });
    return all;
  }

  static absl::StatusOr<Outputs> RunOn(Collectives& ranks, const Graph& graph) {
    const auto backend = MakeTestBackend(GetParam());
    const auto device = backend->MeetOnDevice(ranks);
    if (!device.ok()) return device.status();
    const Graph optimized = OptimizeProgram(graph, DType::kFloat32).value();
    auto bound = BoundProgram::Make(*backend, backend->Legalize(optimized).value()).value();
    absl::Status status = bound.program().BindGroup("world", *device != nullptr ? device->get() : &ranks);
    int seed = 0;
    for (const GraphInput& input : graph.inputs())
      status.Update(bound.Set(input.name, MakeInput(graph.type(input.value), ranks.rank(), seed++)));
    if (status.ok()) status = bound.Run();
    if (!status.ok()) return status;
    Outputs outputs;
    for (const GraphOutput& output : graph.outputs()) outputs[output.name] = bound.Get(output.name).value();
    return outputs;
  }
};

// A graph y = f(x) with the outputs y and, for dy = input `dy`, dx.
struct WithGradient {
  Graph graph;
  WithGradient(const Type& type, const std::function<Val(Val)>& f) {
    Builder b(&graph);
    const Val x = b.Input(InputKind::kFeed, "x", type), y = f(x);
    const Val dy = b.Input(InputKind::kFeed, "dy", y.type());
    const std::vector<Seed> seeds = {{y.id(), dy.id()}};
    const std::vector<ValueId> inputs = {x.id()};
    const auto gradients = Differentiate(&graph, seeds, inputs);
    EXPECT_TRUE(b.status().ok() && gradients.ok()) << b.status() << gradients.status();
    graph.AddOutput("y", y.id());
    graph.AddOutput("dx", gradients->at(x.id()));
  }
};

double SumOver(int size, int seed, int64_t i) {
  double sum = 0;
  for (int r = 0; r < size; ++r) sum += Element(r, seed, i);
  return sum;
}

INSTANTIATE_TEST_SUITE_P(On, CollectiveOps, ::testing::Values("cpu", "torch", kLocalDevice));

TEST_P(CollectiveOps, AllReduceAndItsGradients) {
  const Type type{DType::kFloat64, {5, 3}};
  for (const bool deterministic : {false, true}) {
    for (const int size : {2, 3, 4}) {
      const RankGroup group{.size = size};
      const WithGradient summed(type, [&](Val x) { return AllReduce(x * 2, group, deterministic); }),
          partial(type, [&](Val x) { return SumPartial(x, group, deterministic); }),
          copied(type, [&](Val x) { return SumGradient(x, group, deterministic); });
      const auto by_sum = RunOnRanks(size, summed.graph), by_part = RunOnRanks(size, partial.graph),
                 by_copy = RunOnRanks(size, copied.graph);
      for (int r = 0; r < size; ++r) {
        for (int64_t i = 0; i < 15; ++i) {
          EXPECT_DOUBLE_EQ(by_sum[r].at("y").At(i), 2 * SumOver(size, 0, i));
          EXPECT_DOUBLE_EQ(by_sum[r].at("dx").At(i), 2 * SumOver(size, 1, i));
          EXPECT_DOUBLE_EQ(by_part[r].at("y").At(i), SumOver(size, 0, i));
          EXPECT_EQ(by_part[r].at("dx").At(i), Element(r, 1, i));
          EXPECT_EQ(by_copy[r].at("y").At(i), Element(r, 0, i));
          EXPECT_DOUBLE_EQ(by_copy[r].at("dx").At(i), SumOver(size, 1, i));
        }
      }
    }
  }
}

TEST_P(CollectiveOps, SumsHalfPrecisionInFloat32) {
  constexpr int kRanks = 4;
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    std::vector<Outputs> all(kRanks);
    RunRanks(Path("meet"), kRanks, [&](Collectives& ranks) {
      Graph graph;
      Builder b(&graph);
      const Val x = b.Constant(HostTensor::Scalar(DType::kFloat64, 10 * ranks.rank() + 1 / 3.0));
      const Val zeros = b.Input(InputKind::kFeed, "x", {DType::kFloat64, {4}}) * 0;
      graph.AddOutput("y", AllReduce(Cast(zeros + x, dtype), {.size = kRanks}).id());
      graph.AddOutput("z", ReduceScatter(Cast(zeros + x, dtype), {.size = kRanks}, 0).id());
      auto outputs = RunOn(ranks, graph);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      all[ranks.rank()] = *std::move(outputs);
    });
    HostTensor sum = HostTensor::Scalar(DType::kFloat64, 0);
    for (int r = 0; r < kRanks; ++r)
      sum.Set(0, sum.At(0) + HostTensor::Scalar(DType::kFloat64, 10 * r + 1 / 3.0).CastTo(dtype).At(0));
    const double expected = sum.CastTo(dtype).At(0);
    for (const Outputs& outputs : all) {
      for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(outputs.at("y").At(i), expected) << ToString(dtype);
      EXPECT_EQ(outputs.at("z").At(0), expected) << ToString(dtype);
    }
  }
}

// Along every axis: [2, 4, 3] of each rank, and dy of the shape of y.
TEST_P(CollectiveOps, AllGatherAndReduceScatterAreTheGradientsOfEachOther) {
  constexpr int kRanks = 2;
  const RankGroup group{.size = kRanks};
  const Shape shape = {2, 4, 6};
  for (int64_t axis = 0; axis < 3; ++axis) {
    const WithGradient gather({DType::kFloat32, shape}, [&](Val x) { return AllGather(x, group, axis); });
    const auto all = RunOnRanks(kRanks, gather.graph);
    const WithGradient scatter({DType::kFloat32, shape}, [&](Val x) { return ReduceScatter(x, group, axis); });
    const auto part = RunOnRanks(kRanks, scatter.graph);
    int64_t inner = 1;
    for (size_t a = axis + 1; a < shape.size(); ++a) inner *= shape[a];
    const int64_t block = shape[axis] * inner, half = block / kRanks;
    for (int r = 0; r < kRanks; ++r) {
      for (int64_t i = 0; i < 48; ++i) {
        const int64_t outer = i / block, at = i % block;
        for (int from = 0; from < kRanks; ++from)
          EXPECT_FLOAT_EQ(all[r].at("y").At((outer * kRanks + from) * block + at), Element(from, 0, i));
        EXPECT_FLOAT_EQ(all[r].at("dx").At(i), SumOver(kRanks, 1, (outer * kRanks + r) * block + at));
        EXPECT_FLOAT_EQ(part[r].at("dx").At(i), Element(static_cast<int>(at / half), 1, outer * half + at % half));
        if (at / half != r) continue;
        EXPECT_FLOAT_EQ(part[r].at("y").At(outer * half + at % half), SumOver(kRanks, 0, i));
      }
    }
  }
}

// What the ranks compute between exchanges is independent of the exchanges: nothing but their tokens orders them.
TEST_P(CollectiveOps, RanksMeetInOneOrderWhateverTheirBatchSizes) {
  constexpr int kRanks = 3;
  std::vector<Outputs> outputs(kRanks);
  RunRanks(Path("meet"), kRanks, [&](Collectives& ranks) {
    Graph graph;
    Builder b(&graph);
    const RankGroup group{.size = kRanks};
    for (int64_t k = 0; k < 8; ++k) {
      const int64_t samples = 1 + (ranks.rank() * 97 + k * 31) % 200;  // small here, large there
      const Val x = b.Input(InputKind::kFeed, StrCat("x", k), {DType::kFloat32, {samples, k + 1}});
      graph.AddOutput(StrCat("y", k), AllReduce(ReduceMean(x * x, {0}), group).id());
    }
    auto ran = RunOn(ranks, graph);
    ASSERT_TRUE(ran.ok()) << ran.status();
    outputs[ranks.rank()] = *std::move(ran);
  });
  for (int64_t k = 0; k < 8; ++k) {
    for (int r = 1; r < kRanks; ++r)
      EXPECT_EQ(outputs[0].at(StrCat("y", k)).At(0), outputs[r].at(StrCat("y", k)).At(0));
  }
}

// Cancellation shows the order: (1 + 1e16) − 1e16 is 0, 1 + (1e16 − 1e16) is 1.
TEST_P(CollectiveOps, DeterministicSumsAreInTheOrderOfTheRanks) {
  constexpr int kRanks = 4;
  const std::vector<double> values = {1, 1e16, -1e16, 3};
  RunRanks(Path("meet"), kRanks, [&](Collectives& ranks) {
    Graph graph;
    Builder b(&graph);
    const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat64, {5}});
    const HostTensor own = HostTensor::Scalar(DType::kFloat64, values[ranks.rank()]);
    graph.AddOutput("y", AllReduce(x * 0 + b.Constant(own), {.size = kRanks}, true).id());
    const auto y = RunOn(ranks, graph);
    ASSERT_TRUE(y.ok()) << y.status();
    for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(y->at("y").At(i), 3);
  });
}

TEST_P(CollectiveOps, GroupsMustBeBoundAndHaveTheirSize) {
  Graph graph;
  Builder b(&graph);
  graph.AddOutput("y", AllReduce(b.Input(InputKind::kFeed, "x", {DType::kFloat32, {2}}), {.size = 3}).id());
  const auto backend = MakeTestBackend(GetParam());
  auto bound = BoundProgram::Make(*backend, backend->Legalize(graph).value()).value();
  EXPECT_EQ(bound.Run().message(), "[AllReduce ''] no group 'world' of ranks is bound");
  RunRanks(Path("meet"), 2, [&](Collectives& ranks) {
    ASSERT_TRUE(ranks.Barrier("met").ok());  // else a rank may leave while the other is still connecting
    const auto status = RunOn(ranks, graph).status();
    EXPECT_EQ(status.message(), "[AllReduce ''] is of 3 ranks, group 'world' has 2");
  });
}

// A rank that is gone is named, and the operator where it was missed.
TEST_P(CollectiveOps, NamesALostRank) {
  Graph graph;
  Builder b(&graph);
  graph.AddOutput("y", AllReduce(b.Input(InputKind::kFeed, "x", {DType::kFloat32, {2}}), {.size = 2}).id());
  RunRanks(Path("meet"), 2, [&](Collectives& ranks) {
    ASSERT_TRUE(ranks.Barrier("met").ok());  // else rank 0 may still be connecting when rank 1 leaves
    if (ranks.rank() == 1) return;
    const auto status = RunOn(ranks, graph).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_NE(status.message().find("rank 1 does not answer"), std::string::npos) << status;
  });
}

TEST_P(CollectiveOps, MeetWithinNamedGroups) {
  RunRanks(Path("meet"), 4, [&](Collectives& world) {
    const int pair = world.rank() / 2, parity = world.rank() % 2;
    auto row = world.NewGroup(StrCat("row", pair), {2 * pair, 2 * pair + 1});
    auto column = world.NewGroup(StrCat("column", parity), {parity, parity + 2});
    ASSERT_TRUE(row.ok() && column.ok()) << row.status() << column.status();
    EXPECT_EQ((*row)->rank(), parity);
    EXPECT_EQ((*column)->rank(), pair);
    double sum = world.rank();
    ASSERT_TRUE(AllReduce(**row, "sum", {&sum, 1}).ok());
    EXPECT_EQ(sum, 4 * pair + 1);
    ASSERT_TRUE(AllReduce(**column, "sum", {&sum, 1}).ok());
    EXPECT_EQ(sum, 6);
    ASSERT_TRUE(world.Barrier("end").ok());
  });
}

TEST(OrderCollectives, ChainsThemByTheirTokens) {
  Graph graph;
  Builder b(&graph);
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {4}});
  graph.AddOutput("a", AllReduce(x, {.size = 2}).id());
  graph.AddOutput("b", AllGather(x, {.size = 2}, 0).id());
  graph.AddOutput("c", ReduceScatter(x, {.size = 2}, 0).id());
  const Graph ordered = OrderCollectives(graph).value();
  ASSERT_TRUE(Verify(ordered).ok()) << Verify(ordered);
  ASSERT_EQ(ordered.nodes().size(), 3);
  EXPECT_EQ(ordered.nodes()[0].inputs.size(), 1);
  for (size_t n : {1, 2}) {
    ASSERT_EQ(ordered.nodes()[n].inputs.size(), 2);
    EXPECT_EQ(ordered.nodes()[n].inputs[1], ordered.nodes()[n - 1].outputs[1]);
  }
}

}  // namespace
}  // namespace onnxtrain
