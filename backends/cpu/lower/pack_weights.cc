#include <algorithm>
#include <map>
#include <tuple>

#include "backends/cpu/kernels/conv.h"
#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/lower/passes.h"
#include "backends/cpu/ops/ops.h"
#include "backends/cpu/runtime/dnnl_call.h"
#include "frontend/base/status.h"
#include "frontend/ops/dequantize.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain::cpu {
namespace {

// Packing a trained weight of bf16 reads the float32 master and writes it once per update, which includes the cast.
// Trained weights of float32 are not packed: products of many rows read them plain as fast.
//
// A frozen weight is read from the file; packed copies for both passes would take twice its memory. Products of
// kRowsToTile rows lose at most 3 % without them (FindTileWidth; same machine, 1024 to 8192 rows and columns): they
// read a transposed weight without a copy, and pack any other tile by tile. Blocks of rows that share a weight, such as
// those of a cross entropy, count together. From kRowsOfBlock to kRowsToTile rows, MatMulDequantized multiplies in
// float32 and copies tiles into the caches.
constexpr int64_t kRowsToTile = 768, kRowsOfBlock = 256;
constexpr int64_t kRowsToPackFrozen = 32, kRowsToPackTrained = 512;

// The second operand of a product a·b.
struct Weight {
  const Graph& graph;
  const Node& product;

  const Type& a() const { return graph.type(product.inputs[0]); }
  const Shape& shape() const { return graph.type(product.inputs[1]).shape; }
  bool is_bf16() const { return a().dtype == DType::kBFloat16; }
  bool is_transposed() const { return product.attrs.Int("trans_b") != 0; }
  int64_t rows() const { return a().elements() / a().shape.back(); }  // rows of a
  int64_t columns() const { return graph.type(product.outputs[0]).shape.back(); }

  bool ReadsPlain() const { return ReadsPlainFloats(rows(), a().shape.back(), columns(), a().dtype, is_transposed()); }

  // Returns the master weight from which a bf16 weight was cast.
  ValueId Master() const {
    ValueId v = product.inputs[1];
    for (const Node* node = graph.producer(v);
         is_bf16() && node != nullptr && node->op == "Cast" && IsMultiplied(graph.type(node->inputs[0]).dtype);
         node = graph.producer(v))
      v = node->inputs[0];
    return v;
  }

  // Returns the graph input or constant of which the master is a view, or kNoValue.
  ValueId Source() const {
    ValueId v = Master();
    while (const Node* node = graph.producer(v)) {
      if (!FindOp(node->op)->view) return graph.FindConstant(v) != nullptr ? v : kNoValue;
      v = node->inputs[0];
    }
    return v;
  }

  InputKind kind() const {
    const ValueId source = Source();
    return graph.IsInput(source) ? graph.inputs()[graph.value(source).index].kind : InputKind::kFrozen;
  }

  bool IsWorthPacking() const {
    if (!IsMultiplied(a().dtype) || shape().size() != 2 || product.attrs.Int("trans_a") != 0 || a().elements() == 0)
      return false;
    if (Source() == kNoValue) return false;
    const InputKind kind = this->kind();
    if (kind == InputKind::kParameter) return is_bf16() && rows() >= kRowsToPackTrained;
    return (kind == InputKind::kFrozen || kind == InputKind::kDerived) && rows() >= kRowsToPackFrozen;
  }

  // Returns the product that packs tiles of the weight; invalid if it needs a packed copy.
  Val MultiplyTiles(Rewriter& r) const {
    const Type& master = graph.type(Master());
    const std::vector<Val> operands = {r.Map(product.inputs[0]), r.Map(Master())};
    if (is_transposed() && master.dtype == a().dtype) return r.b().Op("MatMul", operands, product.attrs);
    const int64_t k = a().shape.back(), n = columns();
    int64_t width = 0;
    const absl::Status status = CatchDnnlErrors([&] { width = FindTileWidth(rows(), k, n, a().dtype); });
    if (!status.ok()) return r.b().Fail(status);
    if (width == 0 || master.dtype != DType::kFloat32) return Val();
    Attrs attrs = product.attrs;
    attrs.Set("tiles", int64_t{1});
    return r.b().Op("cpu.MatMul", operands, std::move(attrs));
  }

  // Returns the product that reads a float32 weight as stored; invalid if there is none.
  Val MultiplyStored(Rewriter& r) const {
    if (a().dtype != DType::kFloat32 || graph.type(Master()).dtype != DType::kFloat32) return Val();
    return MatMulDequantized(r.Map(product.inputs[0]), FloatOperands(r.Map(Master())), is_transposed());
  }

  // Returns the packed weight; invalid if oneDNN prefers row-major.
  Val Pack(Rewriter& r) const {
    const int64_t k = a().shape.back(), n = columns();
    std::optional<dnnl::memory::desc> layout;
    const absl::Status status = CatchDnnlErrors([&] { layout = FindPackedLayout(rows(), k, n, a().dtype); });
    if (!status.ok()) return r.b().Fail(status);
    if (!layout) return Val();
    return r.b().Op(
        "cpu.PackWeight", {r.Map(Master())},
        {{"layout", ToInts(*layout)}, {"flipped", int64_t{is_transposed()}}, {"to", std::string(ToString(a().dtype))}});
  }
};

// The number of rows that all products multiply by a frozen weight, by weight and orientation.
using RowsOfWeights = std::map<std::pair<ValueId, bool>, int64_t>;

RowsOfWeights CountRows(const Graph& graph) {
  RowsOfWeights rows;
  for (const Node& node : graph.nodes()) {
    if (!IsWorthPacking(graph, node)) continue;
    const Weight weight{graph, node};
    if (weight.kind() == InputKind::kFrozen && weight.rows() >= kRowsOfBlock)
      rows[{weight.Master(), weight.is_transposed()}] += weight.rows();
  }
  return rows;
}

}  // namespace

bool IsWorthPacking(const Graph& graph, const Node& node) {
  return node.op == "MatMul" && Weight{graph, node}.IsWorthPacking();
}

absl::StatusOr<Graph> PackWeights(const Graph& graph) {
  const RowsOfWeights frozen = CountRows(graph);
  std::map<std::tuple<ValueId, int64_t, bool>, Val> packed;  // shared by all products with the same number of rows
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    if (!IsWorthPacking(graph, node)) return std::nullopt;
    const Weight weight{graph, node};
    const auto rows = frozen.find({weight.Master(), weight.is_transposed()});
    if (weight.rows() >= kRowsOfBlock && rows != frozen.end()) {
      if (weight.ReadsPlain()) return std::nullopt;
      const Val product = rows->second >= kRowsToTile ? weight.MultiplyTiles(r) : weight.MultiplyStored(r);
      if (product) return std::vector<Val>{product};
    }
    const auto [it, fresh] = packed.try_emplace({node.inputs[1], weight.rows(), weight.is_transposed()});
    if (fresh) it->second = weight.Pack(r);
    if (!it->second) return std::nullopt;
    return std::vector<Val>{r.b().Op("MatMul", {r.Map(node.inputs[0]), it->second})};
  });
}

}  // namespace onnxtrain::cpu
