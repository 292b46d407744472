#include "backends/cpu/kernels/matmul.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "backends/cpu/kernels/amx_product.h"
#include "backends/cpu/kernels/dequantize.h"
#include "backends/cpu/kernels/grouped_product.h"
#include "backends/cpu/kernels/relu.h"
#include "backends/cpu/kernels/tiled_product.h"
#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/base/small_float.h"
#include "frontend/base/status.h"
#include "frontend/graph/host_tensor.h"

namespace onnxtrain::cpu {
namespace {

void Transpose(bool yes, Shape* extents, Shape* strides) {
  if (!yes) return;
  const size_t r = extents->size();
  std::swap((*extents)[r - 1], (*extents)[r - 2]);
  std::swap((*strides)[r - 1], (*strides)[r - 2]);
}

// Prepends axes of extent 1 up to `rank`.
void PadRank(size_t rank, Shape* extents, Shape* strides) {
  while (extents->size() < rank) {
    extents->insert(extents->begin(), 1);
    strides->insert(strides->begin(), extents->size() > 1 ? (*extents)[1] * (*strides)[0] : 1);
  }
}

bool BatchIsOne(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end() - 2, [](int64_t d) { return d == 1; });
}

Shape FlatRows(const Shape& shape) { return {NumElements(shape) / std::max<int64_t>(1, shape.back()), shape.back()}; }
Shape LastTwo(const Shape& shape) { return Shape(shape.end() - 2, shape.end()); }

}  // namespace

Product MakeProduct(const Shape& a, const Shape& b, const Shape& y, bool trans_a, bool trans_b) {
  if (a.size() > 2 && BatchIsOne(b) && !trans_a && NumElements(a) > 0) {
    return MakeProduct(FlatRows(a), LastTwo(b), FlatRows(y), false, trans_b);
  }
  Product p{a, b, y, Strides(a), Strides(b), Strides(y), 0, 0, 0};
  Transpose(trans_a, &p.a, &p.a_strides);
  Transpose(trans_b, &p.b, &p.b_strides);
  PadRank(y.size(), &p.a, &p.a_strides);
  PadRank(y.size(), &p.b, &p.b_strides);
  p.m = p.a[y.size() - 2];
  p.k = p.a[y.size() - 1];
  p.n = p.b[y.size() - 1];
  return p;
}

namespace {

Product MakeNodeProduct(const KernelContext& c) {
  return MakeProduct(c.in(0).shape, c.in(1).shape, c.out().shape, c.attrs().Int("trans_a"), c.attrs().Int("trans_b"));
}

}  // namespace

dnnl::matmul::primitive_desc MakeMatMulDesc(const Product& p, const dnnl::memory::desc& weights, Epilogue e) {
  const auto a = Plain(p.a, p.a_strides, e.in), y = Plain(p.y, p.y_strides, e.out);
  dnnl::primitive_attr attr = UserScratchpad();
  dnnl::post_ops ops;
  if (e.adds) ops.append_sum();
  attr.set_post_ops(ops);
  if (!e.bias) return {dnnl::matmul::desc(a, weights, y), attr, Engine()};
  Shape bias(p.y.size(), 1);
  bias.back() = p.n;
  return {dnnl::matmul::desc(a, weights, Plain(bias, Strides(bias), e.bias_type), y), attr, Engine()};
}

DnnlCall MakeMatMulCall(const dnnl::matmul::primitive_desc& desc, bool bias) {
  std::vector<std::pair<int, dnnl::memory::desc>> arguments = {{DNNL_ARG_SRC, desc.src_desc()},
                                                               {DNNL_ARG_WEIGHTS, desc.weights_desc()}};
  if (bias) arguments.emplace_back(DNNL_ARG_BIAS, desc.bias_desc());
  arguments.emplace_back(DNNL_ARG_DST, desc.dst_desc());
  arguments.emplace_back(DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc());
  return {dnnl::matmul(desc), arguments};
}

namespace {

// Multiplies ones by ones and adds the product to threes. k is that of the product up to a limit, since implementations
// split long sums.
bool AccumulatesInPlace(const Product& p, Epilogue e, const std::string& implementation) {
  constexpr int64_t kMaxDim = 64, kMaxAccumulators = 4096;
  const bool trans_a = p.trans_a(), trans_b = p.trans_b();
  const int64_t m = std::min(p.m, kMaxDim), n = std::min(p.n, kMaxDim), k = std::min(p.k, kMaxAccumulators);
  const Product small =
      MakeProduct(trans_a ? Shape{k, m} : Shape{m, k}, trans_b ? Shape{n, k} : Shape{k, n}, {m, n}, trans_a, trans_b);
  const auto desc = MakeMatMulDesc(small, Plain(small.b, small.b_strides, e.in), e);
  if (desc.impl_info_str() != implementation) return false;
  const auto ones = [&](int64_t size) {
    HostTensor x({e.in, {size}});
    for (int64_t i = 0; i < size; ++i) x.Set(i, 1);
    return x;
  };
  const HostTensor a = ones(m * k), b = ones(k * n);
  std::vector<float> y(m * n, 3);
  std::vector<std::byte> scratch(desc.scratchpad_desc().get_size());
  MakeMatMulCall(desc, false).Run({a.bytes().data(), b.bytes().data(), y.data(), scratch.data()});
  return std::all_of(y.begin(), y.end(), [&](float x) { return x == static_cast<float>(k + 3); });
}

}  // namespace

bool Accumulates(const Product& p, Epilogue e, const dnnl::matmul::primitive_desc& desc) {
  static std::mutex mutex;
  static auto* known = new std::map<std::tuple<std::string, DType>, bool>;
  const std::lock_guard lock(mutex);
  const std::string name = desc.impl_info_str();
  const auto [it, fresh] = known->try_emplace({name, e.in}, false);
  if (fresh && !IsReference(desc)) it->second = AccumulatesInPlace(p, {.adds = true, .in = e.in}, name);
  return it->second;
}

void CopyOver(const float* from, float* to, int64_t size) {
  if (from != to)
    Parallel(size, 1, [=](int64_t begin, int64_t end) { std::copy(from + begin, from + end, to + begin); });
}

namespace {

// Computes the product in scratch memory, then adds it.
Kernel MakeAddAfter(const Kernel& product, int64_t size) {
  const size_t bytes = Aligned64(size * sizeof(float));
  return {
      .run =
          [=, run = product.run](const Args& args) {
            auto* y = static_cast<float*>(args.workspace);
            void* outputs[] = {y};
            run({.inputs = args.inputs, .outputs = outputs, .workspace = static_cast<char*>(args.workspace) + bytes});
            Parallel(size, 1, [&](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i) args.out()[i] = args.in(3)[i] + y[i];
            });
          },
      .workspace = bytes + product.workspace};
}

}  // namespace

Kernel MakeProductKernel(const Product& p, const dnnl::memory::desc& weights, Epilogue e) {
  const bool packed = weights != Plain(p.b, p.b_strides, e.in);
  if (std::optional<Kernel> kernel = MakeAmxProduct(p, packed ? &weights : nullptr, e)) return *kernel;
  const int64_t size = NumElements(p.y);
  const bool fuses_bias = e.bias && p.trans_b();  // the primitive does, and is fast
  if (!packed && !fuses_bias && p.is_single() && e.out == e.in && PrefersSgemm(p.m, p.k, p.n, e.in, p.trans_b()))
    return MakeSgemm(p, e);
  const auto desc = MakeMatMulDesc(p, weights, e);
  if (e.adds && !Accumulates(p, e, desc)) {
    e.adds = false;
    return MakeAddAfter(MakeProductKernel(p, weights, e), size);
  }
  return {.run =
              [=, call = MakeMatMulCall(desc, e.bias)](const Args& args) {
                if (e.adds) CopyOver(args.in(3), args.out(), size);
                if (e.bias) {
                  call.Run({args.inputs[0], args.inputs[1], args.inputs[2], args.outputs[0], args.workspace});
                } else {
                  call.Run({args.inputs[0], args.inputs[1], args.outputs[0], args.workspace});
                }
              },
          .workspace = desc.scratchpad_desc().get_size()};
}

namespace {

// Returns the kernel for empty tensors, which oneDNN does not support.
Kernel MakeEmptyKernel(const KernelContext& c, Epilogue e) {
  const int64_t size = c.out().elements(), n = c.out().shape.back();
  return {.run = [=](const Args& args) {
    for (int64_t i = 0; i < size; ++i) {
      const float bias = !e.bias                          ? 0
                         : e.bias_type == DType::kFloat32 ? args.in(2)[i % n]
                                                          : BFloat16ToFloat(args.in<uint16_t>(2)[i % n]);
      const float sum = bias + (e.adds ? args.in(3)[i] : 0);
      e.out == DType::kFloat32 ? args.out()[i] = sum : args.out<uint16_t>()[i] = FloatToBFloat16(sum);
    }
  }};
}

Kernel PlainProduct(const KernelContext& c, Epilogue e) {
  const Product p = MakeNodeProduct(c);
  return p.empty() ? MakeEmptyKernel(c, e) : MakePlainProduct(p, e);
}

// Prepares the product with a float32 weight that is packed tile by tile.
absl::StatusOr<Kernel> PrepareTiledProduct(const KernelContext& c, Epilogue e) {
  const Product p = MakeNodeProduct(c);
  const bool transposed = c.attrs().Int("trans_b") != 0;
  const int64_t width = FindTileWidth(p.m, p.k, p.n, e.in), step = transposed ? p.k : 1;
  if (width == 0 || c.in(1).dtype != DType::kFloat32)
    return absl::InternalError("no tiles of this weight can be packed");
  return MakeTiledProduct(
      p, e,
      {.width = width,
       .transposed = transposed,
       .stride = transposed ? p.k : p.n,
       .read = [step](const Args& args, int64_t first, int64_t, std::byte*) { return args.in(1) + first * step; }});
}

absl::StatusOr<Kernel> PrepareMatMul(const KernelContext& c) {
  return PlainProduct(c, {.in = c.in().dtype, .out = c.out().dtype});
}

absl::StatusOr<Kernel> PrepareProductAndSum(const KernelContext& c) {
  const Epilogue e{.bias = c.has(2),
                   .adds = c.has(3),
                   .in = c.in().dtype,
                   .out = c.out().dtype,
                   .bias_type = c.has(2) ? c.in(2).dtype : DType::kFloat32};
  if (c.attrs().Int("tiles") != 0) return PrepareTiledProduct(c, e);
  if (c.in(1).layout != Layout::kPacked) return PlainProduct(c, e);
  const Product p = MakeNodeProduct(c);
  const auto layout = FindPackedLayout(p.m, p.k, p.n, e.in);
  if (!layout || layout->get_size() != c.in(1).bytes())
    return absl::InternalError("the weight was packed for another product");
  return MakeProductKernel(p, *layout, e);
}

absl::StatusOr<Kernel> PrepareFusedMatMul(const KernelContext& c) {
  ASSIGN_OR_RETURN(Kernel kernel, PrepareProductAndSum(c));
  return c.attrs().String("activation") == "Relu" ? ApplyRelu(std::move(kernel), c.out()) : kernel;
}

// Computes one row of the products that oneDNN lacks: of integers, which wrap around, and of float64.
template <typename T>
void PlainRow(const Product& p, const T* a, int64_t a_step, const T* b, int64_t b_row, int64_t b_column, T* y) {
  using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
  std::fill_n(y, p.n, T(0));
  if (b_column == 1) {
    for (int64_t k = 0; k < p.k; ++k) {
      const auto x = static_cast<Wide>(a[k * a_step]);
      for (int64_t j = 0; j < p.n; ++j) y[j] = static_cast<T>(Wide(y[j]) + x * Wide(b[k * b_row + j]));
    }
    return;
  }
  for (int64_t j = 0; j < p.n; ++j) {
    Wide sum = 0;
    for (int64_t k = 0; k < p.k; ++k) sum += Wide(a[k * a_step]) * Wide(b[k * b_row + j * b_column]);
    y[j] = static_cast<T>(sum);
  }
}

template <typename T>
Kernel PlainLoops(const Product& p) {
  Shape batch(p.y.begin(), p.y.end() - 2);
  const auto batch_strides = [&](const Shape& extents, const Shape& strides) {
    Shape s(strides.begin(), strides.end() - 2);
    for (size_t i = 0; i < s.size(); ++i) s[i] = extents[i] == 1 ? 0 : s[i];
    return s;
  };
  const Shape strides[] = {batch_strides(p.y, p.y_strides), batch_strides(p.a, p.a_strides),
                           batch_strides(p.b, p.b_strides)};
  const Loop loop = MakeLoop(batch, strides);
  const size_t r = p.y.size();
  const int64_t a_row = p.a_strides[r - 2], a_column = p.a_strides[r - 1], b_row = p.b_strides[r - 2],
                b_column = p.b_strides[r - 1];
  return {.run = [=](const Args& args) {
    Parallel(loop.size() * p.m, p.n * p.k, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        ForRows(loop, i / p.m, i / p.m + 1, [&](const OperandOffsets& at, int64_t) {
          const int64_t row = i % p.m;
          PlainRow(p, args.in<T>(0) + at[1] + row * a_row, a_column, args.in<T>(1) + at[2], b_row, b_column,
                   args.out<T>() + at[0] + row * p.n);
        });
      }
    });
  }};
}

absl::StatusOr<Kernel> PreparePlainMatMul(const KernelContext& c) {
  const Product p = MakeNodeProduct(c);
  return ForNumber(c.out().dtype, [&]<typename T>(T) { return PlainLoops<T>(p); });
}

}  // namespace

Kernel MakePlainProduct(const Product& p, Epilogue e) { return MakeProductKernel(p, Plain(p.b, p.b_strides, e.in), e); }

bool ReadsPlainFloats(int64_t m, int64_t k, int64_t n, DType dtype, bool trans_b) {
  return dtype == DType::kFloat32 && (PrefersAmx(m, k, n, dtype) || PrefersSgemm(m, k, n, dtype, trans_b));
}

std::optional<dnnl::memory::desc> FindPackedLayout(int64_t m, int64_t k, int64_t n, DType dtype) {
  // Few rows are multiplied by packed weights faster than by plain ones, transposed ones above all.
  if (ReadsPlainFloats(m, k, n, dtype, true)) return {};
  const dnnl::matmul::desc desc(Plain({m, k}, {k, 1}, dtype), AnyLayout({k, n}, dtype), Plain({m, n}, {n, 1}, dtype));
  const dnnl::matmul::primitive_desc best(desc, UserScratchpad(), Engine());
  const bool plain =
      best.weights_desc() == Plain({k, n}, {n, 1}, dtype) || best.weights_desc() == Plain({k, n}, {1, k}, dtype);
  if (IsReference(best) || plain) return {};
  return best.weights_desc();
}

int64_t FindTileWidth(int64_t m, int64_t k, int64_t n, DType dtype) {
  // Tiles of less than 256 columns read the other operand too often.
  constexpr int64_t kTileBytes = int64_t{2} << 20, kBlock = 64, kMinWidth = 256;
  const int64_t fitting = kTileBytes / std::max<int64_t>(1, k * static_cast<int64_t>(DTypeSize(dtype)));
  const int64_t width = std::min(n, std::max(fitting / kBlock * kBlock, kMinWidth)), last = n - (n - 1) / width * width;
  if (ReadsPlainFloats(m, k, n, dtype, false)) return 0;
  const auto packs = [&](int64_t columns) {
    const auto layout = FindPackedLayout(m, k, columns, dtype);
    return layout && FindPacking(*layout, false, columns) != nullptr;
  };
  return packs(width) && packs(last) ? width : 0;
}

std::span<const KernelRow> MatmulKernels() {
  constexpr TypeSet kFactors = kFloat | Only(DType::kBFloat16);
  constexpr Layout kPacked = Layout::kPacked;
  static constexpr KernelRow kRows[] = {
      {"MatMul", PrepareMatMul},
      {"MatMul", PrepareMatMul, Only(DType::kBFloat16), [](const KernelContext&) { return HasBFloat16(); }},
      {"MatMul", PreparePlainMatMul, kInts | kDouble},
      {"MatMul", PrepareFusedMatMul, kFactors, nullptr, kPacked},
      {"cpu.MatMul", PrepareFusedMatMul, kFactors},
      {"cpu.MatMul", PrepareFusedMatMul, kFactors, nullptr, kPacked},
      {"Dequantize", PrepareDequantize, kAnyType, AcceptsDequantize},
      {"QuantizeDynamic", PrepareQuantizeDynamic, kReals | Only(DType::kUInt8)},
      {"DequantizeDynamic", PrepareDequantizeDynamic, kReals | Only(DType::kUInt8)},
      {"MatMulDequantized", PrepareMatMulDequantized, kAnyType, AcceptsMatMulDequantized},
      {"GroupedMatMul", PrepareGroupedMatMul, kAnyType, AcceptsGroupedProduct},
      {"GroupedMatMulWeightGrad", PrepareGroupedMatMulWeightGrad, kAnyType, AcceptsGroupedProduct}};
  return kRows;
}

}  // namespace onnxtrain::cpu
