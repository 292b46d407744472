// float32 elementwise operators, and Where for every type.
#include "backends/cpu/isa.h"
#include "backends/cpu/kernels/spans.h"
#include "frontend/base/log.h"
#include "frontend/base/strings.h"

#define ONNXTRAIN_LEAF "backends/cpu/kernels/elementwise.leaf.inc"
#include "backends/cpu/foreach_isa.inc"

namespace onnxtrain::cpu {
namespace {

// Elements of these take about as long as this many of an addition.
constexpr int64_t kTranscendental = 8;

const ElementwiseTables& Tables() { return ONNXTRAIN_PICK(kElementwise); }

template <typename Table>
const auto& Lookup(const Table& table, std::string_view op) {
  for (const auto& entry : table) {
    if (op == entry.op) return entry;
  }
  LOG(FATAL) << "no elementwise function for " << op;
}

std::array<float, 2> Params(const KernelContext& c) {
  struct Names {
    std::string_view op, first, second;
  };
  static constexpr Names kNames[] = {
      {"LeakyRelu", "alpha", ""}, {"Elu", "alpha", ""}, {"Celu", "alpha", ""}, {"ThresholdedRelu", "alpha", ""},
      {"Selu", "alpha", "gamma"}, {"HardSigmoid", "alpha", "beta"}, {"Shrink", "lambd", "bias"}, {"Clip", "min", "max"},
  };
  for (const Names& names : kNames) {
    if (c.node.op != names.op) continue;
    return {static_cast<float>(c.attrs().Float(names.first)), static_cast<float>(c.attrs().Float(names.second))};
  }
  if (c.node.op == "IsInf") {
    return {static_cast<float>(c.attrs().Int("detect_negative")), static_cast<float>(c.attrs().Int("detect_positive"))};
  }
  return {};
}

absl::StatusOr<Kernel> PrepareUnary(const KernelContext& c) {
  return UnaryKernel(c, Lookup(Tables().unary, c.node.op).span, Params(c), kTranscendental);
}

absl::StatusOr<Kernel> PrepareBinary(const KernelContext& c) {
  return BinaryKernel(c, Lookup(Tables().binary, c.node.op), 2);
}

std::string Variant(const KernelContext& c) { return StrCat(c.node.op, "/", c.attrs().String("approximate", "none")); }

absl::StatusOr<Kernel> PrepareGelu(const KernelContext& c) {
  return UnaryKernel(c, Lookup(Tables().unary, Variant(c)).span, {}, kTranscendental);
}

absl::StatusOr<Kernel> PrepareGeluGrad(const KernelContext& c) {
  return BinaryKernel(c, Lookup(Tables().binary, Variant(c)), kTranscendental);
}

absl::StatusOr<Kernel> PrepareMod(const KernelContext& c) {
  return BinaryKernel(c, Lookup(Tables().binary, StrCat("Mod/", c.attrs().Int("fmod"))), kTranscendental);
}

// A power by a known exponent may be a product or a root, as exact and far cheaper.
absl::StatusOr<Kernel> PreparePow(const KernelContext& c) {
  const HostTensor* exponent = c.graph.ConstantOf(c.node.inputs[1]);
  const bool scalar = exponent != nullptr && exponent->size() == 1 && c.in(0).shape == c.out().shape;
  const ElementwiseTables& tables = Tables();
  if (scalar && exponent->At(0) == 2) return UnaryKernel(c, Lookup(tables.unary, "Pow/2").span);
  if (scalar && exponent->At(0) == 0.5) return UnaryKernel(c, Lookup(tables.unary, "Sqrt").span);
  return BinaryKernel(c, Lookup(tables.binary, "Pow"), 4 * kTranscendental);
}

// Where: elements are moved as they are, whatever their type.
template <typename T>
absl::StatusOr<Kernel> WhereKernel(const KernelContext& c) {
  const Shape inputs[] = {c.in(0).shape, c.in(1).shape, c.in(2).shape};
  const Loop loop = BroadcastLoop(c.out().shape, inputs);
  const int64_t dc = loop.InnerStride(1), da = loop.InnerStride(2), db = loop.InnerStride(3);
  return Kernel{.run = [=](const Args& args) {
    Parallel(loop.size(), 2, [&](int64_t begin, int64_t end) {
      ForRows(loop, begin, end, [&](const OperandOffsets& at, int64_t count) {
        const auto* condition = args.in<uint8_t>(0) + at[1];
        const T *a = args.in<T>(1) + at[2], *b = args.in<T>(2) + at[3];
        T* y = args.out<T>() + at[0];
        if (dc == 0) {
          const T* from = *condition ? a : b;
          const int64_t step = *condition ? da : db;
          if (from == y) return;
#pragma GCC ivdep
          for (int64_t i = 0; i < count; ++i) y[i] = from[i * step];
          return;
        }
#pragma GCC ivdep
        for (int64_t i = 0; i < count; ++i) y[i] = condition[i] ? a[i * da] : b[i * db];
      });
    });
  }};
}

absl::StatusOr<Kernel> PrepareWhere(const KernelContext& c) {
  switch (SizeOf(c.out().dtype)) {
    case 1: return WhereKernel<uint8_t>(c);
    case 2: return WhereKernel<uint16_t>(c);
    case 4: return WhereKernel<uint32_t>(c);
    default: return WhereKernel<uint64_t>(c);
  }
}

// Tells comparisons of floats, whose result is bool, from those of bools.
bool OfFloats(const KernelContext& c) { return c.in(0).dtype == DType::kFloat32; }

}  // namespace

std::span<const KernelRow> ElementwiseKernels() {
  static const auto* rows = [] {
    auto* all = new std::vector<KernelRow>;
    for (const UnaryEntry& e : Tables().unary) {
      const bool named = std::string_view(e.op).find('/') == std::string_view::npos;
      const bool predicate = std::string_view(e.op).starts_with("Is");
      if (named) all->push_back({e.op, PrepareUnary, predicate ? kFloat | kBools : kFloat});
    }
    for (const BinaryEntry& e : Tables().binary) {
      const std::string_view op = e.op;
      const bool compare = op == "Equal" || op.starts_with("Less") || op.starts_with("Greater");
      if (op.find('/') == std::string_view::npos && op != "Pow") {
        all->push_back({op, PrepareBinary, compare ? kFloat | kBools : kFloat, OfFloats});
      }
    }
    all->push_back({"Pow", PreparePow});
    all->push_back({"Mod", PrepareMod});
    all->push_back({"Gelu", PrepareGelu});
    all->push_back({"GeluGrad", PrepareGeluGrad});
    all->push_back({"Where", PrepareWhere, kAnyType});
    return all;
  }();
  return *rows;
}

}  // namespace onnxtrain::cpu
