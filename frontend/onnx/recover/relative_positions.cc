#include "frontend/onnx/recover/relative_positions.h"

#include <cstring>
#include <map>
#include <tuple>

#include "frontend/onnx/recover/tensor_compare.h"

namespace onnxtrain {
namespace {

// The offset between two positions of the bias; pairs with the class token have offsets of their own.
std::tuple<int64_t, int64_t, int64_t> FindOffset(const RelativeBias& bias, int64_t query, int64_t key) {
  const int64_t first = bias.class_token ? 1 : 0;
  if (query < first || key < first) return {1 + (query < first ? 2 : 0) + (key < first ? 1 : 0), 0, 0};
  const int64_t q = query - first, k = key - first;
  return {0, q / bias.width - k / bias.width, q % bias.width - k % bias.width};
}

void NumberRows(int64_t tokens, RelativeBias* bias) {
  std::map<std::tuple<int64_t, int64_t, int64_t>, int64_t> numbers;
  for (int64_t q = 0; q < tokens; ++q) {
    for (int64_t k = 0; k < tokens; ++k)
      bias->rows.push_back(numbers.emplace(FindOffset(*bias, q, k), std::ssize(numbers)).first->second);
  }
}

// The elements of all heads for a pair of positions.
class Pairs {
 public:
  Pairs(const HostTensor& tensor, size_t heads)
      : bytes_(tensor.bytes().data()),
        element_(DTypeSize(tensor.dtype())),
        heads_(static_cast<size_t>(tensor.shape()[heads])) {
    for (size_t a = heads + 1; a < tensor.shape().size(); ++a) inner_ *= static_cast<size_t>(tensor.shape()[a]);
  }

  bool AreEqual(size_t a, size_t b) const {
    for (size_t head = 0; head < heads_; ++head) {
      if (std::memcmp(At(a, head), At(b, head), element_) != 0) return false;
    }
    return true;
  }

 private:
  const std::byte* At(size_t pair, size_t head) const {
    return bytes_ + ((pair / inner_ * heads_ + head) * inner_ + pair % inner_) * element_;
  }

  const std::byte* bytes_;
  size_t element_, heads_, inner_ = 1;
};

// Returns whether all positions have the same bias with themselves, as in a window. A class token may have another.
bool HasEqualDiagonal(const Pairs& pairs, size_t tokens) {
  for (size_t i = 2; i < tokens; ++i) {
    if (!pairs.AreEqual(i * (tokens + 1), tokens + 1)) return false;
  }
  return true;
}

bool HasEqualRows(const Pairs& pairs, const std::vector<int64_t>& rows) {
  std::vector<size_t> first;
  for (size_t pair = 0; pair < rows.size(); ++pair) {
    const auto row = static_cast<size_t>(rows[pair]);
    if (row == first.size()) first.push_back(pair);
    if (!pairs.AreEqual(pair, first[row])) return false;
  }
  return true;
}

// The windows of that many tokens; a class token leaves one less.
std::vector<RelativeBias> ListWindows(size_t heads, int64_t tokens, bool squares_only) {
  std::vector<RelativeBias> windows;
  for (const bool class_token : {false, true}) {
    const int64_t positions = tokens - (class_token ? 1 : 0);
    for (int64_t height = 2; height <= positions / 2; ++height) {
      const int64_t width = positions / height;
      if (width * height != positions || (squares_only && width != height)) continue;
      windows.push_back({.heads = heads, .height = height, .width = width, .class_token = class_token});
    }
  }
  return windows;
}

// The extent of both axes of positions if `heads` is the axis of heads; nothing if there are other axes.
std::optional<int64_t> CountTokens(const Shape& shape, size_t heads) {
  std::vector<int64_t> extents;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (axis != heads && shape[axis] != 1) extents.push_back(shape[axis]);
  }
  return extents.size() == 2 && extents[0] == extents[1] ? std::optional(extents[0]) : std::nullopt;
}

}  // namespace

std::optional<RelativeBias> FindRelativeBias(const HostTensor& tensor) {
  const Shape& shape = tensor.shape();
  const bool equal = tensor.size() == 0 || IsSplat(tensor);
  for (size_t heads = 0; heads < shape.size(); ++heads) {
    const std::optional<int64_t> tokens = CountTokens(shape, heads);
    if (!tokens || (equal && heads + 3 != shape.size())) continue;
    const Pairs pairs(tensor, heads);
    if (!HasEqualDiagonal(pairs, static_cast<size_t>(*tokens))) continue;
    for (RelativeBias& bias : ListWindows(heads, *tokens, equal)) {
      NumberRows(*tokens, &bias);
      if (HasEqualRows(pairs, bias.rows)) return std::move(bias);
    }
  }
  return std::nullopt;
}

}  // namespace onnxtrain
