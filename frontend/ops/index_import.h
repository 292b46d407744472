// What the imports of gathering and scattering operators share.
#pragma once

#include "frontend/ops/import_util.h"

namespace onnxtrain {

// Input i as i64. Where its values are known they must lie in [−extent, extent).
absl::StatusOr<Val> IndexInput(ImportContext& c, size_t i, int64_t extent);

// Tuples of indices into the leading axes of x, as offsets into those axes made one.
struct Flattened {
  Val offset;         // i64[the tuples' shape without the last axis]
  Shape rows;         // [the product of the leading axes, the other axes…]
};

// The last axis of input `input` names one place on each of x's axes batch, batch + 1, …; the first `batch` axes run along.
absl::StatusOr<Flattened> FlattenIndex(ImportContext& c, Val x, size_t input, int64_t batch);

}  // namespace onnxtrain
