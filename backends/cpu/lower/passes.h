// Declares the two stages of lowering and their passes. Passes may leave dead nodes, but their input should have none:
// dead users count as users.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/passes/match.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain::cpu {

// --- Matchers.
// Returns true if all users of the value are f32 → bf16 casts.
bool IsOnlyRounded(const Pattern& pattern, ValueId v);
// Returns the value before casts between f32 and bf16.
ValueId BeforeCasts(const Pattern& pattern, ValueId v);
// Returns the bf16 value that a float32 one was cast from, else the value itself.
ValueId SkipUpcast(const Pattern& pattern, ValueId v);
// Returns true for an Add of float32 without broadcasting.
bool IsPlainSum(const Graph& graph, const Node& node);
ValueId OtherOperand(const Node& sum, ValueId v);

// The product, bias and activation that compute a value, a view of relu(a·b + bias).
struct ProductChain {
  const Node* node = nullptr;  // null: there is none
  ValueId bias = kNoValue;
  bool relu = false;

  bool IsBf16(const Graph& graph) const;  // returns true if the operands are bf16

  // kRounded allows casts between f32 and bf16 within the chain if the operands are bf16.
  enum Casts { kExact, kRounded };
};
ProductChain FindProduct(const Pattern& pattern, ValueId v, ProductChain::Casts casts);

// Maps each old value to its new one, or to kNoValue.
using ValueMap = std::vector<ValueId>;

// --- Legalize: lowers the canonical graph to one that this backend's kernels run. Chooses element types, layouts and
// decompositions. Returns an error that names every node without a kernel.
absl::StatusOr<Graph> LegalizeGraph(const Graph& graph);

// Returns the heads x [B,G,1,T,D] if the value [B,G·R,T,D] repeats each of them R ≥ 2 times in succession, else
// kNoValue.
ValueId FindRepeatedHeads(const Pattern& pattern, ValueId v);

// Returns true for an Attention node that may be one of GroupQueries.
inline bool HasOneQuery(const Graph& graph, const Node& node) {
  return node.op == "Attention" && graph.type(node.inputs[0]).rank() == 4 && graph.type(node.inputs[0]).shape[2] == 1;
}
// Replaces attention of one query per head to keys and values that are repeated for a group of heads: the queries of a
// group become rows of one product with its keys, which are read once and not copied.
absl::StatusOr<Graph> GroupQueries(const Graph& graph);

// Returns true if FoldHeadTransposes replaces the node: an Attention or AttentionGrad of float32, or of bf16 if the
// processor has bf16 products.
bool CanFoldHeadTransposes(const Graph& graph, const Node& node);
// Replaces these nodes together with the transposes of their operands and results, which become strides, and with the
// repetition of keys and values for several heads of queries.
absl::StatusOr<Graph> FoldHeadTransposes(const Graph& graph);

// Removes f32 → bf16 → f32 round trips that PromoteHalfToFloat (backends/promote_types.h) leaves between a value and
// its only user, if
//   - the value is the result of a convolution, which accumulates in float32, unless all users round it again or have
//     kernels that read bf16;
//   - the user is a Relu whose result is rounded: rounding once yields the same bits;
//   - the value is normalized by a batch normalization and the user is a sum, which the normalization computes itself.
absl::StatusOr<Graph> EliminateCastRoundTrips(const Graph& graph);

// Chooses a layout for values [N,C,…] and inserts transposes between layouts. Convolutions that oneDNN runs well
// channels last always get it (KernelRow::prefers); operators that have a kernel for it, or compute in any order, get
// it if fewer bytes are transposed then. All nodes must have kernels.
absl::StatusOr<Graph> AssignLayouts(const Graph& graph);

// Fuses channels-last batch normalizations with a residual and a Relu, and their gradients with the mask of the Relu.
// Part of Legalize, since the fused operators have forms for recomputation.
absl::StatusOr<Graph> LowerBatchNorms(const Graph& graph);

// Replaces the concatenation of the halves of each row, exchanged and one of them negated, by cpu.RotateHalves, which
// fuses with the products and the sum around it.
absl::StatusOr<Graph> FindRotations(const Graph& graph);

// Folds bf16 → f32 casts before a node and f32 → bf16 casts after it into the node, if it has a kernel for bf16
// (KernelRow::bf16), and lets convolutions of bf16 write bf16 if all users read bf16. Clones the cast of a value that
// several elementwise operators read, so that each is fused with its own. Does not round between two operators that
// will be fused.
absl::StatusOr<Graph> FoldCasts(const Graph& graph);

// Returns true if PackWeights asks oneDNN for a layout of the node's second operand.
bool IsWorthPacking(const Graph& graph, const Node& node);
// Packs the weights of products into the layout that oneDNN multiplies fastest, if enough rows share them. Packing
// includes the cast of float32 master weights to bf16.
absl::StatusOr<Graph> PackWeights(const Graph& graph);

// Removes the rounding between a bf16 product, which accumulates in float32, its bias and its activation: the product
// writes float32 (cpu.MatMul, attribute `to`) and reads the float32 bias. Runs after FoldCasts: a product that
// elementwise users read in bf16 must stay bf16.
absl::StatusOr<Graph> WidenProducts(const Graph& graph);

// --- Fuse: fuses the kernels of a legalized graph. Runs last, inside Compile; no later pass splits a fused kernel.
// Rematerialization plans with the kernels of FuseKernels; FuseGraph fuses normalizations, too, and returns the graph
// that runs.
absl::StatusOr<FusedGraph> FuseKernels(const Graph& legal);
absl::StatusOr<Graph> FuseGraph(const Graph& legal);

// Fuses elementwise operators into the kernel that produces or consumes their operand: activations into convolutions,
// squares into sums, additions into scatter-adds.
absl::StatusOr<Graph> FuseEpilogues(const Graph& graph, ValueMap* values = nullptr);

// Fuses layer and RMS normalizations with their neighbors (ops/ops.h): the residual sum and its dropout, casts to and
// from bf16 and, in the backward pass, sums of gradients, the mask of the dropout and the bias gradient before it.
// Fuses sums and casts only if FindSumChains returns true for them.
absl::StatusOr<Graph> FuseNorms(const Graph& graph);

// Fuses elementwise operators, and reductions of their values, into chains (cpu.Fused) that run tile by tile. Merges a
// producer with its users if no path between them leaves the chain, all have one shape, and the bounds of ops.h hold.
// Values are bitwise equal to those of the unfused operators, except reductions, which sum in another order.
absl::StatusOr<Graph> FuseElementwise(const Graph& graph, ValueMap* values = nullptr);

// Fuses the decoding of a chain's inputs (DequantizeDynamic) and the encoding of its results (QuantizeDynamic) into it.
absl::StatusOr<Graph> FuseCodes(const Graph& graph, ValueMap* values = nullptr);

// Returns, by node, true if FuseElementwise would not fuse the node, or only into a chain of sums, casts between f32
// and bf16, and reductions. FuseNorms can fuse these nodes instead.
std::vector<bool> FindSumChains(const Graph& graph);

// Maps values of the old graph to the new one in either layout, and converts them on first use. Used by the rules of
// AssignLayouts.
class LayoutVariants {
 public:
  explicit LayoutVariants(Rewriter& r);

  Rewriter& r() { return r_; }
  Val Nchw(ValueId v);  // row-major; invalid for kNoValue
  Val Nhwc(ValueId v);
  // Records `now` as a variant of the old value `v`, in the layout of `now`.
  void Set(ValueId v, Val now);

 private:
  Rewriter& r_;
  std::vector<Val> nchw_, nhwc_;
};

// A node of the old graph that is lowered to channels last, with access to its operands in both layouts.
struct LoweringContext {
  LayoutVariants& variants;
  const Node& node;

  Builder& b() const { return variants.r().b(); }
  const Graph& from() const { return variants.r().from(); }
  const Attrs& attrs() const { return node.attrs; }
  const Type& in(size_t i) const { return from().type(node.inputs[i]); }
  const Type& out(size_t i = 0) const { return from().type(node.outputs[i]); }
  bool has(size_t i) const { return i < node.inputs.size() && node.inputs[i] != kNoValue; }
  Val nchw(size_t i) const { return has(i) ? variants.Nchw(node.inputs[i]) : Val(); }
  Val nhwc(size_t i) const { return variants.Nhwc(node.inputs[i]); }
};

// Lowers a node and returns one Val per output.
using LowerRule = std::vector<Val> (*)(const LoweringContext&);

// Lower Conv, ConvTranspose and ConvWeightGrad: pack weights, read operands that were cast from bf16 as bf16, compute
// convolutions with 1×1 windows as matrix products and backward data at stride 1 as forward convolutions.
std::vector<Val> LowerConv(const LoweringContext& c);
std::vector<Val> LowerConvTranspose(const LoweringContext& c);
std::vector<Val> LowerConvWeightGrad(const LoweringContext& c);

}  // namespace onnxtrain::cpu
