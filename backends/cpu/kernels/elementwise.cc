// Prepares elementwise operators over float32 and float64, and Where for every type.
#include <algorithm>
#include <unordered_map>

#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/ops/ops.h"
#include "frontend/base/log.h"
#include "frontend/base/strings.h"
#include "frontend/ops/row.h"

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/elementwise-inl.h"
#include "hwy/foreach_target.h"

#include "backends/cpu/kernels/elementwise-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(ElementwiseTable);
namespace {

// Finds the entries of a table by name.
template <typename Entry>
class NamedEntries {
 public:
  explicit NamedEntries(std::span<const Entry> table) {
    for (const Entry& e : table) by_name_.emplace(e.op, &e);
  }
  const Entry* Find(std::string_view name) const {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : it->second;
  }

 private:
  std::unordered_map<std::string_view, const Entry*> by_name_;
};

}  // namespace

std::array<double, 2> GetParams(const Node& node) {
  std::array<double, 2> params{};
  auto next = params.begin();
  for (const AttrSpec& spec : FindOp(node.op)->attrs) {
    const bool integer = std::holds_alternative<int64_t>(spec.value);
    if ((!integer && !std::holds_alternative<double>(spec.value)) || next == params.end()) continue;
    *next++ = integer ? static_cast<double>(node.attrs.Int(spec.name)) : node.attrs.Float(spec.name);
  }
  return params;
}

namespace {

// Returns the entry of a power. Constant exponents of squares and roots have entries that are as exact and far cheaper.
std::string PowName(const Graph& graph, const Node& node) {
  const HostTensor* exponent = graph.FindConstant(node.inputs[1]);
  const bool scalar = exponent != nullptr && exponent->size() == 1 &&
                      graph.type(node.inputs[0]).shape == graph.type(node.outputs[0]).shape;
  if (scalar && exponent->At(0) == 2) return "Pow/2";
  return scalar && exponent->At(0) == 0.5 ? "Sqrt" : "Pow";
}

absl::StatusOr<Kernel> PrepareFloats(const KernelContext& c) {
  const EntryName entry = GetEntry(c.graph, c.node);
  if (const UnaryEntry* unary = FindUnary(entry.name)) {
    const int64_t row = entry.name == kRotateHalves ? c.attrs().Int("size") : 1;
    return UnaryKernel(c, unary->span, entry.params, unary->cost, row);
  }
  const BinaryEntry* binary = FindBinary(entry.name);
  CHECK(binary != nullptr) << "no elementwise function for " << entry.name;
  return BinaryKernel(c, *binary, binary->cost);
}

// Prepares the kernels of float64, which gradient checks and models of doubles run.
absl::StatusOr<Kernel> PrepareDoubles(const KernelContext& c) {
  constexpr int64_t kCost = 16;
  const std::string name = GetEntry(c.graph, c.node).name;
  const UnaryEntry* unary = FindUnary(name);
  if (unary == nullptr) return BinaryKernel(c, FindBinary(name)->f64, kCost);
  const auto params = GetParams(c.node);
  const size_t y_size = DTypeSize(c.out().dtype);
  return Kernel{.run = [=, f = unary->f64_span, n = c.out().elements()](const Args& args) {
    Parallel(n, kCost, [&](int64_t begin, int64_t end) {
      f(args.in<double>() + begin, args.out<char>() + begin * y_size, end - begin, params.data());
    });
  }};
}

template <typename T>
using Select = void (*)(const uint8_t* condition, const T* a, const T* b, T* y, int64_t n);

// Selects between operands with constant steps of 0 or 1, so that the compiler vectorizes the loop.
template <typename T, int kStepA, int kStepB>
void SelectBy(const uint8_t* condition, const T* a, const T* b, T* y, int64_t n) {
  const T a0 = a[0], b0 = b[0];
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T left = kStepA ? a[i] : a0, right = kStepB ? b[i] : b0;
    y[i] = condition[i] != 0 ? left : right;
  }
}

// Returns the loop for these strides, or null if one is neither 0 nor 1.
template <typename T>
Select<T> SelectOf(int64_t condition, int64_t a, int64_t b) {
  static constexpr Select<T> kByStep[2][2] = {{SelectBy<T, 0, 0>, SelectBy<T, 0, 1>},
                                              {SelectBy<T, 1, 0>, SelectBy<T, 1, 1>}};
  const auto is_step = [](int64_t step) { return step == 0 || step == 1; };
  return condition == 1 && is_step(a) && is_step(b) ? kByStep[a][b] : nullptr;
}

// Prepares the operator Where, which moves elements of any type.
template <typename T>
absl::StatusOr<Kernel> WhereKernel(const KernelContext& c) {
  const Shape inputs[] = {c.in(0).shape, c.in(1).shape, c.in(2).shape};
  const Loop loop = BroadcastLoop(c.out().shape, inputs);
  const int64_t dc = loop.InnerStride(1), da = loop.InnerStride(2), db = loop.InnerStride(3);
  const Select<T> select = SelectOf<T>(dc, da, db);
  return Kernel{.run = [=](const Args& args) {
    Parallel(loop.size(), 2, [&](int64_t begin, int64_t end) {
      ForRows(loop, begin, end, [&](const OperandOffsets& at, int64_t count) {
        const auto* condition = args.in<uint8_t>(0) + at[1];
        const T *a = args.in<T>(1) + at[2], *b = args.in<T>(2) + at[3];
        T* y = args.out<T>() + at[0];
        if (select != nullptr) return select(condition, a, b, y, count);
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
  switch (DTypeSize(c.out().dtype)) {
    case 1:
      return WhereKernel<uint8_t>(c);
    case 2:
      return WhereKernel<uint16_t>(c);
    case 4:
      return WhereKernel<uint32_t>(c);
    default:
      return WhereKernel<uint64_t>(c);
  }
}

// Check the type of input 0, since results of comparisons are bool.
bool OfFloats(const KernelContext& c) { return c.in(0).dtype == DType::kFloat32; }
bool OfDoubles(const KernelContext& c) { return c.in(0).dtype == DType::kFloat64; }

}  // namespace

const ElementwiseTables& GetElementwiseTables() { return HWY_DYNAMIC_DISPATCH(ElementwiseTable)(); }

const UnaryEntry* FindUnary(std::string_view entry) {
  static const auto* entries = new NamedEntries(GetElementwiseTables().unary);
  return entries->Find(entry);
}

const BinaryEntry* FindBinary(std::string_view entry) {
  static const auto* entries = new NamedEntries(GetElementwiseTables().binary);
  return entries->Find(entry);
}

EntryName GetEntry(const Graph& graph, const Node& node) {
  if (node.op == "Pow") return {PowName(graph, node)};
  if (node.op == "Gelu" || node.op == "GeluGrad")
    return {StrCat(node.op, "/", node.attrs.String("approximate", "none"))};
  if (node.op == "Mod") return {StrCat("Mod/", node.attrs.Int("fmod"))};
  if (node.op == "Cast")
    return {StrCat("Cast/", ToString(graph.type(node.inputs[0]).dtype), "-", node.attrs.String("to"))};
  const std::array<double, 2> numbers = GetParams(node);
  return {node.op, {static_cast<float>(numbers[0]), static_cast<float>(numbers[1])}};
}

int64_t GetElementCost(std::string_view entry) {
  if (const UnaryEntry* unary = FindUnary(entry)) return unary->cost;
  const BinaryEntry* binary = FindBinary(entry);
  return binary == nullptr ? 2 : binary->cost;  // Where
}

Kernel UnaryKernel(const KernelContext& c, UnarySpan span, std::array<float, 2> params, int64_t cost, int64_t row) {
  const int64_t n = c.out().elements();
  const size_t x_size = DTypeSize(c.in().dtype), y_size = DTypeSize(c.out().dtype);
  return {.run = [=](const Args& args) {
    const auto* x = args.in<char>();
    auto* y = args.out<char>();
    Parallel(n / row, cost * row, [&](int64_t first, int64_t last) {
      const int64_t begin = first * row;
      span(x + begin * x_size, y + begin * y_size, last * row - begin, params.data());
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

std::span<const KernelRow> ElementwiseKernels() {
  static const auto* rows = [] {
    auto* all = new std::vector<KernelRow>{{"Where", PrepareWhere, kAnyType}};
    const auto add = [&](std::string_view entry, bool f64) {
      const std::string_view op = entry.substr(0, entry.find('/'));
      const bool known = std::any_of(all->begin(), all->end(), [&](const KernelRow& row) { return row.op == op; });
      if (op == "Cast" || known) return;
      all->push_back({op, PrepareFloats, kFloat | kBools, OfFloats});
      if (f64) all->push_back({op, PrepareDoubles, kDouble | kBools, OfDoubles});
    };
    for (const UnaryEntry& e : GetElementwiseTables().unary) add(e.op, e.f64_span != nullptr);
    for (const BinaryEntry& e : GetElementwiseTables().binary) add(e.op, e.f64.both != nullptr);
    return all;
  }();
  return *rows;
}

}  // namespace onnxtrain::cpu
