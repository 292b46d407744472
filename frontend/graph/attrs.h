// The attributes of a node: a small sorted map from name to value. Copies share it until one is changed.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "frontend/base/shared.h"
#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

using AttrValue = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>, HostTensor>;

// Compares numbers and tensors by their bits: a NaN equals itself, and -0 differs from 0.
bool SameAttr(const AttrValue& a, const AttrValue& b);

class Attrs {
  using Map = std::map<std::string, AttrValue, std::less<>>;

 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, AttrValue>> list) : map_(Map(list)) {}

  bool Has(std::string_view name) const { return map_->find(name) != map_->end(); }
  // Returns the attribute, or null if it is absent or of another kind.
  template <typename T>
  const T* Find(std::string_view name) const {
    auto it = map_->find(name);
    return it == map_->end() ? nullptr : std::get_if<T>(&it->second);
  }
  // Return the attribute, or the default if it is absent. They report no errors: operator rows declare the kinds of
  // their attributes, and every node of a graph has been checked against its row.
  int64_t Int(std::string_view name, int64_t otherwise = 0) const { return Get<int64_t>(name, otherwise); }
  double Float(std::string_view name, double otherwise = 0) const { return Get<double>(name, otherwise); }
  std::string String(std::string_view name, std::string otherwise = "") const {
    return Get(name, std::move(otherwise));
  }
  std::vector<int64_t> Ints(std::string_view name, std::vector<int64_t> otherwise = {}) const {
    return Get(name, std::move(otherwise));
  }
  std::vector<double> Floats(std::string_view name, std::vector<double> otherwise = {}) const {
    return Get(name, std::move(otherwise));
  }
  const HostTensor* Tensor(std::string_view name) const { return Find<HostTensor>(name); }

  void Set(std::string name, AttrValue value);
  void Erase(std::string_view name);

  bool empty() const { return map_->empty(); }
  auto begin() const { return map_->begin(); }
  auto end() const { return map_->end(); }
  bool operator==(const Attrs& other) const;

 private:
  template <typename T>
  T Get(std::string_view name, T otherwise) const {
    const T* value = Find<T>(name);
    return value == nullptr ? std::move(otherwise) : *value;
  }

  Shared<Map> map_;
};

// Hashes of attributes and tensors: equal for equal ones.

// Returns a hash of what `hash` stands for, followed by `more`.
inline size_t MixHash(size_t hash, size_t more) { return (hash ^ more) * 0x9E3779B97F4A7C15u + (hash >> 29); }

// Hashes the beginning of a long tensor.
size_t HashTensor(const HostTensor& tensor);
size_t HashAttrs(const Attrs& attrs);

}  // namespace onnxtrain
