#include "tools/onnxtrain/report/stacked_areas.h"

#include "absl/strings/str_format.h"

namespace onnxtrain::cli {
namespace {

void AppendEdge(const StackedAreas& a, size_t from, size_t to, double height, std::string* outline) {
  absl::StrAppendFormat(outline, "%.1f,%.1f %.1f,%.1f ", a.x(from), a.y(height), a.x(to), a.y(height));
}

}  // namespace

std::vector<std::string> StackOutlines(const StackedAreas& a) {
  std::vector<double> base(a.columns, 0);
  std::vector<std::string> outlines(a.layers);
  for (size_t layer = 0; layer < a.layers; ++layer) {
    std::vector<double> top = base;
    for (size_t c = 0; c < a.columns; ++c) {
      top[c] += a.height(c, layer);
      AppendEdge(a, c, c + 1, top[c], &outlines[layer]);
    }
    for (size_t c = a.columns; c-- > 0;) AppendEdge(a, c + 1, c, base[c], &outlines[layer]);
    base = std::move(top);
  }
  return outlines;
}

}  // namespace onnxtrain::cli
