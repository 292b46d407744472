// Brings the rows of each group next to each other in workspace memory and back.
#pragma once

#include <algorithm>
#include <array>

#include "backends/cpu/runtime/dnnl_call.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/base/small_float.h"

namespace onnxtrain::cpu {

// The rows of each group in workspace memory: start[g] … start[g + 1] − 1 of `order`.
struct RowGroups {
  int64_t *start, *order;
};

// Rows that are copied at once: more would take memory, and fewer read a matrix too often.
inline constexpr int64_t kRowsAtOnce = 1024;

// Calls f(first, count) for parts of at most kRowsAtOnce of the rows from `first` on.
template <typename F>
void ForRowsAtOnce(int64_t first, int64_t rows, F&& f) {
  for (int64_t i = 0; i < rows; i += kRowsAtOnce) f(first + i, std::min(kRowsAtOnce, rows - i));
}

// oneDNN's products of bf16 have fixed shapes: rows of a group are multiplied so many at a time.
inline constexpr std::array<int64_t, 3> kRowHeights = {128, 64, 32};
// Returns the index of the least height that takes all of `rows`, or that of the largest.
inline size_t FindHeight(int64_t rows) {
  size_t height = 0;
  while (height + 1 < kRowHeights.size() && rows <= kRowHeights[height + 1]) ++height;
  return height;
}

inline Kernel FillZeros(const KernelContext& c) {
  const size_t bytes = c.out().bytes();
  return {.run = [=](const Args& args) { std::fill_n(args.out<std::byte>(), bytes, std::byte{}); }};
}

// Parts of the workspace, by offset.
class Workspace {
 public:
  template <typename T>
  size_t Add(int64_t count) {
    const size_t at = size_;
    size_ += Aligned64(static_cast<size_t>(count) * sizeof(T));
    return at;
  }
  size_t size() const { return size_; }

 private:
  size_t size_ = 0;
};

template <typename T>
T* PartAt(const Args& args, size_t offset) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(args.workspace) + offset);
}

// Sorts the rows by group, those of a group in ascending order.
class RowSorter {
 public:
  RowSorter(int64_t rows, int64_t groups, Workspace* memory)
      : rows_(rows), groups_(groups), start_(memory->Add<int64_t>(groups + 1)), order_(memory->Add<int64_t>(rows)) {}

  RowGroups Sort(const Args& args, const int64_t* ids) const {
    const RowGroups sorted{PartAt<int64_t>(args, start_), PartAt<int64_t>(args, order_)};
    const auto group = [&](int64_t i) {
      return std::clamp(ids[i] < 0 ? ids[i] + groups_ : ids[i], int64_t{0}, groups_ - 1);
    };
    std::fill_n(sorted.start, groups_ + 1, 0);
    for (int64_t i = 0; i < rows_; ++i) ++sorted.start[group(i) + 1];
    for (int64_t g = 0; g < groups_; ++g) sorted.start[g + 1] += sorted.start[g];
    for (int64_t i = 0; i < rows_; ++i) sorted.order[sorted.start[group(i)]++] = i;
    std::copy_backward(sorted.start, sorted.start + groups_, sorted.start + groups_ + 1);
    sorted.start[0] = 0;
    return sorted;
  }

 private:
  int64_t rows_, groups_;
  size_t start_, order_;
};

// Copies `count` rows to their places in the order; each row of the tensor is read `repeats` times.
struct RowCopy {
  DType dtype;
  int64_t width, repeats;

  // As float32.
  void Gather(const void* from, const int64_t* order, int64_t count, float* to) const {
    Parallel(count, width, [=, this](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) Read(from, order[i] / repeats, to + i * width);
    });
  }

  // As bf16, followed by zeros up to `padded` rows.
  void GatherPadded(const uint16_t* from, const int64_t* order, int64_t count, int64_t padded, uint16_t* to) const {
    Parallel(padded, width, [=, this](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (i < count) {
          std::copy_n(from + order[i] / repeats * width, width, to + i * width);
        } else {
          std::fill_n(to + i * width, width, uint16_t{0});
        }
      }
    });
  }

  // Writes rows of float32 back to where the order took them from.
  void Scatter(const float* from, const int64_t* order, int64_t count, void* to) const {
    Parallel(count, width, [=, this](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) Write(from + i * width, to, order[i]);
    });
  }

 private:
  void Read(const void* from, int64_t row, float* to) const {
    if (dtype == DType::kFloat32) {
      std::copy_n(static_cast<const float*>(from) + row * width, width, to);
    } else {
      BFloat16ToFloat({static_cast<const uint16_t*>(from) + row * width, size()}, {to, size()});
    }
  }
  void Write(const float* from, void* to, int64_t row) const {
    if (dtype == DType::kFloat32) {
      std::copy_n(from, width, static_cast<float*>(to) + row * width);
    } else {
      FloatToBFloat16({from, size()}, {static_cast<uint16_t*>(to) + row * width, size()});
    }
  }
  size_t size() const { return static_cast<size_t>(width); }
};

// Returns the copy for a tensor from which `rows` rows are read.
inline RowCopy MakeRowCopy(const Type& type, int64_t rows) {
  return {type.dtype, type.shape[1], std::max<int64_t>(rows / std::max<int64_t>(type.shape[0], 1), 1)};
}

}  // namespace onnxtrain::cpu
