#include "frontend/graph/attrs_hash.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <variant>
#include <vector>

namespace onnxtrain {
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
