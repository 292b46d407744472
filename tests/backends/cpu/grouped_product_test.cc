// Products with one of several matrices for each row, in float32 and bf16, against the host's evaluation. All numbers
// are small integers, so that only the rounding of results to bf16 may differ.
#include <algorithm>
#include <cmath>

#include "frontend/ops/builder.h"
#include "frontend/ops/grouped_product.h"
#include "frontend/ops/host_eval.h"
#include "tests/backends/cpu/testing.h"

namespace onnxtrain {
namespace {

constexpr int64_t kGroups = 5;

// Indices that give the groups different numbers of rows: from group 0, which has most, to 3, which has none.
HostTensor Indices(int64_t m) {
  HostTensor ids({DType::kInt64, {m}});
  for (int64_t i = 0; i < m; ++i) ids.SetInt(i, i % 3 != 0 ? 0 : i % 7 == 0 ? -1 : i % 2 == 0 ? 1 : 2);
  return ids;
}

HostTensor Integers(Shape shape, int64_t seed) {
  HostTensor t({DType::kFloat32, std::move(shape)});
  for (int64_t i = 0; i < t.size(); ++i) t.Set(i, static_cast<double>((i * 7 + i / 13 * 5 + seed) % 5 - 2));
  return t;
}

// The relative error of a result whose operands have this type.
double Rounding(DType dtype) { return dtype == DType::kBFloat16 ? 1.0 / 256 : 0; }

void ExpectEvaluated(const Graph& graph, const std::map<std::string, HostTensor>& inputs, double rounding) {
  const auto want = Interpret(graph, inputs);
  ASSERT_TRUE(want.ok()) << want.status();
  BoundProgram program = CompileGraph(Cpu(), graph);
  for (const auto& [name, value] : inputs) ASSERT_TRUE(program.Set(name, value).ok());
  ASSERT_TRUE(program.Run().ok());
  const HostTensor got = program.Get("y").value();
  for (int64_t i = 0; i < got.size(); ++i)
    ASSERT_LE(std::abs(got.At(i) - (*want)[0].At(i)), rounding * std::abs((*want)[0].At(i))) << i;
}

// m rows by m / repeats rows of x with matrices [rows, columns].
struct Case {
  int64_t m, repeats, rows, columns;
  bool transposed;
};

class GroupedProducts : public ::testing::TestWithParam<DType> {
 protected:
  static void CheckProduct(const Case& c) {
    const int64_t n = c.m / c.repeats;
    const std::map<std::string, HostTensor> inputs = {{"x", Integers({n, c.transposed ? c.columns : c.rows}, 1)},
                                                      {"w", Integers({kGroups * c.rows, c.columns}, 2)},
                                                      {"ids", Indices(c.m)}};
    Graph graph;
    Builder b(&graph);
    const auto input = [&](const std::string& name) { return b.Input(InputKind::kFeed, name, inputs.at(name).type()); };
    const Val x = Cast(input("x"), GetParam()), w = input("w"), ids = input("ids");
    const Val y = GroupedMatMul(x, ids, FloatOperands(w), kGroups, c.transposed);
    graph.AddOutput("y", Cast(y, DType::kFloat32).id());
    ASSERT_TRUE(b.status().ok()) << b.status();
    ExpectEvaluated(graph, inputs, Rounding(GetParam()));
  }

  static void CheckWeightGrad(const Case& c) {
    const std::map<std::string, HostTensor> inputs = {
        {"a", Integers({c.m, c.rows}, 1)}, {"b", Integers({c.m / c.repeats, c.columns}, 2)}, {"ids", Indices(c.m)}};
    Graph graph;
    Builder b(&graph);
    const auto input = [&](const std::string& name) { return b.Input(InputKind::kFeed, name, inputs.at(name).type()); };
    const Val y =
        b.Op("GroupedMatMulWeightGrad", {Cast(input("a"), GetParam()), Cast(input("b"), GetParam()), input("ids")},
             {{"groups", kGroups}});
    graph.AddOutput("y", y.id());
    ASSERT_TRUE(b.status().ok()) << b.status();
    ExpectEvaluated(graph, inputs, 0);  // sums are float32
  }
};

INSTANTIATE_TEST_SUITE_P(Types, GroupedProducts, ::testing::Values(DType::kFloat32, DType::kBFloat16),
                         [](const auto& info) { return std::string(ToString(info.param)); });

TEST_P(GroupedProducts, OfManyRowsAgree) {
  for (const bool transposed : {false, true}) {
    CheckProduct({260, 1, 96, 264, transposed});
    CheckProduct({2500, 1, 8, 70, transposed});
    CheckProduct({160, 2, 64, 130, transposed});
  }
}

TEST_P(GroupedProducts, OfFewRowsAgree) {
  for (const bool transposed : {false, true}) {
    CheckProduct({3, 1, 70, 90, transposed});
    CheckProduct({8, 4, 5, 3, transposed});
  }
}

TEST_P(GroupedProducts, GradientsOfWeightsAgree) {
  CheckWeightGrad({260, 1, 64, 96, true});
  CheckWeightGrad({300, 2, 33, 70, true});
  CheckWeightGrad({3, 1, 5, 7, true});
  CheckWeightGrad({2500, 1, 6, 9, true});
}

}  // namespace
}  // namespace onnxtrain
