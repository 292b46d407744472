// Compares products with a matrix of 4, 8 or 16 bits or of floats with oneDNN's product with the packed float32 matrix.
#include "frontend/ops/dequantize.h"
#include "backends/cpu/bench/run_node.h"
#include "backends/cpu/kernels/matmul.h"
#include "frontend/base/strings.h"

namespace onnxtrain::bench {
namespace {

struct Case {
  int64_t m, rows, columns, bits;
  bool transposed;

  int64_t inner() const { return transposed ? columns : rows; }
  int64_t outer() const { return transposed ? rows : columns; }
};

constexpr int64_t kBlock = 32;

Run MakeOwn(const Case& c) {
  const bool floats = c.bits > 8;
  const QuantizedMatrix w{.rows = c.rows,
                          .columns = c.columns,
                          .bits = c.bits,
                          .block_rows = floats ? c.rows : 1,
                          .block_columns = floats ? c.columns : kBlock,
                          .zero = floats ? 0.0 : 8.0};
  Attrs attrs = w.ToAttrs();
  attrs.Set("transposed", int64_t{c.transposed});
  return MakeNodeRun("MatMulDequantized",
                     {Type{DType::kFloat32, {c.m, c.inner()}},
                      floats ? Type{c.bits == 16 ? DType::kFloat16 : DType::kFloat32, {c.rows, c.columns}}
                             : Type{DType::kUInt8, {c.rows, c.columns * c.bits / 8}},
                      Type{DType::kFloat32, {w.scale_rows(), w.scale_columns()}}},
                     attrs);
}

Run MakeOneDnn(const Case& c) {
  const int64_t k = c.inner(), n = c.outer();
  const auto packed = cpu::FindPackedLayout(c.m, k, n, DType::kFloat32);
  const auto x = DnnlSequence::MakeMemory(cpu::Plain({c.m, k}, {k, 1}));
  const auto w = DnnlSequence::MakeMemory(packed ? *packed : cpu::Plain({k, n}, {n, 1}));
  const auto y = DnnlSequence::MakeMemory(cpu::Plain({c.m, n}, {n, 1}));
  const dnnl::matmul::primitive_desc desc({x.get_desc(), w.get_desc(), y.get_desc()}, cpu::Engine());
  auto sequence = std::make_shared<DnnlSequence>();
  sequence->Add(dnnl::matmul(desc), {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, y}});
  return MakeDnnlRun(sequence);
}

}  // namespace

void CompareDequantize() {
  for (const int64_t m : {1, 2, 4, 8, 16, 64, 128, 256, 512, 1024}) {
    for (const Case& c : {Case{m, 2816, 1024, 4, true}, Case{m, 2816, 1024, 4, false}, Case{m, 1024, 2816, 4, true},
                          Case{m, 1024, 2816, 4, false}, Case{m, 2816, 1024, 8, true}, Case{m, 2816, 1024, 8, false},
                          Case{m, 2816, 1024, 16, true}, Case{m, 2816, 1024, 16, false}, Case{m, 2816, 1024, 32, true},
                          Case{m, 2816, 1024, 32, false}})
      Compare(
          StrCat("dequantize/", c.m, "x", c.inner(), "x", c.outer(), " of ", c.bits, " bits",
                 c.transposed ? " transposed" : ""),
          [c] { return MakeOwn(c); }, [c] { return MakeOneDnn(c); });
  }
}

}  // namespace onnxtrain::bench
