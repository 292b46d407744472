// GroupProducts (recognize.h).
#include <optional>
#include <utility>
#include <vector>

#include "frontend/ops/grouped_product.h"
#include "frontend/ops/import/quantize.h"
#include "frontend/ops/simplify/simplify.h"
#include "frontend/passes/recognize.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain {
namespace {

// A stack of matrices W [groups, rows, columns], of which indices [m] choose.
struct Selected {
  QuantizedOperands matrix;  // all below each other
  int64_t groups;
  bool transposed;  // the stored matrices are transposes of W
  Val ids;
};

// Matches a Gather of matrices.
std::optional<Selected> MatchSelected(Val x) {
  Val stack = MatchInput(x, "Gather");
  if (!stack || stack.rank() != 3 || ProducerAttrs(x).Int("axis") != 0) return std::nullopt;
  const Val ids = MatchInput(x, "Gather", 1);
  if (ids.rank() != 1 || stack.dim(0) == 0) return std::nullopt;
  bool transposed = false;
  while (const Val from = MatchInput(stack, "Transpose")) {
    if (ProducerAttrs(stack).Ints("perm") != Shape{0, 2, 1}) break;
    stack = from;
    transposed = !transposed;
  }
  const int64_t groups = stack.dim(0), rows = groups * stack.dim(1), columns = stack.dim(2);
  bool swapped = false;
  const auto stored = FindDequantized(MatchInput(stack, "Reshape"), &swapped);
  const bool fits = stored && !swapped && stored->matrix.rows == rows && stored->matrix.columns == columns;
  return Selected{fits ? *stored : FloatOperands(Reshape(stack, {rows, columns})), groups, transposed, ids};
}

// Multiplies by chosen matrices of a stack without copies of them: x [m, r, k]·W[ids], or W[ids]·x with x [m, k, 1].
Val ProductOfSelected(const Node& node, const std::vector<Val>& in, const Type& out) {
  if (!IsFloat(out.dtype) || out.rank() != 3 || out.elements() == 0) return Val();
  for (const int side : {1, 0}) {
    const Val x = in[1 - side];
    if (x.rank() != 3 || in[side].rank() != 3 || x.dim(0) != out.shape[0]) continue;
    const auto selected = MatchSelected(in[side]);
    if (!selected || selected->ids.dim(0) != out.shape[0]) continue;
    const bool trans_x = node.attrs.Int(side == 1 ? "trans_a" : "trans_b") != 0;
    const bool trans_w = node.attrs.Int(side == 1 ? "trans_b" : "trans_a") != 0;
    const int64_t m = x.dim(0), repeats = out.shape[side == 1 ? 1 : 2], k = x.type().elements() / (m * repeats);
    if (repeats != 1 && (side == 0 || trans_x)) continue;
    const Val ids =
        repeats == 1 ? selected->ids : Reshape(Expand(Reshape(selected->ids, {m, 1}), {m, repeats}), {m * repeats});
    const bool transposed = trans_w ^ selected->transposed ^ (side == 0);
    return Reshape(GroupedMatMul(Reshape(x, {m * repeats, k}), ids, selected->matrix, selected->groups, transposed),
                   out.shape);
  }
  return Val();
}

}  // namespace

absl::StatusOr<Graph> GroupProducts(const Graph& graph) {
  return Rewrite(graph, [](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    if (node.op != "MatMul") return std::nullopt;
    const Type out = r.from().type(node.outputs[0]);
    const Val y = ProductOfSelected(node, r.MapOperands(node), out);
    return y ? std::optional(std::vector<Val>{y}) : std::nullopt;
  });
}

}  // namespace onnxtrain
