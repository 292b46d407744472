// A value whose copies share one object until one of them is changed: copying costs a reference count, whatever the
// value holds.
#pragma once

#include <atomic>
#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

namespace onnxtrain {

// A reference to the object is valid as long as any holder of it. Holders of one object may be used by several threads,
// one holder by one thread at a time.
template <typename T>
class Shared {
 public:
  // A holder is used as the value itself.
  // NOLINTBEGIN(google-explicit-constructor)
  Shared() = default;  // T(), without an allocation
  template <typename U>
  requires(!std::same_as<std::remove_cvref_t<U>, Shared> && std::convertible_to<U, T>) Shared(U&& value)
      : object_(std::make_shared<T>(std::forward<U>(value))) {}

  const T& operator*() const {
    static const T kDefault;
    return object_ == nullptr ? kDefault : *object_;
  }
  const T* operator->() const { return &**this; }
  operator const T&() const { return **this; }
  // NOLINTEND(google-explicit-constructor)

  // Copies the object first if others hold it. References to an object that nobody else holds stay valid.
  T& Mutable() {
    if (object_ == nullptr || object_.use_count() > 1) object_ = std::make_shared<T>(**this);
    std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the release of the last other holder
    return *object_;
  }

  bool HoldsSameObject(const Shared& other) const { return object_ == other.object_; }
  bool operator==(const Shared& other) const { return HoldsSameObject(other) || **this == *other; }

 private:
  std::shared_ptr<T> object_;
};

}  // namespace onnxtrain
