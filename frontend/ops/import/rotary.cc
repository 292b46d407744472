// Rotary position embeddings: ai.onnx and com.microsoft.
#include "frontend/ops/formula.h"
#include "frontend/ops/import/attention.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/import/nn.h"
#include "frontend/ops/import/quantize.h"

namespace onnxtrain {

absl::StatusOr<Val> RotaryRows(ImportContext& c, size_t table, Val positions) {
  const Val rows = FixedInput(c, table);
  if (!rows || rows.rank() != 2 || positions.rank() != 2)
    return Invalid("cannot look up positions ", ToString(positions.type()), " in ", ToString(rows.type()));
  const Val found = c.b().Op("Gather", {rows, Cast(positions, DType::kInt64)}, {{"axis", int64_t{0}}});
  return Reshape(found, {found.dim(0), 1, found.dim(1), found.dim(2)});
}

absl::StatusOr<Val> Rotate(Val x, Val cos, Val sin, bool interleaved) {
  if (!x || !cos || !sin) return x ? x.b().status() : Invalid("nothing to rotate");
  const int64_t half = cos.dim(3), size = x.dim(3);
  const Shape rows = {x.dim(0), x.dim(1), x.dim(2)};
  if (half < 1 || 2 * half > size || !(sin.shape() == cos.shape()) || (cos.dim(0) != 1 && cos.dim(0) != rows[0]) ||
      cos.dim(2) != rows[2]) {
    return Invalid("cannot rotate ", ToString(x.type()), " by ", ToString(cos.type()), " and ", ToString(sin.type()));
  }
  const Val turned = Slice(x, 3, 0, 2 * half);
  Val first, second;
  if (interleaved) {
    const Val pairs = Reshape(turned, {rows[0], rows[1], rows[2], half, 2});
    first = Reshape(Slice(pairs, 4, 0, 1), {rows[0], rows[1], rows[2], half});
    second = Reshape(Slice(pairs, 4, 1, 1), {rows[0], rows[1], rows[2], half});
  } else {
    first = Slice(turned, 3, 0, half);
    second = Slice(turned, 3, half, half);
  }
  const Val real = first * cos - second * sin, imaginary = first * sin + second * cos;
  Val y;
  if (interleaved) {
    const Shape apart = {rows[0], rows[1], rows[2], half, 1};
    y = Reshape(Concat({Reshape(real, apart), Reshape(imaginary, apart)}, 4), {rows[0], rows[1], rows[2], 2 * half});
  } else {
    y = Concat({real, imaginary}, 3);
  }
  return 2 * half == size ? y : Concat({y, Slice(x, 3, 2 * half, size - 2 * half)}, 3);
}

namespace {

// [B,S,hidden] as [B,H,S,D], or x itself where it has four axes.
absl::StatusOr<Val> ByHeads(Val x, int64_t heads) {
  return x.rank() == 4 ? absl::StatusOr<Val>(x) : SplitHeads(x, heads);
}

// Tables may be wider than what is rotated: the first columns count.
absl::Status FitTables(const ImportContext& c, Val x, Val* cos, Val* sin) {
  const int64_t dim = c.attrs().Int("rotary_embedding_dim");
  if (x.rank() != 4) return Invalid("expected 3 or 4 axes, got ", ToString(c.in(0).type()));
  const int64_t half = (dim == 0 ? x.dim(3) : dim) / 2;
  for (Val* table : {cos, sin}) {
    if (!*table || half < 1 || table->dim(3) < half)
      return Invalid("rotates ", 2 * half, " components of each head by a table ", ToString(table->type()));
    if (table->dim(3) > half) *table = Slice(*table, 3, 0, half);
  }
  return absl::OkStatus();
}

ImportResult Rotated(ImportContext& c, Val x, Val cos, Val sin) {
  RETURN_IF_ERROR(FitTables(c, x, &cos, &sin));
  ASSIGN_OR_RETURN(const Val y,
                   Rotate(x, Cast(cos, x.dtype()), Cast(sin, x.dtype()), c.attrs().Int("interleaved") != 0));
  return One(c.in(0).rank() == 3 ? MergeHeads(y) : y);
}

// Tables [P,R] with position_ids [B,S], or tables [B,S,R].
ImportResult ImportRotary(ImportContext& c) {
  ASSIGN_OR_RETURN(const Val x, ByHeads(c.in(0), c.attrs().Int("num_heads")));
  Val rows[2];
  for (size_t i : {1, 2}) {
    if (c.has(3)) {
      ASSIGN_OR_RETURN(rows[i - 1], RotaryRows(c, i, c.in(3)));
      continue;
    }
    const Val table = FixedInput(c, i);
    if (table.rank() != 3)
      return Invalid("without position_ids, input ", i, " should be [B,S,R], got ", ToString(table.type()));
    rows[i - 1] = Reshape(table, {table.dim(0), 1, table.dim(1), table.dim(2)});
  }
  return Rotated(c, x, rows[0], rows[1]);
}

// position_ids are [B,S], or [1]: where the first token stands. Without num_heads, the table tells the size of a head.
ImportResult ImportMsRotary(ImportContext& c) {
  if (c.attrs().Int("is_packed_batching") != 0) return Unsupported("is_packed_batching");
  int64_t heads = c.attrs().Int("num_heads");
  if (heads == 0 && c.in(0).rank() == 3 && c.in(2).dim(1) > 0) heads = c.in(0).dim(2) / (2 * c.in(2).dim(1));
  ASSIGN_OR_RETURN(const Val x, ByHeads(c.in(0), heads));
  Val positions = Cast(c.in(1), DType::kInt64);
  if (positions.rank() == 1 && positions.dim(0) == 1) {
    ASSIGN_OR_RETURN(const Val index, Positions(c.b(), x.dim(2), 0));
    positions = index + positions;
  }
  ASSIGN_OR_RETURN(const Val cos, RotaryRows(c, 2, positions));
  ASSIGN_OR_RETURN(const Val sin, RotaryRows(c, 3, positions));
  return Rotated(c, x, cos, sin);
}

}  // namespace

std::span<const OnnxOp> RotaryImports() {
  static constexpr OnnxOp ops[] = {
      {"", "RotaryEmbedding", 3, 4, ImportRotary},
      {"com.microsoft", "RotaryEmbedding", 4, 4, ImportMsRotary},
  };
  return ops;
}

}  // namespace onnxtrain
