// Memory that views of mapped files take.
#pragma once

#include <cstddef>
#include <span>

namespace onnxtrain {

// Releases the resident pages that hold these bytes, if they are in a MappedFile (as IsInMappedFile knows); the next
// access reads them again. Any thread.
void ReleaseMappedPages(std::span<const std::byte> bytes);

// Keeps few pages resident while bytes are read from the first to the last one, some of them skipped: Linux makes up to
// 2 MiB around a byte that is read resident.
class ReadOnce {
 public:
  explicit ReadOnce(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // Nothing before `at` is read again.
  void PassedTo(size_t at) {
    if (at - released_ < kStep) return;
    ReleaseMappedPages(bytes_.subspan(released_, at - released_));
    released_ = at;
  }

 private:
  static constexpr size_t kStep = size_t{1} << 20;

  std::span<const std::byte> bytes_;
  size_t released_ = 0;
};

}  // namespace onnxtrain
