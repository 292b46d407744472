#include "backends/cpu/kernels/spans.h"

namespace onnxtrain::cpu {

Kernel UnaryKernel(const KernelContext& c, UnarySpan span, std::array<float, 2> params, int64_t cost) {
  const int64_t n = c.out().elements();
  const size_t x_size = DTypeSize(c.in().dtype), y_size = DTypeSize(c.out().dtype);
  return {.run = [=](const Args& args) {
    const auto* x = args.in<char>();
    auto* y = args.out<char>();
    Parallel(n, cost, [&](int64_t begin, int64_t end) {
      span(x + begin * x_size, y + begin * y_size, end - begin, params.data());
    });
  }};
}

Kernel BinaryKernel(const KernelContext& c, const BinarySpans& spans, int64_t cost) {
  const Shape inputs[] = {c.in(0).shape, c.in(1).shape};
  const Loop loop = BroadcastLoop(c.out().shape, inputs);
  const size_t x_size = DTypeSize(c.in().dtype), y_size = DTypeSize(c.out().dtype);
  const BinarySpan span = loop.InnerStride(1) == loop.InnerStride(2) ? spans.both
                          : loop.InnerStride(1) != 0                 ? spans.scalar_right
                                                                     : spans.scalar_left;
  return {.run = [=](const Args& args) {
    const auto *a = args.in<char>(0), *b = args.in<char>(1);
    auto* y = args.out<char>();
    Parallel(loop.size(), cost, [&](int64_t begin, int64_t end) {
      ForRows(loop, begin, end, [&](const OperandOffsets& at, int64_t count) {
        span(a + at[1] * x_size, b + at[2] * x_size, y + at[0] * y_size, count);
      });
    });
  }};
}

}  // namespace onnxtrain::cpu
