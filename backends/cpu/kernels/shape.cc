// Operators that move elements.
#include "backends/cpu/kernels/strided_copy.h"
#include "backends/cpu/runtime/kernel.h"

namespace onnxtrain::cpu {
namespace {

Kernel CopyKernel(const KernelContext& c, const Shape& extents, const Strided& to, const Strided& from) {
  const StridedCopy copy(extents, to, from, DTypeSize(c.out().dtype));
  return {.run = [copy](const Args& args) { copy.Run(args.outputs[0], args.inputs[0]); }};
}

// Views that the memory plan could not alias with their input.
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

// The elements starts + i·steps of a dense tensor.
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
