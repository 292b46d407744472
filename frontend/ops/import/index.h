// Helpers for imports of gather and scatter operators.
#pragma once

#include "frontend/ops/import/import_util.h"

namespace onnxtrain {

// The attribute by which the importer tells Gather which row of a table stands for padding. Files do not hold it.
inline constexpr char kPaddingRow[] = "pytorch.padding_row";

// Returns input i as i64. Known values must lie in [−extent, extent).
absl::StatusOr<Val> IndexInput(ImportContext& c, size_t i, int64_t extent);

// Flattens tuples of indices into the leading axes of x.
struct Flattened {
  Val offset;  // i64[the tuples' shape without the last axis]
  Shape rows;  // [the product of the leading axes, the other axes…]
};

// The last axis of input `input` holds indices into x's axes batch, batch + 1, …; the first `batch` axes are shared.
absl::StatusOr<Flattened> FlattenIndex(ImportContext& c, Val x, size_t input, int64_t batch);

}  // namespace onnxtrain
