// A copy-on-write value: copies share one object until one of them is modified, so a copy costs one atomic increment.
#pragma once

#include <atomic>
#include <concepts>
#include <type_traits>
#include <utility>

namespace onnxtrain {

// A reference to the object is valid while any holder of the object exists. Several threads may use holders of one
// object, but only one thread at a time may use a given holder.
template <typename T>
class Shared {
 public:
  // Conversions are implicit so that a holder can be used as the value itself.
  // NOLINTBEGIN(google-explicit-constructor)
  Shared() = default;  // T(), without an allocation
  template <typename U>
  requires(!std::same_as<std::remove_cvref_t<U>, Shared> && std::convertible_to<U, T>) Shared(U&& value)
      : object_(new Object{std::forward<U>(value)}) {}
  Shared(const Shared& other) : object_(other.object_) {
    if (object_ != nullptr) object_->holders.fetch_add(1, std::memory_order_relaxed);
  }
  Shared(Shared&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Shared& operator=(Shared other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Shared() {
    if (object_ != nullptr && object_->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete object_;
  }

  const T& operator*() const {
    static const T kDefault;
    return object_ == nullptr ? kDefault : object_->value;
  }
  const T* operator->() const { return &**this; }
  operator const T&() const { return **this; }
  // NOLINTEND(google-explicit-constructor)

  // Copies the object first if it has other holders. Otherwise existing references to the object stay valid.
  T& Mutable() {
    if (object_ == nullptr || !IsOnlyHolder()) *this = Shared(T(**this));
    return object_->value;
  }

  bool HoldsSameObject(const Shared& other) const { return object_ == other.object_; }
  bool operator==(const Shared& other) const { return HoldsSameObject(other) || **this == *other; }

 private:
  // The acquire load pairs with the decrement in the destructor of the last other holder, so all its reads are
  // complete. std::shared_ptr::use_count() does not guarantee that.
  bool IsOnlyHolder() const { return object_->holders.load(std::memory_order_acquire) == 1; }

  struct Object {
    T value;
    std::atomic<int> holders = 1;
  };
  Object* object_ = nullptr;
};

}  // namespace onnxtrain
