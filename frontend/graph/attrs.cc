#include "frontend/graph/attrs.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <string_view>
#include <variant>
#include <vector>

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

namespace {

size_t Hash(std::string_view s) { return std::hash<std::string_view>()(s); }
size_t Hash(int64_t v) { return std::hash<int64_t>()(v); }
size_t Hash(double v) { return std::hash<double>()(v); }
template <typename T>
size_t Hash(const std::vector<T>& values) {
  size_t hash = values.size();
  for (const T& v : values) hash = MixHash(hash, Hash(v));
  return hash;
}
size_t Hash(const HostTensor& tensor) { return HashTensor(tensor); }

}  // namespace

size_t HashTensor(const HostTensor& tensor) {
  constexpr size_t kMax = 4096;
  const auto bytes = tensor.bytes().first(std::min(tensor.bytes().size(), kMax));
  return MixHash(Hash(tensor.shape()),
                 Hash(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())));
}

size_t HashAttrs(const Attrs& attrs) {
  size_t hash = 0;
  for (const auto& [name, value] : attrs) {
    hash = MixHash(hash, Hash(name));
    hash = MixHash(hash, std::visit([](const auto& v) { return Hash(v); }, value));
  }
  return hash;
}

}  // namespace onnxtrain
