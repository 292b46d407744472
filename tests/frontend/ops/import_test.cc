// ONNX nodes of many versions into canonical operators, and what no node may make the importer do.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "frontend/base/strings.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/ops/row.h"
#include "row_testing.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();

// Knows constants, and nothing of weights and states.
class TestImportContext : public ImportContext {
 public:
  TestImportContext(const NodeView& node, Builder* b) {
    node_ = &node;
    b_ = b;
  }
  const HostTensor* Known(size_t i) override { return in(i).constant(); }
  absl::StatusOr<Val> AsState(size_t) override { return absl::UnimplementedError("no state"); }
  void UpdateState(Val, Val, double) override {}
  Val RandomKey() override { return b().Constant(HostTensor({DType::kUInt32, {4}})); }
  int64_t RandomStream() override { return 0; }
};

struct NodeCase {
  std::string op;
  int version;
  std::vector<HostTensor> inputs;
  Attrs attrs;
  size_t fed = 1;  // so many of the inputs are fed, the others are constants
  int outputs = 1;
};

absl::StatusOr<std::vector<HostTensor>> ImportAndRun(const NodeCase& c, size_t fold_limit) {
  const OnnxOp* op = FindOnnxOp("", c.op);
  if (op == nullptr) return absl::NotFoundError(c.op);
  Graph graph;
  Builder b(&graph);
  b.set_fold_limit(fold_limit);
  NodeView view{.op_type = c.op, .version = c.version, .num_outputs = c.outputs, .attrs = c.attrs};
  view.used.assign(c.outputs, true);
  std::map<std::string, HostTensor> feeds;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const std::string name = StrCat("x", i);
    const bool fed = i < c.fed;
    view.inputs.push_back(fed ? b.Input(InputKind::kFeed, name, c.inputs[i].type()) : b.Constant(c.inputs[i]));
    if (fed) feeds.emplace(name, c.inputs[i]);
  }
  TestImportContext context(view, &b);
  auto results = op->import(context);
  if (!results.ok()) return results.status();
  if (!b.status().ok()) return b.status();
  for (Val y : *results) graph.AddOutput(StrCat("y", graph.outputs().size()), y.id());
  return Interpret(graph, feeds);
}

struct ImportCase {
  NodeCase node;
  std::string type;  // of the first output
  std::vector<double> values;
};

HostTensor V(const std::vector<double>& values) { return F64({static_cast<int64_t>(values.size())}, values); }
HostTensor W(const Ints& values) { return HostTensor::FromInts(values); }
HostTensor One(double value) { return F64({}, {value}); }
HostTensor IntOne(int64_t value) { return I64({}, {value}); }

void CheckCase(const ImportCase& c) {
  for (size_t fold_limit : {0, 1 << 20}) {
    const std::string name = StrCat(c.node.op, " ", c.node.version, " expecting ", c.type);
    const auto results = ImportAndRun(c.node, fold_limit);
    ASSERT_TRUE(results.ok()) << name << ": " << results.status();
    const HostTensor& y = results->front();
    EXPECT_EQ(ToString(y.type()), c.type) << name;
    ASSERT_EQ(static_cast<size_t>(y.size()), c.values.size()) << name;
    for (size_t i = 0; i < c.values.size(); ++i) {
      EXPECT_NEAR(y.At(static_cast<int64_t>(i)), c.values[i], 1e-12) << name << "[" << i << "]";
    }
  }
}

const HostTensor kX = F64({2, 3}, {1, 2, 3, 4, 5, 6});

TEST(Import, Elementwise) {
  const HostTensor channel = V({10, 20});
  const std::vector<ImportCase> cases = {
      {{"Add", 6, {F64({1, 2, 2}, {1, 2, 3, 4}), channel}, {{"broadcast", int64_t{1}}, {"axis", int64_t{1}}}, 2},
       "f64[1,2,2]",
       {11, 12, 23, 24}},
      {{"Add", 7, {F64({1, 2, 2}, {1, 2, 3, 4}), channel}, {}, 2}, "f64[1,2,2]", {11, 22, 13, 24}},
      {{"Relu", 1, {V({-1, 1})}, {{"consumed_inputs", Ints{0}}}}, "f64[2]", {0, 1}},
      {{"Sum", 8, {V({1, 2}), One(3), V({4, 5})}, {}, 3}, "f64[2]", {8, 10}},
      {{"Mean", 8, {V({1, 2}), V({3, 4})}, {}, 2}, "f64[2]", {2, 3}},
      {{"Max", 12, {V({1, 5}), V({3, 4}), One(2)}, {}, 3}, "f64[2]", {3, 5}},
      {{"Min", 12, {W({1, 5})}, {}}, "i64[2]", {1, 5}},
      {{"Clip", 6, {V({-9, 9})}, {{"min", -1.0}, {"max", 6.0}}}, "f64[2]", {-1, 6}},
      {{"Clip", 11, {V({-9, 9}), One(-1)}, {}}, "f64[2]", {-1, 9}},
      {{"Clip", 13, {V({-9, 9}), One(-1), One(2)}, {}, 3}, "f64[2]", {-1, 2}},
      {{"Clip", 13, {W({-9, 9}), IntOne(-1), IntOne(2)}, {}}, "i64[2]", {-1, 2}},
      {{"Pow", 13, {W({4, 9}), V({0.5, 2})}, {}, 2}, "i64[2]", {2, 81}},
      {{"Pow", 13, {V({4, 9}), W({2, -1})}, {}, 2}, "f64[2]", {16, 1 / 9.}},
      {{"Cast", 13, {V({1.5, -1.5})}, {{"to", int64_t{7}}}}, "i64[2]", {1, -1}},
      {{"Cast", 1, {V({1.5})}, {{"to", std::string("INT32")}}}, "i32[1]", {1}},
      {{"CastLike", 15, {V({1.5}), W({1})}, {}, 2}, "i64[1]", {1}},
      {{"Mod", 13, {V({5.5}), V({-2})}, {{"fmod", int64_t{1}}}, 2}, "f64[1]", {1.5}},
      {{"PRelu", 6, {F64({1, 2, 2}, {-1, 1, -1, -1}), channel}, {}, 2}, "f64[1,2,2]", {-10, 1, -20, -20}},
      {{"Gelu", 20, {V({1})}, {{"approximate", std::string("tanh")}}}, "f64[1]", {0.8411919906082768}},
      {{"Where", 16, {Bools({2}, {1, 0}), V({1, 2}), One(0)}, {}, 3}, "f64[2]", {1, 0}},
  };
  for (const ImportCase& c : cases) CheckCase(c);
}

TEST(Import, ReductionsAndProducts) {
  const double lse = std::log(std::exp(1.0) + std::exp(2.0) + std::exp(3.0));
  const std::vector<ImportCase> cases = {
      {{"ReduceSum", 11, {kX}, {{"axes", Ints{-1}}, {"keepdims", int64_t{0}}}}, "f64[2]", {6, 15}},
      {{"ReduceSum", 13, {kX, W({0})}, {}}, "f64[1,3]", {5, 7, 9}},
      {{"ReduceSum", 13, {V({1, 2}), W({})}, {{"noop_with_empty_axes", int64_t{1}}}}, "f64[2]", {1, 2}},
      {{"ReduceSumSquare", 18, {V({2, 3}), W({})}, {{"noop_with_empty_axes", int64_t{1}}}}, "f64[2]", {4, 9}},
      {{"ReduceMean", 18, {kX, W({1})}, {}}, "f64[2,1]", {2, 5}},
      {{"ReduceL1", 13, {V({-3, 4})}, {}}, "f64[1]", {7}},
      {{"ReduceL2", 13, {F64({2, 2}, {-3, 4, 0, 0})}, {{"axes", Ints{1}}, {"keepdims", int64_t{0}}}}, "f64[2]", {5, 0}},
      {{"ReduceLogSum", 13, {V({1, std::exp(1) - 1})}, {}}, "f64[1]", {1}},
      {{"ReduceLogSumExp",
        13,
        {F64({2, 3}, {1, 2, 3, 1001, 1002, 1003})},
        {{"axes", Ints{1}}, {"keepdims", int64_t{0}}}},
       "f64[2]",
       {lse, lse + 1000}},
      {{"ReduceMax", 20, {Bools({2, 2}, {0, 1, 0, 0}), W({1})}, {}}, "bool[2,1]", {1, 0}},
      {{"ArgMax", 13, {kX}, {{"axis", int64_t{-1}}, {"keepdims", int64_t{0}}}}, "i64[2]", {2, 2}},
      {{"CumSum", 14, {V({1, 2, 3}), IntOne(-1)}, {{"reverse", int64_t{1}}}}, "f64[3]", {6, 5, 3}},
      {{"MatMul", 13, {V({1, 2, 3}), V({4, 5, 6})}, {}, 2}, "f64[]", {32}},
      {{"MatMul", 13, {kX, V({1, 0, 1})}, {}, 2}, "f64[2]", {4, 10}},
      {{"MatMul", 13, {V({1, 1}), kX}, {}, 2}, "f64[3]", {5, 7, 9}},
      {{"Gemm", 13, {kX, kX, V({1, 2})}, {{"transB", int64_t{1}}, {"alpha", 2.0}, {"beta", 10.0}}, 3},
       "f64[2,2]",
       {38, 84, 74, 174}},
      {{"Gemm", 11, {kX, kX}, {{"transA", int64_t{1}}}, 2}, "f64[3,3]", {17, 22, 27, 22, 29, 36, 27, 36, 45}},
  };
  for (const ImportCase& c : cases) CheckCase(c);
}

NodeCase EinsumCase(const std::string& equation, std::vector<HostTensor> inputs) {
  const size_t fed = inputs.size();
  return {"Einsum", 12, std::move(inputs), {{"equation", equation}}, fed};
}

TEST(Import, Einsum) {
  const HostTensor square = F64({2, 2}, {1, 2, 3, 4}), one = F64({1, 2}, {10, 20});
  const std::vector<ImportCase> cases = {
      {EinsumCase("ij->ji", {kX}), "f64[3,2]", {1, 4, 2, 5, 3, 6}},
      {EinsumCase("ij->i", {kX}), "f64[2]", {6, 15}},
      {EinsumCase("ij,kj->ik", {kX, kX}), "f64[2,2]", {14, 32, 32, 77}},
      {EinsumCase("ij,jk", {square, square}), "f64[2,2]", {7, 10, 15, 22}},
      {EinsumCase("i,j->ji", {V({1, 2}), V({3, 4})}), "f64[2,2]", {3, 6, 4, 8}},
      {EinsumCase("ij,ij->ij", {square, square}), "f64[2,2]", {1, 4, 9, 16}},
      {EinsumCase("ii", {square}), "f64[]", {5}},
      {EinsumCase("ii->i", {square}), "f64[2]", {1, 4}},
      {EinsumCase("...i,i->...", {kX, V({1, 0, 1})}), "f64[2]", {4, 10}},
      {EinsumCase("...ij->...ji", {kX}), "f64[3,2]", {1, 4, 2, 5, 3, 6}},
      {EinsumCase("...,...->...", {square, one}), "f64[2,2]", {10, 40, 30, 80}},
      {EinsumCase("bij,bjk,bk->bi", {F64({1, 2, 2}, {1, 2, 3, 4}), F64({1, 2, 2}, {1, 0, 0, 1}), F64({1, 2}, {1, 1})}),
       "f64[1,2]",
       {3, 7}},
      {EinsumCase("ij,kl->", {square, square}), "f64[]", {100}},
  };
  for (const ImportCase& c : cases) CheckCase(c);
  for (const auto& [equation, message] :
       std::vector<std::pair<std::string, std::string>>{{"ij,jk", "2 terms for 1 inputs"},
                                                        {"ijk", "does not fit"},
                                                        {"i1", "cannot read"},
                                                        {"ij->k", "on no input"},
                                                        {"ij->ii", "twice"},
                                                        {"ii", "differ"},
                                                        {"ij->i->j", "cannot read"},
                                                        {"......", "cannot read"},
                                                        {"", "does not fit"}}) {
    const auto results = ImportAndRun(EinsumCase(equation, {kX}), 0);
    ASSERT_FALSE(results.ok()) << equation;
    EXPECT_NE(ToStd(results.status().message()).find(message), std::string_view::npos)
        << equation << ": " << results.status();
  }
}

TEST(Import, Shapes) {
  const HostTensor cube = F64({1, 4, 1, 1}, {0, 1, 2, 3});
  const HostTensor planes = F64({1, 2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  const std::vector<ImportCase> cases = {
      {{"Reshape", 13, {kX, W({0, -1, 1})}, {}}, "f64[2,3,1]", {1, 2, 3, 4, 5, 6}},
      {{"Reshape", 14, {F64({0, 3}, {}), W({3, 0})}, {{"allowzero", int64_t{1}}}}, "f64[3,0]", {}},
      {{"Reshape", 1, {V({1, 2})}, {{"shape", Ints{2, 1}}}}, "f64[2,1]", {1, 2}},
      {{"Flatten", 13, {F64({1, 2, 2}, {1, 2, 3, 4})}, {{"axis", int64_t{-1}}}}, "f64[2,2]", {1, 2, 3, 4}},
      {{"Flatten", 13, {V({1, 2})}, {{"axis", int64_t{0}}}}, "f64[1,2]", {1, 2}},
      {{"Squeeze", 13, {F64({1, 2, 1}, {1, 2}), W({-1})}, {}}, "f64[1,2]", {1, 2}},
      {{"Squeeze", 11, {F64({1, 2, 1}, {1, 2})}, {}}, "f64[2]", {1, 2}},
      {{"Unsqueeze", 11, {V({1, 2})}, {{"axes", Ints{0, -1}}}}, "f64[1,2,1]", {1, 2}},
      {{"Transpose", 13, {kX}, {}}, "f64[3,2]", {1, 4, 2, 5, 3, 6}},
      {{"Expand", 13, {V({1, 2}), W({2, 1})}, {}}, "f64[2,2]", {1, 2, 1, 2}},
      {{"Tile", 13, {F64({1, 2}, {1, 2}), W({2, 2})}, {}}, "f64[2,4]", {1, 2, 1, 2, 1, 2, 1, 2}},
      {{"Concat", 13, {kX, F64({2, 1}, {7, 8})}, {{"axis", int64_t{-1}}}, 2}, "f64[2,4]", {1, 2, 3, 7, 4, 5, 6, 8}},
      {{"Split", 2, {V({1, 2, 3, 4})}, {}, 1, 2}, "f64[2]", {1, 2}},
      {{"Split", 13, {V({1, 2, 3, 4}), W({3, 1})}, {}, 1, 2}, "f64[3]", {1, 2, 3}},
      {{"Split", 18, {V({1, 2, 3, 4, 5})}, {{"num_outputs", int64_t{2}}}, 1, 2}, "f64[3]", {1, 2, 3}},
      {{"Slice", 9, {V({1, 2, 3, 4})}, {{"starts", Ints{1}}, {"ends", Ints{kMax}}}}, "f64[3]", {2, 3, 4}},
      {{"Slice", 13, {kX, W({-1}), W({kMin}), W({1}), W({-2})}, {}}, "f64[2,2]", {3, 1, 6, 4}},
      {{"Slice", 13, {kX, W({5}), W({9}), W({0})}, {}}, "f64[0,3]", {}},
      {{"Slice", 13, {V({1, 2, 3}), W({0}), W({kMax}), W({0}), W({kMax})}, {}}, "f64[1]", {1}},
      {{"Pad", 2, {V({1, 2})}, {{"pads", Ints{1, 1}}, {"value", 5.0}}}, "f64[4]", {5, 1, 2, 5}},
      {{"Pad", 13, {V({1, 2, 3}), W({2, 2})}, {{"mode", std::string("reflect")}}}, "f64[7]", {3, 2, 1, 2, 3, 2, 1}},
      {{"Pad", 13, {V({1, 2}), W({1, 2})}, {{"mode", std::string("edge")}}}, "f64[5]", {1, 1, 2, 2, 2}},
      {{"Pad", 19, {V({1, 2, 3}), W({1, 1})}, {{"mode", std::string("wrap")}}}, "f64[5]", {3, 1, 2, 3, 1}},
      {{"Pad", 18, {kX, W({-1, 1}), One(9), W({1})}, {}}, "f64[2,3]", {2, 3, 9, 5, 6, 9}},
      {{"Shape", 15, {kX}, {{"start", int64_t{-1}}}}, "i64[1]", {3}},
      {{"Size", 13, {kX}, {}}, "i64[]", {6}},
      {{"ConstantOfShape", 9, {W({2})}, {{"value", I64({1}, {7})}}, 0}, "i64[2]", {7, 7}},
      {{"Constant", 13, {}, {{"value_ints", Ints{1, 2}}}}, "i64[2]", {1, 2}},
      {{"Range", 11, {IntOne(5), IntOne(-1), IntOne(-2)}, {}, 0}, "i64[3]", {5, 3, 1}},
      {{"Range", 11, {One(0), One(1), One(0.4)}, {}, 0}, "f64[3]", {0, 0.4, 0.8}},
      {{"EyeLike", 9, {kX}, {{"k", int64_t{1}}, {"dtype", int64_t{7}}}}, "i64[2,3]", {0, 1, 0, 0, 0, 1}},
      {{"Trilu", 14, {kX, IntOne(1)}, {}}, "f64[2,3]", {0, 2, 3, 0, 0, 6}},
      {{"Trilu", 14, {kX}, {{"upper", int64_t{0}}}}, "f64[2,3]", {1, 0, 0, 4, 5, 0}},
      {{"DepthToSpace", 13, {cube}, {{"blocksize", int64_t{2}}}}, "f64[1,1,2,2]", {0, 1, 2, 3}},
      {{"SpaceToDepth", 13, {F64({1, 1, 2, 2}, {0, 1, 2, 3})}, {{"blocksize", int64_t{2}}}},
       "f64[1,4,1,1]",
       {0, 1, 2, 3}},
      {{"SpaceToDepth", 13, {planes}, {{"blocksize", int64_t{2}}}}, "f64[1,8,1,1]", {0, 4, 1, 5, 2, 6, 3, 7}},
      {{"SpaceToDepth", 28, {planes}, {{"blocksize", int64_t{2}}, {"mode", std::string("CRD")}}},
       "f64[1,8,1,1]",
       {0, 1, 2, 3, 4, 5, 6, 7}},
  };
  for (const ImportCase& c : cases) CheckCase(c);
}

TEST(Import, Indices) {
  const HostTensor i32 = HostTensor::FromInts({DType::kInt32, {2}}, Ints{-1, 0});
  const std::vector<ImportCase> cases = {
      {{"Gather", 13, {kX, i32}, {{"axis", int64_t{1}}}, 2}, "f64[2,2]", {3, 1, 6, 4}},
      {{"Gather", 13, {kX, IntOne(-1)}, {}}, "f64[3]", {4, 5, 6}},
      {{"GatherElements", 13, {kX, I64({2, 1}, {-1, 0})}, {{"axis", int64_t{1}}}, 2}, "f64[2,1]", {3, 4}},
      {{"GatherND", 13, {kX, I64({2, 2}, {0, 1, -1, -1})}, {}, 2}, "f64[2]", {2, 6}},
      {{"GatherND", 13, {kX, I64({2, 1}, {2, -3})}, {{"batch_dims", int64_t{1}}}, 2}, "f64[2]", {3, 4}},
      {{"GatherND", 13, {kX, I64({1, 1}, {1})}, {}, 2}, "f64[1,3]", {4, 5, 6}},
      {{"ScatterElements", 16, {V({1, 2, 3}), W({-1, 0}), V({10, 20})}, {}, 3}, "f64[3]", {20, 2, 10}},
      {{"ScatterElements", 16, {W({1, 2, 3}), W({1, 1}), W({10, 20})}, {{"reduction", std::string("add")}}, 3},
       "i64[3]",
       {1, 32, 3}},
      {{"ScatterND", 16, {kX, I64({1, 1}, {-1}), F64({1, 3}, {7, 8, 9})}, {}, 3}, "f64[2,3]", {1, 2, 3, 7, 8, 9}},
      {{"OneHot", 11, {W({1, -1, 5}), IntOne(3), V({2, 7})}, {}}, "f64[3,3]", {2, 7, 2, 2, 2, 7, 2, 2, 2}},
      {{"OneHot", 11, {W({1, 0}), IntOne(2), V({0, 1})}, {{"axis", int64_t{0}}}}, "f64[2,2]", {0, 1, 1, 0}},
      {{"Compress", 11, {kX, Bools({3}, {1, 0, 1})}, {{"axis", int64_t{1}}}}, "f64[2,2]", {1, 3, 4, 6}},
      {{"NonZero", 13, {F64({2, 2}, {0, 1, 2, 0})}, {}, 0}, "i64[2,2]", {0, 1, 1, 0}},
  };
  for (const ImportCase& c : cases) CheckCase(c);
}

struct Refusal {
  NodeCase node;
  std::string message;  // a part of it
};

TEST(Import, Refusals) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  const Refusal cases[] = {
      {{"Expand", 13, {V({1}), W({kHuge})}, {}}, "more than 2^40"},
      {{"Expand", 13, {V({1, 2}), W({3})}, {}}, "cannot broadcast"},
      {{"Tile", 13, {V({1, 2}), W({kHuge})}, {}}, "more than 2^40"},
      {{"Tile", 13, {V({1, 2}), W({-1})}, {}}, "negative"},
      {{"Range", 11, {IntOne(0), IntOne(int64_t{1} << 40), IntOne(1)}, {}, 0}, "above the limit"},
      {{"Range", 11, {IntOne(kMin), IntOne(kMax), IntOne(1)}, {}, 0}, "2^40"},
      {{"Range", 11, {IntOne(0), IntOne(1), IntOne(0)}, {}, 0}, "delta is 0"},
      {{"Range", 11, {One(0), One(1), One(0)}, {}, 0}, "a range from"},
      {{"ConstantOfShape", 9, {W({kHuge, kHuge})}, {}, 0}, "2^40"},
      {{"OneHot", 11, {W({1}), IntOne(kHuge), V({0, 1})}, {}}, "2^40"},
      {{"OneHot", 11, {W({1}), IntOne(3), V({0})}, {}}, "values should be two numbers"},
      {{"Pad", 13, {V({1}), W({kMax, kMax})}, {}}, "out of range"},
      {{"Pad", 13, {V({1}), W({int64_t{1} << 39, 0})}, {{"mode", std::string("edge")}}}, "above the limit"},
      {{"Pad", 13, {V({1}), W({-1, -1})}, {}}, "cut more off"},
      {{"Pad", 13, {V({1}), W({1, 1})}, {{"mode", std::string("mirror")}}}, "unknown mode 'mirror'"},
      {{"Reshape", 13, {kX, W({-1, -1})}, {}}, "-1 twice"},
      {{"Reshape", 13, {kX, W({4, -1})}, {}}, "cannot reshape"},
      {{"Reshape", 13, {kX, W({kHuge, -1})}, {}}, "2^40"},
      {{"Reshape", 13, {kX, W({1, 1, 0})}, {}}, "does not have"},
      {{"Reshape", 13, {kX, W({2, 3})}, {}, 2}, "must be a constant"},
      {{"Squeeze", 13, {kX, W({0})}, {}}, "cannot squeeze axis 0"},
      {{"Unsqueeze", 13, {kX, W({0, 0})}, {}}, "given twice"},
      {{"Unsqueeze", 13, {kX, W({kMin})}, {}}, "outside"},
      {{"Slice", 13, {kX, W({0}), W({1}), W({0}), W({0})}, {}}, "a step is 0"},
      {{"Slice", 13, {kX, W({0, 0, 0}), W({1, 1, 1})}, {}}, "outside"},
      {{"Split", 13, {V({1, 2, 3})}, {}, 1, 2}, "does not split"},
      {{"Split", 13, {V({1, 2, 3}), W({1, 1})}, {}, 1, 2}, "leave 1"},
      {{"Split", 13, {V({1, 2, 3}), W({kHuge, kHuge})}, {}, 1, 2}, "cannot split"},
      {{"Gather", 13, {kX, W({2})}, {}}, "index 2 is outside an axis of extent 2"},
      {{"GatherND", 13, {kX, I64({1, 2}, {0, 3})}, {}}, "index 3 is outside"},
      {{"GatherND", 13, {kX, I64({1, 3}, {0, 0, 0})}, {}}, "do not index"},
      {{"Gemm", 13, {kX, kX, V({1, 2, 3})}, {{"transB", int64_t{1}}}, 3}, "does not broadcast"},
      {{"MatMul", 13, {One(1), kX}, {}, 2}, "a product of"},
      {{"Cast", 13, {kX}, {{"to", int64_t{8}}}}, "element type 8"},
      {{"DepthToSpace", 13, {kX}, {{"blocksize", int64_t{2}}}}, "rank 4"},
      {{"SpaceToDepth", 13, {F64({1, 1, 2, 2}, {0, 1, 2, 3})}, {{"blocksize", kHuge}}}, "out of range"},
      {{"ReduceSum", 13, {kX, W({2})}, {}}, "outside"},
      {{"Transpose", 13, {kX}, {{"perm", Ints{0, 5}}}}, "no permutation"},
  };
  for (const Refusal& c : cases) {
    const auto results = ImportAndRun(c.node, 1 << 20);
    ASSERT_FALSE(results.ok()) << c.node.op << " should fail with " << c.message;
    EXPECT_NE(ToStd(results.status().message()).find(c.message), std::string_view::npos)
        << c.node.op << ": " << results.status();
  }
}

// Any node of these families, with any inputs and attributes, ends in a graph or an error: quickly, in little memory.
TEST(Import, IsTotal) {
  std::mt19937 random(1);
  const std::string_view attrs[] = {"axis",       "axes",  "keepdims", "perm", "shape", "to",       "pads",
                                    "starts",     "ends",  "split",    "k",    "start", "end",      "blocksize",
                                    "batch_dims", "dtype", "min",      "max",  "alpha", "broadcast"};
  auto number = [&] {
    const int64_t extremes[] = {kMin, kMax, int64_t{1} << 40, -(int64_t{1} << 40), int64_t{1} << 20};
    return random() % 8 == 0 ? extremes[random() % 5] : static_cast<int64_t>(random() % 7) - 2;
  };
  int imported = 0;
  for (int round = 0; round < 300; ++round) {
    for (auto family : {ElementwiseImports, ReduceImports, MatmulImports, ShapeImports, IndexImports}) {
      for (const OnnxOp& op : family()) {
        if (!op.domain.empty()) continue;
        NodeCase c{std::string(op.op_type),           static_cast<int>(random() % 24) + 1, {}, {}, random() % 3,
                   static_cast<int>(random() % 3) + 1};
        const int count = op.min_inputs + static_cast<int>(random() % (std::min(op.max_inputs - op.min_inputs, 2) + 1));
        for (int i = 0; i < count; ++i) {
          constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kInt64,
                                      DType::kInt64,   DType::kBool,    DType::kInt32};
          Type type{kTypes[random() % 6], Shape(random() % 4)};
          for (int64_t& d : type.shape) d = static_cast<int64_t>(random() % 4);
          HostTensor t(type);
          for (int64_t k = 0; k < t.size(); ++k) t.SetInt(k, number());
          c.inputs.push_back(t);
        }
        for (int i = static_cast<int>(random() % 4); i > 0; --i) {
          const std::string name(attrs[random() % std::size(attrs)]);
          if (random() % 3 == 0) {
            c.attrs.Set(name, number());
          } else {
            c.attrs.Set(name, Ints{number(), number()});
          }
        }
        // Results that would be large are typed but not run: the fold limit keeps them expressions.
        Graph graph;
        Builder b(&graph);
        b.set_fold_limit(4096);
        NodeView view{.op_type = c.op, .version = c.version, .num_outputs = c.outputs, .attrs = c.attrs};
        view.used.assign(c.outputs, true);
        for (size_t i = 0; i < c.inputs.size(); ++i) {
          view.inputs.push_back(i < c.fed ? b.Input(InputKind::kFeed, StrCat("x", i), c.inputs[i].type())
                                          : b.Constant(c.inputs[i]));
        }
        TestImportContext context(view, &b);
        imported += op.import(context).ok() && b.status().ok();
      }
    }
  }
  EXPECT_GT(imported, 5000);
}

}  // namespace
}  // namespace onnxtrain
