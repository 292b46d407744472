#include "backends/torch/fuse/fold.h"

#include <numeric>

namespace onnxtrain::aten {

std::optional<Fold> FindFold(const Shape& shape, std::vector<int64_t> axes) {
  if (axes.empty()) {
    axes.resize(shape.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  std::vector<bool> folded(shape.size());
  for (int64_t a : axes) folded[a] = true;
  int64_t extents[2] = {1, 1};
  std::vector<bool> runs;  // of axes that are kept or folded
  for (size_t a = 0; a < shape.size(); ++a) {
    extents[folded[a]] *= shape[a];
    if (shape[a] != 1 && (runs.empty() || runs.back() != folded[a])) runs.push_back(folded[a]);
  }
  if (runs.empty() || runs.size() > 2 || (runs.size() == 1 && !runs[0])) return std::nullopt;
  const bool by_column = runs.size() == 2 && runs[0];
  return Fold{.columns = by_column ? extents[0] : extents[1], .by_column = by_column};
}

}  // namespace onnxtrain::aten
