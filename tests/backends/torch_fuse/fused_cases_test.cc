// Every operator that generated kernels compute, by a CPU build of the generated source, against ATen's kernels.
#include <gtest/gtest.h>

#include <set>

#include "backends/torch/fuse/fuse_graph.h"
#include "backends/torch/kernels/element_functions.h"
#include "frontend/base/strings.h"
#include "test_backends.h"
#include "tests/ops/run.h"

namespace onnxtrain::aten {
namespace {

using cases::Case;
using cases::Tensors;

// The float inputs in half precision: what the kernel reads, computes in float32 and rounds.
Graph WithHalfInputs(const Graph& graph, DType half) {
  Graph result;
  std::map<ValueId, ValueId> map = {{kNoValue, kNoValue}};
  const auto narrow = [&](Type type) {
    if (type.dtype == DType::kFloat32) type.dtype = half;
    return type;
  };
  for (const GraphInput& input : graph.inputs())
    map[input.value] = result.AddInput(input.kind, input.name, narrow(graph.type(input.value)));
  for (const Node& node : graph.nodes()) {
    ValueIds inputs;
    for (ValueId v : node.inputs) inputs.push_back(map.at(v));
    std::vector<Type> types;
    for (ValueId v : node.outputs) types.push_back(narrow(graph.type(v)));
    const ValueIds outputs = result.AddNode(node.op, inputs, node.attrs, types).outputs;
    for (size_t i = 0; i < outputs.size(); ++i) map[node.outputs[i]] = outputs[i];
  }
  for (const GraphOutput& output : graph.outputs()) result.AddOutput(output.name, map.at(output.value));
  return result;
}

// The graph as one node of the backend.
Graph AsOneNode(const Graph& body) {
  Graph graph;
  ValueIds inputs;
  for (const GraphInput& input : body.inputs())
    inputs.push_back(graph.AddInput(InputKind::kFeed, input.name, body.type(input.value)));
  std::vector<Type> types;
  for (const GraphOutput& output : body.outputs()) types.push_back(body.type(output.value));
  const ValueIds outputs = graph.AddNode(kFusedOp, inputs, MakeFusedAttrs(body), types).outputs;
  for (size_t i = 0; i < outputs.size(); ++i) graph.AddOutput(body.outputs()[i].name, outputs[i]);
  return graph;
}

HostTensor ToHalf(const HostTensor& x, DType half) {
  HostTensor y({half, x.shape()});
  for (int64_t i = 0; i < x.size(); ++i) y.Set(i, x.At(i));
  return y;
}

struct Variant {
  std::string name;
  bool wide = false;
  DType half = DType::kFloat32;  // float32: none
};

Graph MakeBody(const Case& c, const Variant& variant) {
  const Graph graph = cases::MakeGraph(c, variant.wide);
  return variant.half == DType::kFloat32 ? graph : WithHalfInputs(graph, variant.half);
}

Tensors MakeFeeds(const Case& c, const Variant& variant, const Graph& body) {
  Tensors feeds = cases::MakeFeeds(c, body, variant.wide);
  for (auto& [name, tensor] : feeds) {
    if (variant.half != DType::kFloat32 && tensor.dtype() == DType::kFloat32) tensor = ToHalf(tensor, variant.half);
  }
  return feeds;
}

double GetTolerance(const Case& c, const Variant& variant) {
  if (variant.half == DType::kFloat32) return variant.wide ? 1e-11 : std::max(c.f32, 2e-6);
  return variant.half == DType::kBFloat16 ? 1.0 / 128 : 1.0 / 1024;  // one unit in the last place
}

// ATen's kernels for half precision on a GPU may round more than once. On a CPU, float32 is computed in their place.
Backend& GetReference(const Variant& variant) {
  static Backend* host = MakeTorchBackend(c10::Device("cpu"), nullptr).release();
  return variant.half == DType::kFloat32 ? PlainBackend() : *host;
}

// The operators that a kernel can be generated for.
std::set<std::string> CheckCases(const Variant& variant) {
  std::vector<const Case*> taken;
  std::vector<GeneratedKernel> kernels;
  for (const Case& c : cases::AllCases()) {
    const bool names_type = c.op == "Cast" || c.op == "Dequantize";
    if (variant.half != DType::kFloat32 && names_type) continue;
    auto kernel = GenerateKernel(MakeBody(c, variant), 64);
    if (!kernel.ok()) continue;
    kernels.push_back(*std::move(kernel));
    taken.push_back(&c);
  }
  const absl::Status compiled = CompileAll(kernels);
  EXPECT_TRUE(compiled.ok()) << compiled;
  std::set<std::string> ops;
  for (const Case* c : taken) {
    SCOPED_TRACE(c->name);
    const Graph body = MakeBody(*c, variant);
    const Tensors feeds = MakeFeeds(*c, variant, body);
    const auto want = cases::RunOn(GetReference(variant), body, feeds),
               got = cases::RunOn(FusingBackend(), AsOneNode(body), feeds);
    EXPECT_TRUE(want.ok()) << want.status();
    EXPECT_TRUE(got.ok()) << got.status();
    if (want.ok() && got.ok()) cases::ExpectNear(*got, *want, GetTolerance(*c, variant));
    ops.insert(c->op);
  }
  return ops;
}

TEST(FusedCases, Float32) {
  const std::set<std::string> ops = CheckCases({.name = "f32"});
  for (const char* op : {"LayerNorm", "LayerNormGrad", "RmsNorm", "RmsNormGrad", "Softmax", "LogSoftmax", "SoftmaxGrad",
                         "LogSoftmaxGrad", "Dropout", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "Cast"})
    EXPECT_TRUE(ops.contains(op)) << op;
  for (const std::string& op : ListElementOperators()) EXPECT_TRUE(ops.contains(op)) << op;
}

TEST(FusedCases, Float64) { EXPECT_GT(CheckCases({.name = "f64", .wide = true}).size(), 60u); }

TEST(FusedCases, BFloat16) { EXPECT_GT(CheckCases({.name = "bf16", .half = DType::kBFloat16}).size(), 60u); }

TEST(FusedCases, Float16) { EXPECT_GT(CheckCases({.name = "f16", .half = DType::kFloat16}).size(), 60u); }

}  // namespace
}  // namespace onnxtrain::aten
