#include <algorithm>
#include <map>
#include <tuple>

#include "backends/cpu/kernels/conv.h"
#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/lower/passes.h"
#include "backends/cpu/ops/ops.h"
#include "backends/cpu/runtime/dnnl_call.h"
#include "frontend/base/status.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain::cpu {
namespace {

// Packing a trained weight reads and writes it once per update. Measured with oneDNN 2.6 on two cores at 1024 rows, it
// saves a fourth of the product where an untransposed weight is wide or high, and 3 % elsewhere, half of its own cost.
// Packing to bf16 includes the cast.
constexpr int64_t kRowsToPackFrozen = 32, kRowsToPackTrained = 512, kRowsToPackAny = 2048, kMinWideDim = 1024;

// The second operand of a product a·b.
struct Weight {
  const Graph& graph;
  const Node& product;

  const Type& a() const { return graph.type(product.inputs[0]); }
  const Shape& shape() const { return graph.type(product.inputs[1]).shape; }
  bool is_bf16() const { return a().dtype == DType::kBFloat16; }
  bool is_transposed() const { return product.attrs.Int("trans_b") != 0; }
  int64_t rows() const { return a().elements() / a().shape.back(); }  // that are multiplied with it

  // Returns the value that a bf16 weight was cast from.
  ValueId Master() const {
    ValueId v = product.inputs[1];
    for (const Node* node = graph.producer(v);
         is_bf16() && node != nullptr && node->op == "Cast" && IsMultiplied(graph.type(node->inputs[0]).dtype);
         node = graph.producer(v))
      v = node->inputs[0];
    return v;
  }

  // The graph input or constant whose bytes the master has; kNoValue: none.
  ValueId Source() const {
    ValueId v = Master();
    while (const Node* node = graph.producer(v)) {
      if (!FindOp(node->op)->view) return graph.FindConstant(v) != nullptr ? v : kNoValue;
      v = node->inputs[0];
    }
    return v;
  }

  bool IsWorthPacking() const {
    if (!IsMultiplied(a().dtype) || shape().size() != 2 || product.attrs.Int("trans_a") != 0 || a().elements() == 0)
      return false;
    const ValueId source = Source();
    if (source == kNoValue) return false;
    const InputKind kind = graph.IsInput(source) ? graph.inputs()[graph.value(source).index].kind : InputKind::kFrozen;
    const bool wide = !is_transposed() && std::max(shape()[0], shape()[1]) >= kMinWideDim;
    if (kind == InputKind::kParameter) return rows() >= (wide || is_bf16() ? kRowsToPackTrained : kRowsToPackAny);
    return (kind == InputKind::kFrozen || kind == InputKind::kDerived) && rows() >= kRowsToPackFrozen;
  }

  // Invalid where oneDNN prefers it as it is.
  Val Pack(Rewriter& r) const {
    const int64_t k = a().shape.back(), n = graph.type(product.outputs[0]).shape.back();
    std::optional<dnnl::memory::desc> layout;
    const absl::Status status = CatchDnnlErrors([&] { layout = FindPackedLayout(rows(), k, n, a().dtype); });
    if (!status.ok()) return r.b().Fail(status);
    if (!layout) return Val();
    return r.b().Op(
        "cpu.PackWeight", {r.Map(Master())},
        {{"layout", ToInts(*layout)}, {"flipped", int64_t{is_transposed()}}, {"to", std::string(ToString(a().dtype))}});
  }
};

}  // namespace

bool IsWorthPacking(const Graph& graph, const Node& node) {
  return node.op == "MatMul" && Weight{graph, node}.IsWorthPacking();
}

absl::StatusOr<Graph> PackWeights(const Graph& graph) {
  std::map<std::tuple<ValueId, int64_t, bool>, Val> packed;  // shared by all products of as many rows
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    if (!IsWorthPacking(graph, node)) return std::nullopt;
    const Weight weight{graph, node};
    const auto [it, fresh] = packed.try_emplace({node.inputs[1], weight.rows(), weight.is_transposed()});
    if (fresh) it->second = weight.Pack(r);
    if (!it->second) return std::nullopt;
    return std::vector<Val>{r.b().Op("MatMul", {r.Map(node.inputs[0]), it->second})};
  });
}

}  // namespace onnxtrain::cpu
