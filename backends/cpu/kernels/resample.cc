// Resamples axis by axis. Processes one item (the first resized axis and those after it: an image plane) at a time, so
// that intermediate results stay in cache. The gradient is a resampling with transposed taps.
#include "backends/cpu/kernels/resample.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/ops/resample.h"

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/resample-inl.h"
#include "hwy/foreach_target.h"

#include "backends/cpu/kernels/resample-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(FloatResampleTable);
HWY_EXPORT(DoubleResampleTable);

template <>
const ResampleSimd<float>& GetResampleSimd<float>() {
  return HWY_DYNAMIC_DISPATCH(FloatResampleTable)();
}
template <>
const ResampleSimd<double>& GetResampleSimd<double>() {
  return HWY_DYNAMIC_DISPATCH(DoubleResampleTable)();
}

namespace {

// The methods of resampling a row (inner extent 1).
enum class RowForm { kRepeat2x, kSumPairs, kGathered, kSparse };

// The resampling of one axis: [outer, in, inner] → [outer, out, inner].
template <typename T>
struct Step {
  int64_t outer = 1, in = 0, out = 0, inner = 1;
  RowForm form = RowForm::kSparse;
  int taps = 0;                     // kGathered: taps per output, padded with zeros
  std::vector<int64_t> begin, row;  // row: index·inner
  std::vector<int32_t> index;       // kGathered: [taps, out]
  std::vector<T> weight;

  int64_t input() const { return outer * in * inner; }
  int64_t output() const { return outer * out * inner; }
};

bool EveryTapIs(const Taps& t, int64_t per_output, int64_t (*index)(int64_t o, int64_t k)) {
  for (int64_t o = 0; o < t.out(); ++o) {
    if (t.begin[o + 1] - t.begin[o] != per_output) return false;
    for (int64_t k = 0; k < per_output; ++k) {
      if (t.index[t.begin[o] + k] != index(o, k) || t.weight[t.begin[o] + k] != 1) return false;
    }
  }
  return true;
}

RowForm ClassifyRow(const Taps& t) {
  if (t.out() == 2 * t.in && EveryTapIs(t, 1, [](int64_t o, int64_t) { return o / 2; })) return RowForm::kRepeat2x;
  if (t.in == 2 * t.out() && EveryTapIs(t, 2, [](int64_t o, int64_t k) { return 2 * o + k; }))
    return RowForm::kSumPairs;
  const auto taps = static_cast<int64_t>(t.index.size());
  return taps > 0 && t.most() * t.out() <= 2 * taps ? RowForm::kGathered : RowForm::kSparse;
}

template <typename T>
void FillTable(const Taps& t, Step<T>* s) {
  s->taps = static_cast<int>(t.most());
  s->index.assign(s->taps * s->out, 0);
  s->weight.assign(s->taps * s->out, 0);
  for (int64_t o = 0; o < s->out; ++o) {
    for (int64_t k = 0, n = t.begin[o + 1] - t.begin[o]; k < s->taps && n > 0; ++k) {
      const int64_t from = t.begin[o] + std::min(k, n - 1);
      s->index[k * s->out + o] = static_cast<int32_t>(t.index[from]);
      s->weight[k * s->out + o] = k < n ? static_cast<T>(t.weight[from]) : T(0);
    }
  }
}

template <typename T>
Step<T> MakeStep(const Taps& t, int64_t outer, int64_t inner) {
  Step<T> s{.outer = outer, .in = t.in, .out = t.out(), .inner = inner};
  if (inner == 1) s.form = ClassifyRow(t);
  if (s.form == RowForm::kGathered) {
    FillTable(t, &s);
    return s;
  }
  s.begin = t.begin;
  s.weight.assign(t.weight.begin(), t.weight.end());
  for (int64_t i : t.index) s.row.push_back(i * inner);
  return s;
}

// Resamples one row of the innermost axis.
template <typename T>
void ResampleRow(const ResampleSimd<T>& simd, const Step<T>& s, const T* x, T* y) {
  switch (s.form) {
    case RowForm::kRepeat2x:
      return simd.repeat_2x(x, s.in, y);
    case RowForm::kSumPairs:
      return simd.sum_pairs(x, s.out, y);
    case RowForm::kGathered:
      return simd.gather(s.taps, x, s.index.data(), s.weight.data(), s.out, y);
    case RowForm::kSparse:
      break;
  }
  for (int64_t o = 0; o < s.out; ++o) {
    T sum = 0;
    for (int64_t k = s.begin[o]; k < s.begin[o + 1]; ++k) sum += s.weight[k] * x[s.row[k]];
    y[o] = sum;
  }
}

template <typename T, typename X, typename Y>
auto BlendOf(const ResampleSimd<T>& simd) {
  constexpr bool kFrom = std::is_same_v<X, BFloat16>, kTo = std::is_same_v<Y, BFloat16>;
  if constexpr (kFrom && kTo)
    return simd.blend_bf16;
  else if constexpr (kFrom)
    return simd.blend_from_bf16;
  else if constexpr (kTo)
    return simd.blend_to_bf16;
  else
    return simd.blend;
}

// Computes one output position of a non-innermost axis, over the contiguous inner dimensions.
template <typename T, typename X, typename Y>
void BlendRows(const ResampleSimd<T>& simd, const Step<T>& s, int64_t o, const X* x, Y* y) {
  const int64_t begin = s.begin[o], taps = s.begin[o + 1] - begin;
  if (taps == 0) {
    std::fill_n(y, s.inner, Y());
  } else if (std::is_same_v<X, Y> && taps == 1 && s.weight[begin] == 1) {
    std::memcpy(y, x + s.row[begin], s.inner * sizeof(Y));
  } else {
    BlendOf<T, X, Y>(simd)(taps, x, s.row.data() + begin, s.weight.data() + begin, s.inner, y);
  }
}

// Returns the number of independent parts of a step.
template <typename T>
int64_t Parts(const Step<T>& s) {
  return s.inner == 1 ? s.outer : s.outer * s.out;
}

// Runs the parts [begin, end) of a step. bf16 has no steps with inner extent 1.
template <typename T, typename X, typename Y>
void RunParts(const ResampleSimd<T>& simd, const Step<T>& s, int64_t begin, int64_t end, const X* x, Y* y) {
  for (int64_t part = begin; part < end; ++part) {
    if (s.inner > 1) {
      BlendRows(simd, s, part % s.out, x + part / s.out * s.in * s.inner, y + part * s.inner);
    } else if constexpr (std::is_same_v<X, Y>) {
      if constexpr (std::is_same_v<X, T>) ResampleRow(simd, s, x + part * s.in, y + part * s.out);
    }
  }
}

template <typename T>
struct Plan {
  std::vector<Step<T>> steps;
  int64_t items = 1, input = 1, output = 1;  // elements of an item
  int64_t between = 0;                       // elements of the largest intermediate result
  int64_t shares = 1;                        // groups of items, each with its own workspaces

  // for_parts(step, x, y) runs all parts of a step. The last step writes the output, the others alternate between two
  // workspaces.
  template <typename E, typename F>
  void RunItem(const E* x, E* y, T* workspace, F&& for_parts) const {
    const size_t last = steps.size() - 1;
    if (last == 0) return for_parts(steps[0], x, y);
    for_parts(steps[0], x, workspace);
    for (size_t i = 1; i < last; ++i)
      for_parts(steps[i], workspace + (i - 1) % 2 * between, workspace + i % 2 * between);
    for_parts(steps[last], workspace + (last - 1) % 2 * between, y);
  }
};

// Sorts axes by the ratio of output to input, so that axes that shrink come first; gathers as little as possible along
// the innermost axis.
void Order(std::vector<Taps>* taps) {
  const auto ratio = [](const Taps& t) { return static_cast<double>(t.out()) / static_cast<double>(t.in); };
  std::sort(taps->begin(), taps->end(), [&](const Taps& a, const Taps& b) {
    if (ratio(a) != ratio(b)) return ratio(a) < ratio(b);
    return ratio(a) < 1 ? a.axis < b.axis : a.axis > b.axis;
  });
}

template <typename T>
Plan<T> MakePlan(std::vector<Taps> taps, Shape shape) {
  Plan<T> plan;
  Order(&taps);
  int64_t first = static_cast<int64_t>(shape.size());
  for (const Taps& t : taps) first = std::min(first, t.axis);
  plan.items = NumElements(Shape(shape.begin(), shape.begin() + first));
  Shape item(shape.begin() + first, shape.end());
  plan.input = NumElements(item);
  for (const Taps& t : taps) {
    const int64_t axis = t.axis - first;
    const int64_t outer = NumElements(Shape(item.begin(), item.begin() + axis));
    plan.steps.push_back(MakeStep<T>(t, outer, NumElements(Shape(item.begin() + axis + 1, item.end()))));
    item[axis] = t.out();
    if (plan.steps.size() < taps.size()) plan.between = std::max(plan.between, NumElements(item));
  }
  plan.output = NumElements(item);
  return plan;
}

// Runs the items one after the other; threads divide the parts of each step.
template <typename E, typename T>
void RunStepsInParallel(const Plan<T>& plan, const ResampleSimd<T>& simd, const E* x, E* y, T* workspace) {
  for (int64_t item = 0; item < plan.items; ++item) {
    plan.RunItem(x + item * plan.input, y + item * plan.output, workspace,
                 [&](const Step<T>& s, const auto* from, auto* to) {
                   Parallel(Parts(s), 4 * s.output() / std::max<int64_t>(Parts(s), 1),
                            [&](int64_t begin, int64_t end) { RunParts(simd, s, begin, end, from, to); });
                 });
  }
}

// Runs the items of one share in the calling thread.
template <typename E, typename T>
void RunShare(const Plan<T>& plan, const ResampleSimd<T>& simd, int64_t share, const E* x, E* y, T* workspace) {
  T* mine = workspace + 2 * plan.between * share;
  for (int64_t item = plan.items * share / plan.shares; item < plan.items * (share + 1) / plan.shares; ++item) {
    plan.RunItem(x + item * plan.input, y + item * plan.output, mine,
                 [&](const Step<T>& s, const auto* from, auto* to) { RunParts(simd, s, 0, Parts(s), from, to); });
  }
}

template <typename E, typename T>
void RunSharesInParallel(const Plan<T>& plan, const ResampleSimd<T>& simd, const E* x, E* y, T* workspace) {
  Parallel(plan.shares, 4 * (plan.output + plan.between) * plan.items / plan.shares, [&](int64_t begin, int64_t end) {
    for (int64_t share = begin; share < end; ++share) RunShare(plan, simd, share, x, y, workspace);
  });
}

// Elements have type E, sums type T.
template <typename E, typename T>
absl::StatusOr<Kernel> ResampleBy(std::vector<Taps> taps, const Shape& x) {
  if (taps.empty()) {
    const size_t bytes = NumElements(x) * sizeof(E);
    return Kernel{.run = [=](const Args& args) { std::memmove(args.out<E>(), args.in<E>(), bytes); }};
  }
  Plan<T> made = MakePlan<T>(std::move(taps), x);
  if (const int64_t threads = omp_get_max_threads(); made.items >= 2 * threads) made.shares = threads;
  const auto plan = std::make_shared<const Plan<T>>(std::move(made));
  const auto run = plan->shares > 1 ? RunSharesInParallel<E, T> : RunStepsInParallel<E, T>;
  const ResampleSimd<T>& simd = GetResampleSimd<T>();
  Kernel kernel{.run = [=, &simd](const Args& args) {
    run(*plan, simd, args.in<E>(), args.out<E>(), static_cast<T*>(args.workspace));
  }};
  kernel.workspace = 2 * plan->between * plan->shares * sizeof(T);
  return kernel;
}

absl::StatusOr<Kernel> ResampleOf(const Type& x, std::vector<Taps> taps) {
  if (x.dtype == DType::kBFloat16) return ResampleBy<BFloat16, float>(std::move(taps), x.shape);
  return ForReal(x.dtype, [&]<typename T>(T) { return ResampleBy<T, T>(std::move(taps), x.shape); });
}

absl::StatusOr<Kernel> PrepareResample(const KernelContext& c) {
  if (c.out().elements() == 0) return Kernel{.run = [](const Args&) {}};
  return ResampleOf(c.in(), ResampleTaps(c.attrs(), c.in().shape));
}

absl::StatusOr<Kernel> PrepareResampleGrad(const KernelContext& c) {
  if (c.out().elements() == 0 || c.in().elements() == 0) {
    const size_t bytes = c.out().bytes();
    return Kernel{.run = [=](const Args& args) { std::memset(args.out<char>(), 0, bytes); }};
  }
  std::vector<Taps> taps = ResampleTaps(c.attrs(), c.out().shape);
  for (Taps& t : taps) t = t.Transposed();
  return ResampleOf(c.in(), std::move(taps));
}

bool SupportsBf16Input(const KernelContext& c) { return SupportsBf16Resample(c.attrs(), c.in().shape); }

}  // namespace

std::span<const KernelRow> ResampleKernels() {
  static constexpr KernelRow kRows[] = {
      {"Resample", PrepareResample, kReals},
      {"Resample", PrepareResample, kFloat, SupportsBf16Input, Layout::kRowMajor, 1},
      {"ResampleGrad", PrepareResampleGrad, kReals},
      {"ResampleGrad", PrepareResampleGrad, kFloat, SupportsBf16Input, Layout::kRowMajor, 1},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
