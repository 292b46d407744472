#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "backends/cpu/lower/passes.h"
#include "backends/cpu/ops/ops.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/promote_types.h"
#include "frontend/base/status.h"
#include "frontend/passes/decompose.h"
#include "frontend/passes/eliminate.h"
#include "frontend/passes/pass.h"
#include "frontend/passes/simplify.h"

namespace onnxtrain::cpu {
namespace {

bool LacksKernel(const Graph& graph, const Node& node) {
  return node.op != "Constant" && FindKernel(graph, node) == nullptr;
}

using Vals = std::vector<Val>;
using Rule = Vals (*)(Rewriter& r, const Node& node, const Vals& in);

// Computes Softmax, LogSoftmax and their gradients along an inner axis by transposing it to the last.
Vals ComputeOnLastAxis(Rewriter& r, const Node& node, const Vals& in) {
  const int64_t axis = node.attrs.Int("axis");
  const int rank = in[0].rank();
  std::vector<int64_t> to_last(rank), back(rank);
  std::iota(to_last.begin(), to_last.end(), int64_t{0});
  std::rotate(to_last.begin() + axis, to_last.begin() + axis + 1, to_last.end());
  for (int i = 0; i < rank; ++i) back[to_last[i]] = i;
  Vals moved;
  for (const Val& x : in) moved.push_back(Transpose(x, to_last));
  return {Transpose(r.b().Op(node.op, moved, {{"axis", int64_t{rank - 1}}}), back)};
}

// Converts [N,C,…] to [N·…,C]; FromMatrix converts back.
Val ToMatrix(Val x) {
  const int64_t classes = x.dim(1);
  const int64_t rows = classes == 0 ? 0 : NumElements(x.shape()) / classes;
  return Reshape(Transpose(x, NchwToNhwcPerm(x.rank())), {rows, classes});
}

Val FromMatrix(Val x, const Shape& shape) {
  return Transpose(Reshape(x, ToChannelsLast(shape)), NhwcToNchwPerm(static_cast<int>(shape.size())));
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

// Returns, by operator, rules that rewrite a node without a kernel to one of the same operator with a kernel.
const std::map<std::string_view, Rule>& Rules() {
  static const auto* rules = new std::map<std::string_view, Rule>{
      {"Softmax", ComputeOnLastAxis},         {"LogSoftmax", ComputeOnLastAxis},
      {"SoftmaxGrad", ComputeOnLastAxis},     {"LogSoftmaxGrad", ComputeOnLastAxis},
      {"CrossEntropy", CrossEntropyOfMatrix}, {"CrossEntropyGrad", CrossEntropyGradOfMatrix},
  };
  return *rules;
}

bool CanMoveAxes(const Graph& graph, const Node& node) {
  const DType dtype = graph.type(node.inputs.empty() ? node.outputs[0] : node.inputs[0]).dtype;
  const bool is_real = dtype == DType::kFloat32 || dtype == DType::kFloat64;
  return Rules().contains(node.op) && is_real && LacksKernel(graph, node);
}

absl::StatusOr<Graph> MoveAxes(const Graph& graph) {
  const auto rule = [](Rewriter& r, const Node& node) -> std::optional<Vals> {
    if (!CanMoveAxes(r.from(), node)) return std::nullopt;
    return Rules().at(node.op)(r, node, r.MapOperands(node));
  };
  ASSIGN_OR_RETURN(const Graph moved, Rewrite(graph, rule));
  // A transpose that moves the classes last may cancel one that moved them away.
  return Simplify(Dce(moved));
}

// Returns an error for extents with which oneDNN overflows: it divides by zero, or searches for hours. The code that it
// generates for a window grows with the padding.
absl::Status CheckExtents(const Graph& graph, const Node& node) {
  constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max(), kMaxSpatial = int64_t{1} << 24,
                    kMaxPad = int64_t{1} << 20;
  if (FindOp(node.op)->flops == nullptr) return absl::OkStatus();
  for (int64_t pad : node.attrs.Ints("pads")) {
    if (pad > kMaxPad) return Invalid(NodeTag(node), "a padding of ", pad, " is too large");
  }
  const auto check = [&](ValueId v) -> absl::Status {
    const Shape& shape = graph.type(v).shape;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] > (node.attrs.Has("pads") && i > 1 ? kMaxSpatial : kMaxRows))
        return Invalid(NodeTag(node), "extent ", shape[i], " of ", ToString(graph.type(v)), " is too large");
    }
    const int64_t rows = shape.empty() || shape.back() == 0 ? 0 : NumElements(shape) / shape.back();
    return rows <= kMaxRows ? absl::OkStatus() : Invalid(NodeTag(node), ToString(graph.type(v)), " has too many rows");
  };
  for (ValueId v : node.inputs) {
    if (v != kNoValue) RETURN_IF_ERROR(check(v));
  }
  for (ValueId v : node.outputs) RETURN_IF_ERROR(check(v));
  return absl::OkStatus();
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
    if (LacksKernel(graph, node)) lacking.push_back(Signature(graph, node));
  }
  if (lacking.empty()) return absl::OkStatus();
  return absl::UnimplementedError(StrCat("the cpu backend cannot run ", absl::StrJoin(lacking, ", ")));
}

// Returns true for a Where over bf16 or f16: it has a kernel, but float32 allows fusing it with its neighbors.
bool IsFusedInFloat32(const Graph& graph, const Node& node) {
  const DType dtype = graph.type(node.outputs[0]).dtype;
  return node.op == "Where" && (dtype == DType::kBFloat16 || dtype == DType::kFloat16);
}

bool UsesHalf(const Graph& graph, const Node& node) {
  const auto is_half = [&](ValueId v) {
    return v != kNoValue && IsFloat(graph.type(v).dtype) && DTypeSize(graph.type(v).dtype) == 2;
  };
  return std::ranges::any_of(node.inputs, is_half) || std::ranges::any_of(node.outputs, is_half);
}

bool UsesBf16(const Graph& graph) {
  return std::ranges::any_of(graph.values(), [](const Value& v) { return v.type->dtype == DType::kBFloat16; });
}

bool HasSpatialAxes(const Graph& graph, const Node& node) {
  const auto has_spatial_axes = [&](ValueId v) { return v != kNoValue && graph.type(v).rank() > 2; };
  return std::ranges::any_of(node.inputs, has_spatial_axes) || std::ranges::any_of(node.outputs, has_spatial_axes);
}

bool IsBatchNorm(const Graph&, const Node& node) { return node.op == "BatchNorm" || node.op == "BatchNormGrad"; }

}  // namespace

absl::StatusOr<Graph> LegalizeGraph(const Graph& graph) {
  for (const Node& node : graph.nodes()) RETURN_IF_ERROR(CheckExtents(graph, node));
  const auto lacks = [](const Graph& g, const Node& node) {
    return (LacksKernel(g, node) && !CanFoldHeadTransposes(g, node)) || IsFusedInFloat32(g, node);
  };
  const Pass supported[] = {
      {"group_queries", GroupQueries, AnyNode(HasOneQuery)},
      DcePass(),
      {"promote_half", [&](const Graph& g) { return PromoteHalfToFloat(g, lacks); }, AnyNode(UsesHalf)},
      {"fold_head_transposes", FoldHeadTransposes, AnyNode(CanFoldHeadTransposes)},
      {"move_axes", MoveAxes, AnyNode(CanMoveAxes)},
      {"decompose", [](const Graph& g) { return DecomposeNodes(g, LacksKernel); }, AnyNode(LacksKernel)},
      {"move_axes", MoveAxes, AnyNode(CanMoveAxes)},  // decompositions use such operators, too
      DcePass(),
  };
  const Pass selected[] = {
      {"eliminate_cast_round_trips", EliminateCastRoundTrips, UsesBf16},
      DcePass(),
      {"assign_layouts", AssignLayouts, AnyNode(HasSpatialAxes)},
      DcePass(),
      {"lower_batch_norms", LowerBatchNorms, AnyNode(IsBatchNorm)},
      DcePass(),
      {"find_rotations", FindRotations, AnyNodeOf("Concat")},
      DcePass(),
      {"fold_casts", FoldCasts, UsesBf16},
      DcePass(),
      {"pack_weights", PackWeights, AnyNode(IsWorthPacking)},
      {"widen_products", WidenProducts, UsesBf16},
      DcePass(),
  };
  ASSIGN_OR_RETURN(Graph legal, RunPasses(graph, supported));
  RETURN_IF_ERROR(CheckSupported(legal));
  return RunPasses(std::move(legal), selected);
}

}  // namespace onnxtrain::cpu
