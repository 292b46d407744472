#include "frontend/graph/attrs.h"

#include <algorithm>

namespace onnxtrain {

bool SameAttr(const AttrValue& a, const AttrValue& b) {
  if (a.index() != b.index()) return false;
  if (const HostTensor* t = std::get_if<HostTensor>(&a)) return t->SameBytes(std::get<HostTensor>(b));
  return std::visit(
      [&]<typename T>(const T& value) {
        if constexpr (std::is_same_v<T, HostTensor>) {
          return false;  // handled above
        } else {
          return value == std::get<T>(b);
        }
      },
      a);
}

bool Attrs::operator==(const Attrs& other) const {
  return map_.size() == other.map_.size() &&
         std::equal(map_.begin(), map_.end(), other.map_.begin(),
                    [](const auto& x, const auto& y) { return x.first == y.first && SameAttr(x.second, y.second); });
}

}  // namespace onnxtrain
