#include "frontend/graph/attrs.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace onnxtrain {
namespace {

bool SameBits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

bool SameBits(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(a, b, [](double x, double y) { return SameBits(x, y); });
}

}  // namespace

bool SameAttr(const AttrValue& a, const AttrValue& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&]<typename T>(const T& value) {
        if constexpr (std::is_same_v<T, HostTensor>) {
          return value.SameBytes(std::get<T>(b));
        } else if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::vector<double>>) {
          return SameBits(value, std::get<T>(b));
        } else {
          return value == std::get<T>(b);
        }
      },
      a);
}

void Attrs::Set(std::string name, AttrValue value) {
  map_.Mutable().insert_or_assign(std::move(name), std::move(value));
}

void Attrs::Erase(std::string_view name) {
  if (!Has(name)) return;
  Map& map = map_.Mutable();
  map.erase(map.find(name));
}

bool Attrs::operator==(const Attrs& other) const {
  return map_.HoldsSameObject(other.map_) ||
         (map_->size() == other.map_->size() &&
          std::equal(map_->begin(), map_->end(), other.map_->begin(),
                     [](const auto& x, const auto& y) { return x.first == y.first && SameAttr(x.second, y.second); }));
}

}  // namespace onnxtrain
