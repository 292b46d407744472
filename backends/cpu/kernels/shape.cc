// Copies between strided tensors, for Transpose, Expand, Slice, Concat and others.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"

namespace onnxtrain::cpu {
namespace {

// One side of a copy: an offset and strides in elements. Strides of the source may be 0 or negative.
struct Strided {
  int64_t offset = 0;
  Shape strides;
};

class StridedCopy {
 public:
  StridedCopy() = default;
  // Visits axes in any order: destinations must be distinct.
  StridedCopy(const Shape& extents, const Strided& to, const Strided& from, size_t element_size);

  // `to` and `from` point to the first elements of the tensors.
  void Run(void* to, const void* from) const;

 private:
  template <typename T>
  void Rows(T* to, const T* from) const;
  template <typename T>
  void Tiles(T* to, const T* from) const;

  size_t element_size_ = 1;
  int64_t to_offset_ = 0, from_offset_ = 0;
  Loop loop_;  // operand 0: destination, 1: source
  // True for a transposition: the innermost axis of the destination (`across_`) differs from that of the source
  // (`along_`). loop_ has only the other axes then.
  bool tiled_ = false;
  int64_t across_ = 0, along_ = 0;       // extents
  int64_t to_step_ = 0, from_step_ = 0;  // destination stride along, source stride across
};

constexpr int64_t kTile = 32;

StridedCopy::StridedCopy(const Shape& extents, const Strided& to, const Strided& from, size_t element_size)
    : element_size_(element_size), to_offset_(to.offset), from_offset_(from.offset) {
  const Shape strides[] = {to.strides, from.strides};
  loop_ = MakeLoop(extents, strides);
  const size_t axes = loop_.extents.size();
  const OperandOffsets inner = loop_.strides[axes - 1];
  if (inner[0] != 1 || inner[1] == 1 || inner[1] == 0) return;
  for (size_t a = 0; a + 1 < axes; ++a) {
    if (loop_.strides[a][1] != 1) continue;
    tiled_ = true;
    across_ = loop_.extents[axes - 1];
    along_ = loop_.extents[a];
    to_step_ = loop_.strides[a][0];
    from_step_ = inner[1];
    loop_.extents.pop_back();
    loop_.strides.pop_back();
    loop_.extents.erase(loop_.extents.begin() + a);
    loop_.strides.erase(loop_.strides.begin() + a);
    loop_.extents.push_back(1);  // the inner loop is the tile
    loop_.strides.push_back({});
    return;
  }
}

template <typename T>
void StridedCopy::Rows(T* to, const T* from) const {
  const int64_t to_step = loop_.InnerStride(0), from_step = loop_.InnerStride(1);
  Parallel(loop_.size(), 1, [&](int64_t begin, int64_t end) {
    ForRows(loop_, begin, end, [&](const OperandOffsets& at, int64_t count) {
      T* y = to + at[0];
      const T* x = from + at[1];
      if (to_step == 1 && from_step == 1) {
        std::memcpy(y, x, count * sizeof(T));
      } else if (to_step == 1 && from_step == 0) {
        std::fill_n(y, count, *x);
      } else {
        for (int64_t i = 0; i < count; ++i) y[i * to_step] = x[i * from_step];
      }
    });
  });
}

template <typename T>
void StridedCopy::Tiles(T* to, const T* from) const {
  const int64_t bands = (along_ + kTile - 1) / kTile;
  Parallel(loop_.rows() * bands, 2 * across_ * std::min(along_, kTile), [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / bands, first = task % bands * kTile, last = std::min(along_, first + kTile);
      ForRows(loop_, row, row + 1, [&](const OperandOffsets& at, int64_t) {
        for (int64_t block = 0; block < across_; block += kTile) {
          const int64_t stop = std::min(across_, block + kTile);
          for (int64_t j = first; j < last; ++j) {
            T* y = to + at[0] + j * to_step_;
            const T* x = from + at[1] + j;
            for (int64_t i = block; i < stop; ++i) y[i] = x[i * from_step_];
          }
        }
      });
    }
  });
}

void StridedCopy::Run(void* to, const void* from) const {
  ForSize(element_size_, [&]<typename T>(T) {
    T* y = static_cast<T*>(to) + to_offset_;
    const T* x = static_cast<const T*>(from) + from_offset_;
    tiled_ ? Tiles(y, x) : Rows(y, x);
  });
}

// Fills n elements with a pattern of element_size bytes.
void Fill(void* to, int64_t n, const void* pattern, size_t element_size) {
  ForSize(element_size, [&]<typename T>(T value) {
    std::memcpy(&value, pattern, sizeof(T));
    Parallel(n, 1, [&](int64_t begin, int64_t end) { std::fill_n(static_cast<T*>(to) + begin, end - begin, value); });
  });
}

Kernel CopyKernel(const KernelContext& c, const Shape& extents, const Strided& to, const Strided& from) {
  const StridedCopy copy(extents, to, from, DTypeSize(c.out().dtype));
  return {.run = [copy](const Args& args) { copy.Run(args.outputs[0], args.inputs[0]); }};
}

// Copies views that the memory plan could not alias with their input.
absl::StatusOr<Kernel> PrepareReshape(const KernelContext& c) {
  const Shape flat = {c.out().elements()};
  return CopyKernel(c, flat, {0, {1}}, {0, {1}});
}

absl::StatusOr<Kernel> PrepareTranspose(const KernelContext& c) {
  const Shape x = Strides(c.in().shape);
  Shape from;
  for (int64_t axis : c.attrs().Ints("perm")) from.push_back(x[axis]);
  return CopyKernel(c, c.out().shape, {0, Strides(c.out().shape)}, {0, from});
}

absl::StatusOr<Kernel> PrepareExpand(const KernelContext& c) {
  const Shape& shape = c.out().shape;
  return CopyKernel(c, shape, {0, Strides(shape)}, {0, BroadcastStrides(c.in().shape, shape)});
}

absl::StatusOr<Kernel> PrepareConcat(const KernelContext& c) {
  const int64_t axis = c.attrs().Int("axis");
  const Shape to = Strides(c.out().shape);
  std::vector<StridedCopy> copies;
  int64_t at = 0;
  for (size_t i = 0; i < c.node.inputs.size(); ++i) {
    const Shape& part = c.in(i).shape;
    copies.emplace_back(part, Strided{at * to[axis], to}, Strided{0, Strides(part)}, DTypeSize(c.out().dtype));
    at += part[axis];
  }
  return Kernel{.run = [copies = std::move(copies)](const Args& args) {
    for (size_t i = 0; i < copies.size(); ++i) copies[i].Run(args.outputs[0], args.inputs[i]);
  }};
}

absl::StatusOr<Kernel> PrepareSplit(const KernelContext& c) {
  const int64_t axis = c.attrs().Int("axis");
  const Shape from = Strides(c.in().shape);
  std::vector<StridedCopy> copies;
  int64_t at = 0;
  for (size_t i = 0; i < c.node.outputs.size(); ++i) {
    const Shape& part = c.out(i).shape;
    copies.emplace_back(part, Strided{0, Strides(part)}, Strided{at * from[axis], from}, DTypeSize(c.in().dtype));
    at += part[axis];
  }
  return Kernel{.run = [copies = std::move(copies)](const Args& args) {
    for (size_t i = 0; i < copies.size(); ++i) copies[i].Run(args.outputs[i], args.inputs[0]);
  }};
}

// Returns the elements starts + i·steps of a dense tensor.
Strided Sliced(const Shape& shape, const Attrs& attrs) {
  const std::vector<int64_t> starts = attrs.Ints("starts"), steps = attrs.Ints("steps");
  Strided s{0, Strides(shape)};
  for (size_t a = 0; a < shape.size(); ++a) {
    s.offset += starts[a] * s.strides[a];
    s.strides[a] *= steps[a];
  }
  return s;
}

absl::StatusOr<Kernel> PrepareSlice(const KernelContext& c) {
  const Shape& shape = c.out().shape;
  return CopyKernel(c, shape, {0, Strides(shape)}, Sliced(c.in().shape, c.attrs()));
}

// Fills the output with one value, then writes the input into a part of it.
Kernel FillAndCopy(const KernelContext& c, double value, const Strided& to) {
  const HostTensor fill = HostTensor::Scalar(c.out().dtype, value);
  const int64_t n = c.out().elements();
  const size_t size = DTypeSize(c.out().dtype);
  const StridedCopy copy(c.in().shape, to, {0, Strides(c.in().shape)}, size);
  return {.run = [=](const Args& args) {
    Fill(args.outputs[0], n, fill.bytes().data(), size);
    copy.Run(args.outputs[0], args.inputs[0]);
  }};
}

absl::StatusOr<Kernel> PrepareSliceGrad(const KernelContext& c) {
  return FillAndCopy(c, 0, Sliced(c.out().shape, c.attrs()));
}

absl::StatusOr<Kernel> PreparePad(const KernelContext& c) {
  const std::vector<int64_t> pads = c.attrs().Ints("pads");
  Strided to{0, Strides(c.out().shape)};
  for (size_t a = 0; a < to.strides.size(); ++a) to.offset += pads[a] * to.strides[a];
  return FillAndCopy(c, c.attrs().Float("value"), to);
}

}  // namespace

std::span<const KernelRow> ShapeKernels() {
  static constexpr KernelRow kRows[] = {
      {"Reshape", PrepareReshape, kAnyType},     {"Transpose", PrepareTranspose, kAnyType},
      {"Expand", PrepareExpand, kAnyType},       {"Concat", PrepareConcat, kAnyType},
      {"Split", PrepareSplit, kAnyType},         {"Slice", PrepareSlice, kAnyType},
      {"SliceGrad", PrepareSliceGrad, kAnyType}, {"Pad", PreparePad, kAnyType},
      {"cpu.View", PrepareReshape, kAnyType},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
