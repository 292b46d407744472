#include "backends/cpu/legalize.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "backends/cpu/absorb_casts.h"
#include "backends/cpu/accumulate.h"
#include "backends/cpu/attention_ops.h"
#include "backends/cpu/channels_last.h"
#include "backends/cpu/fuse_elementwise.h"
#include "backends/cpu/fuse_relu.h"
#include "backends/cpu/kernel.h"
#include "backends/cpu/matmul_ops.h"
#include "backends/cpu/skip_rounding.h"
#include "backends/widen.h"
#include "frontend/base/status.h"
#include "frontend/passes/dce.h"
#include "frontend/passes/decompose.h"
#include "frontend/passes/rewrite.h"
#include "frontend/passes/simplify.h"

namespace onnxtrain::cpu {
namespace {

bool Lacks(const Graph& graph, const Node& node) { return node.op != "Constant" && FindKernel(graph, node) == nullptr; }

using Vals = std::vector<Val>;
using Rule = Vals (*)(Rewriter& r, const Node& node, const Vals& in);

// The order of axes that puts `axis` last, and the way back.
std::vector<int64_t> ToLast(int rank, int64_t axis) {
  std::vector<int64_t> perm;
  for (int64_t a = 0; a < rank; ++a) {
    if (a != axis) perm.push_back(a);
  }
  perm.push_back(axis);
  return perm;
}

std::vector<int64_t> FromLast(int rank, int64_t axis) {
  std::vector<int64_t> perm(rank);
  const auto there = ToLast(rank, axis);
  for (int i = 0; i < rank; ++i) perm[there[i]] = i;
  return perm;
}

// Softmax and its kin along an axis that is not the last.
Vals AlongLast(Rewriter& r, const Node& node, const Vals& in) {
  const int64_t axis = node.attrs.Int("axis");
  const int rank = in[0].rank();
  Vals moved;
  for (const Val& x : in) moved.push_back(Transpose(x, ToLast(rank, axis)));
  return {Transpose(r.b().Op(node.op, moved, {{"axis", int64_t{rank - 1}}}), FromLast(rank, axis))};
}

// [N,C,…] ↔ [N·…,C]
Val ToMatrix(Val x) {
  const int64_t classes = x.dim(1);
  const int64_t rows = classes == 0 ? 0 : NumElements(x.shape()) / classes;
  return Reshape(Transpose(x, ToLast(x.rank(), 1)), {rows, classes});
}

Val FromMatrix(Val x, const Shape& shape) {
  const auto perm = ToLast(static_cast<int>(shape.size()), 1);
  Shape moved;
  for (int64_t a : perm) moved.push_back(shape[a]);
  return Transpose(Reshape(x, moved), FromLast(static_cast<int>(shape.size()), 1));
}

Val Flat(Val x) { return Reshape(x, {NumElements(x.shape())}); }

Vals CrossEntropyOfMatrix(Rewriter& r, const Node& node, const Vals& in) {
  const Vals out = r.b().Ops("CrossEntropy", {ToMatrix(in[0]), Flat(in[1])}, node.attrs);
  return {Reshape(out[0], in[1].shape()), FromMatrix(out[1], in[0].shape())};
}

Vals CrossEntropyGradOfMatrix(Rewriter& r, const Node& node, const Vals& in) {
  const Val out = r.b().Op("CrossEntropyGrad", {Flat(in[0]), ToMatrix(in[1]), Flat(in[2])}, node.attrs);
  return {FromMatrix(out, in[1].shape())};
}

// For nodes that no kernel takes as they are, but another node of the same operator.
const std::map<std::string_view, Rule>& Rules() {
  static const auto* rules = new std::map<std::string_view, Rule>{
      {"Softmax", AlongLast},     {"LogSoftmax", AlongLast},
      {"SoftmaxGrad", AlongLast}, {"LogSoftmaxGrad", AlongLast},
      {"CrossEntropy", CrossEntropyOfMatrix}, {"CrossEntropyGrad", CrossEntropyGradOfMatrix},
  };
  return *rules;
}

absl::StatusOr<Graph> Reshaped(const Graph& graph) {
  bool changed = false;
  auto reshaped = Rewrite(graph, [](Rewriter& r, const Node& node) -> std::optional<Vals> {
    const auto rule = Rules().find(node.op);
    const bool is_float = r.from().type(node.inputs.empty() ? node.outputs[0] : node.inputs[0]).dtype == DType::kFloat32;
    if (rule == Rules().end() || !is_float || !Lacks(r.from(), node)) return std::nullopt;
    Vals in;
    for (ValueId v : node.inputs) in.push_back(r.Map(v));
    return rule->second(r, node, in);
  }, &changed);
  return reshaped.ok() && changed ? Simplify(Dce(*reshaped)) : reshaped;  // what moves classes last may meet what moved them away
}

// Σx² without x² in memory.
absl::StatusOr<Graph> FuseSquares(const Graph& graph) {
  const auto readers = Readers(graph);
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<Vals> {
    if (node.op != "ReduceSum" || graph.type(node.inputs[0]).dtype != DType::kFloat32) return std::nullopt;
    const Node* square = graph.producer(node.inputs[0]);
    const bool found = square != nullptr && square->op == "Mul" && square->inputs[0] == square->inputs[1] &&
                       readers[node.inputs[0]].size() == 1;
    if (!found) return std::nullopt;
    return Vals{r.b().Op("cpu.ReduceSumSquares", {r.Map(square->inputs[0])}, node.attrs)};
  });
}

std::string Signature(const Graph& graph, const Node& node) {
  std::string text = NodeTag(node);
  for (ValueId v : node.inputs) StrAppend(&text, v == kNoValue ? "-" : ToString(graph.type(v)), " ");
  StrAppend(&text, "→");
  for (ValueId v : node.outputs) StrAppend(&text, " ", ToString(graph.type(v)));
  return text;
}

absl::Status CheckSupported(const Graph& graph) {
  std::vector<std::string> lacking;
  for (const Node& node : graph.nodes()) {
    if (Lacks(graph, node)) lacking.push_back(Signature(graph, node));
  }
  if (lacking.empty()) return absl::OkStatus();
  return absl::UnimplementedError(StrCat("the cpu backend cannot run ", absl::StrJoin(lacking, ", ")));
}

// A choice between halves could be made as it is, but is part of a chain in float32.
bool ChoosesHalves(const Graph& graph, const Node& node) {
  const DType dtype = graph.type(node.outputs[0]).dtype;
  return node.op == "Where" && (dtype == DType::kBFloat16 || dtype == DType::kFloat16);
}

}  // namespace

absl::StatusOr<Graph> LegalizeGraph(const Graph& graph) {
  const auto lacks = [](const Graph& g, const Node& node) { return (Lacks(g, node) && !TakesHeads(g, node)) || ChoosesHalves(g, node); };
  ASSIGN_OR_RETURN(const Graph in_float, ComputeHalvesInFloat(graph, lacks));
  ASSIGN_OR_RETURN(const Graph heads, AbsorbHeads(in_float));
  ASSIGN_OR_RETURN(Graph reshaped, Reshaped(heads));
  ASSIGN_OR_RETURN(const Graph decomposed, DecomposeNodes(reshaped, Lacks));
  ASSIGN_OR_RETURN(const Graph reshaped_again, Reshaped(decomposed));  // decompositions use such operators, too
  const Graph clean = Dce(reshaped_again);
  RETURN_IF_ERROR(CheckSupported(clean));
  ASSIGN_OR_RETURN(const Graph exact, SkipRounding(clean));
  ASSIGN_OR_RETURN(const Graph moved, MoveChannelsLast(Dce(exact)));
  ASSIGN_OR_RETURN(const Graph activated, FuseRelu(Dce(moved)));
  ASSIGN_OR_RETURN(const Graph absorbed, AbsorbCasts(Dce(activated)));
  ASSIGN_OR_RETURN(const Graph squares, FuseSquares(Dce(absorbed)));
  ASSIGN_OR_RETURN(const Graph tables, FuseGatherGrads(squares));
  ASSIGN_OR_RETURN(const Graph products, FuseMatMuls(Dce(tables)));
  return FuseElementwise(Dce(products));
}

}  // namespace onnxtrain::cpu
