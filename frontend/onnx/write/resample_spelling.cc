#include "frontend/onnx/write/resample_spelling.h"

#include <algorithm>
#include <numeric>

#include "frontend/base/status.h"
#include "frontend/ops/resample.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 24;  // of the matrix of an axis

bool Selects(const Taps& taps) {
  const auto one = [](double weight) { return weight == 1; };
  return taps.most() == 1 && std::ssize(taps.index) == taps.out() && std::ranges::all_of(taps.weight, one);
}

// [in, out]
HostTensor MakeMatrix(const Taps& taps, DType dtype) {
  HostTensor matrix({dtype, {taps.in, taps.out()}});
  for (int64_t o = 0; o < taps.out(); ++o) {
    for (int64_t k = taps.begin[o]; k < taps.begin[o + 1]; ++k) {
      matrix.Set(taps.index[k] * taps.out() + o, taps.weight[k]);
    }
  }
  return matrix;
}

absl::StatusOr<std::string> SpellAxis(Speller& s, const std::string& x, const Type& type, const Taps& taps) {
  if (Selects(taps)) return s.Op("Gather", {x, s.Ints(taps.index)}, {{"axis", taps.axis}});
  if (taps.in * taps.out() > kMostElements)
    return Invalid("resizes ", taps.in, " to ", taps.out(), " elements, which is too large for a matrix of taps");
  const int last = type.rank() - 1;
  std::vector<int64_t> swap(type.rank());
  std::iota(swap.begin(), swap.end(), 0);
  std::swap(swap[taps.axis], swap[last]);
  const bool moves = taps.axis != last;
  const std::string rows = moves ? s.Transpose(x, swap) : x;
  const std::string product = s.Op("MatMul", {rows, s.Constant(MakeMatrix(taps, type.dtype))});
  return moves ? s.Transpose(product, swap) : product;
}

}  // namespace

absl::Status SpellResample(Speller& s, const Node& node) {
  const bool gradient = node.attrs.Has("input_sizes");
  const Type& type = s.graph().type(node.inputs[0]);
  std::string value = s.Name(node.inputs[0]);
  for (const Taps& taps : ResampleTaps(node.attrs, s.shape(gradient ? node.outputs[0] : node.inputs[0]))) {
    ASSIGN_OR_RETURN(value, SpellAxis(s, value, type, gradient ? taps.Transposed() : taps));
  }
  s.OpTo({s.Name(node.outputs[0])}, "Identity", {value});
  return absl::OkStatus();
}

}  // namespace onnxtrain
