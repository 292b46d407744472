// Layer and root mean square normalizations with sums, dropout and roundings around them are one node, and give what
// the separate nodes give.
#include <cmath>

#include "frontend/graph/text_form.h"
#include "frontend/ops/builder.h"
#include "frontend/passes/differentiate.h"
#include "tests/backends/cpu/testing.h"

namespace onnxtrain {
namespace {

struct Form {
  Shape shape = {6, 10, 28};
  double ratio = 0;       // of the dropout before the sum
  bool low = false;       // products of bf16 read the result and the gradient
  bool bias = true;       // of the normalization
  bool pre_norm = false;  // the sum goes on beside the normalization
  bool halves = false;    // what is added is bf16
  bool rms = false;       // no mean and no bias
  bool first = false;     // nothing but a sum over rows, through a view, reads the gradient

  std::string op() const { return rms ? "RmsNorm" : "LayerNorm"; }
};

std::string Text(const Form& f) {
  return StrCat(f.op(), " ", ToString(Type{DType::kFloat32, f.shape}), " ratio ", f.ratio, f.low ? " low" : "",
                f.bias ? " bias" : "", f.pre_norm ? " pre-norm" : "", f.halves ? " halves" : "",
                f.first ? " first" : "");
}

// What reads a value in float32, or as bf16.
Val Read(Val x, bool low) { return low ? Cast(Cast(x, DType::kBFloat16), DType::kFloat32) * 0.5 : x * 0.5; }

struct Block {
  Val sum, y;
  std::vector<Val> statistics;
};

Block Forward(Builder& b, const Form& f, Val x, Val residual, Val key, Val scale, Val bias) {
  const int64_t axis = std::ssize(f.shape) - 1;
  Val branch = f.halves ? Cast(x, DType::kFloat32) : x;
  if (f.ratio > 0) branch = b.Op("Dropout", {branch, key}, {{"ratio", f.ratio}, {"stream", int64_t{7}}});
  const Val sum = residual + branch;
  std::vector<Val> in = {sum, scale};
  if (f.bias && !f.rms) in.push_back(bias);
  const std::vector<Val> norm = b.Ops(f.op(), in, {{"axis", axis}, {"epsilon", 1e-5}});
  return {sum, norm[0], {norm.begin() + 1, norm.end()}};
}

// Forward and backward of a block as training graphs hold them, with outputs wherever a neighbour would read.
Graph Training(const Form& f) {
  Graph graph;
  Builder b(&graph);
  const auto feed = [&](const char* name, DType dtype = DType::kFloat32) {
    return b.Input(InputKind::kFeed, name, {dtype, f.shape});
  };
  const Shape row = {f.shape.back()};
  const Val x = feed("x", f.halves ? DType::kBFloat16 : DType::kFloat32), residual = feed("residual"), dy = feed("dy"),
            dy2 = feed("dy2"), dy3 = feed("dy3");
  const Val key = b.Input(InputKind::kFeed, "key", {DType::kUInt32, {4}});
  const Val scale = b.Input(InputKind::kParameter, "scale", {DType::kFloat32, row}),
            bias = b.Input(InputKind::kParameter, "bias", {DType::kFloat32, row});
  const auto out = [&](const char* name, Val v) { graph.AddOutput(name, v.id()); };
  const Block block = Forward(b, f, x, residual, key, scale, bias);
  out("y", Read(block.y, f.low));
  if (!f.low) out("y rounded", Cast(block.y, DType::kBFloat16));
  if (f.pre_norm) out("sum", Read(block.sum, false));
  std::vector<Val> in = {dy + dy2 + dy3, block.sum, scale};
  in.insert(in.end(), block.statistics.begin(), block.statistics.end());
  const std::vector<Val> grads = b.Ops(f.op() + "Grad", in, {{"axis", std::ssize(f.shape) - 1}});
  const Val dsum = f.pre_norm ? grads[0] + dy : grads[0];
  const Val branch = f.ratio > 0 ? b.Op("Dropout", {dsum, key}, {{"ratio", f.ratio}, {"stream", int64_t{7}}}) : dsum;
  if (f.first) {
    out("dx bias", ReduceSum(Reshape(branch, {branch.type().elements() / row[0], row[0]}), {0}));
  } else {
    out("dresidual", Read(dsum, false));
    out("dx", Read(branch, f.low));
    std::vector<int64_t> rows(f.shape.size() - 1);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
    out("dx bias", ReduceSum(branch, rows));
  }
  out("dscale", grads[1]);
  if (!f.rms) out("dbias", grads[2]);
  return graph;
}

int64_t CountOps(const Graph& graph, std::string_view op) {
  return std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& n) { return n.op == op; });
}

std::map<std::string, HostTensor> RunBound(BoundProgram program, const std::map<std::string, HostTensor>& inputs) {
  std::map<std::string, HostTensor> outputs;
  for (const auto& [name, value] : inputs) EXPECT_TRUE(program.Set(name, value).ok()) << name;
  EXPECT_TRUE(program.Run().ok());
  for (const GraphOutput& o : program.graph().outputs()) outputs[o.name] = program.Get(o.name).value();
  return outputs;
}

// The same bits; sums over rows are cut otherwise.
void ExpectSame(const std::string& name, const HostTensor& got, const HostTensor& want) {
  for (int64_t i = 0; i < got.size(); ++i) {
    const double tolerance = name == "dx bias" ? 1e-6 * std::max(1.0, std::abs(want.At(i))) : 0;
    if (std::abs(got.At(i) - want.At(i)) <= tolerance) continue;
    ADD_FAILURE() << name << " element " << i << ": " << got.At(i) << " for " << want.At(i);
    return;
  }
}

void CheckForm(const Form& f) {
  SCOPED_TRACE(Text(f));
  const Graph graph = Training(f);
  std::mt19937 random(3);
  std::map<std::string, HostTensor> inputs;
  for (const GraphInput& input : graph.inputs())
    inputs[input.name] = RandomTensor(graph.type(input.value), random, input.name == "key" ? 0 : -2, 2);
  const Graph legal = Cpu().Legalize(graph).value();
  BoundProgram fused = BoundProgram::Make(Cpu(), legal).value();
  const Graph& now = fused.graph();
  EXPECT_EQ(CountOps(now, "cpu." + f.op()), 1) << Print(now);
  EXPECT_EQ(CountOps(now, "cpu." + f.op() + "Grad"), 1);
  for (const std::string& op :
       {f.op(), f.op() + "Grad", std::string("Dropout"), std::string("ReduceSum"), std::string("Add")}) {
    EXPECT_EQ(CountOps(now, op), 0) << op << " of " << Print(now);
  }
  const auto got = RunBound(std::move(fused), inputs),
             want = RunBound(BoundProgram::Make(Cpu(), legal, {.keep_values = true}).value(), inputs);
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, value] : want) ExpectSame(name, got.at(name), value);
}

void CheckForms(bool rms) {
  for (const bool low : {false, true}) {
    for (const bool pre_norm : {false, true}) {
      for (const double ratio : {0.0, 0.3}) CheckForm({.ratio = ratio, .low = low, .pre_norm = pre_norm, .rms = rms});
    }
  }
}

TEST(CpuNorm, OneNodeEachWayGivesTheSameBits) {
  for (const bool rms : {false, true}) ForEachTarget([&] { CheckForms(rms); });
}

// Rows whose elements do not come in fours share random words; short and single rows, and those that fill the kernel's
// stack.
TEST(CpuNorm, RowsOfAnyLength) {
  for (const Shape& shape : {Shape{7, 29}, Shape{1, 5}, Shape{300, 1}, Shape{3, 4096}, Shape{40, 5, 257}}) {
    CheckForm({.shape = shape, .ratio = 0.4, .low = true});
    CheckForm({.shape = shape, .bias = false, .pre_norm = true});
    CheckForm({.shape = shape, .ratio = 0.4, .pre_norm = true, .rms = true});
  }
}

TEST(CpuNorm, TermsOfHalfPrecision) {
  for (const bool rms : {false, true}) {
    for (const double ratio : {0.0, 0.5}) CheckForm({.ratio = ratio, .low = true, .halves = true, .rms = rms});
  }
}

TEST(CpuNorm, GradientsThatOnlySumsOverRowsRead) {
  for (const double ratio : {0.0, 0.3}) {
    for (const bool pre_norm : {false, true}) CheckForm({.ratio = ratio, .pre_norm = pre_norm, .first = true});
  }
}

TEST(CpuNorm, LongRowsStayAsTheyAre) {
  for (const bool rms : {false, true}) {
    const Form form = {.shape = {2, 4097}, .ratio = 0.1, .rms = rms};
    const BoundProgram program = CompileGraph(Cpu(), Training(form));
    EXPECT_EQ(CountOps(program.graph(), form.op()), 1);
    EXPECT_EQ(CountOps(program.graph(), form.op() + "Grad"), 1);
  }
}

}  // namespace
}  // namespace onnxtrain
