// Simplification rules of matrix products.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "frontend/ops/grouped_product.h"
#include "frontend/ops/simplify/simplify.h"

namespace onnxtrain {

// Folds a transpose of the last two axes into the product. A permutation that makes the last axis the second to last is
// such a transpose after one that keeps the last axis.
Val SimplifyMatMul(const SimplifyContext& s) {
  std::array<Val, 2> operands = {s.in[0], s.in[1]};
  std::array<bool, 2> swapped = {s.attrs().Int("trans_a") != 0, s.attrs().Int("trans_b") != 0};
  bool any = false;
  for (size_t i = 0; i < 2; ++i) {
    const Val x = MatchInput(operands[i], "Transpose");
    if (!x) continue;
    std::vector<int64_t> perm = ProducerAttrs(operands[i]).Ints("perm");
    const auto rank = static_cast<int64_t>(perm.size());
    if (rank < 2 || perm[rank - 2] != rank - 1) continue;
    std::swap(perm[rank - 2], perm[rank - 1]);
    operands[i] = Transpose(x, perm);
    swapped[i] = !swapped[i];
    any = true;
  }
  return any ? MatMul(operands[0], operands[1], swapped[0], swapped[1]) : Val();
}

// Reads rows that were repeated for the indices once.
Val SimplifyGroupedMatMul(const SimplifyContext& s) {
  const Val wide = MatchInput(s.in[kGroupedX], "Reshape"), rows = MatchInput(wide, "Expand");
  if (!rows || rows.rank() != 3 || wide.rank() != 3) return Val();
  const int64_t n = rows.dim(0), width = rows.dim(2);
  if (rows.dim(1) != 1 || wide.dim(0) != n || wide.dim(2) != width || s.in[kGroupedX].dim(1) != width) return Val();
  std::vector<Val> in = s.in;
  in[kGroupedX] = Reshape(rows, {n, width});
  return s.Try(in, s.out.shape);
}

}  // namespace onnxtrain
