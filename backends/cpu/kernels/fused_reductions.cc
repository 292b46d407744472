#include "backends/cpu/kernels/fused_reductions.h"

#include <algorithm>

#include "backends/cpu/kernels/reducer.h"
#include "backends/cpu/runtime/parallel.h"

namespace onnxtrain::cpu {
namespace {

// By column, every part has its own accumulators, which are added up at the end.
constexpr int64_t kMaxParts = 16, kRowsPerPart = 8;
constexpr int64_t kMaxRowParts = 64, kElementsPerPart = 1 << 13;
constexpr int64_t kMinLoopLength = 256;  // accumulators worth a loop: processes several narrower rows at a time

}  // namespace

FusedReductions::FusedReductions(const std::vector<FusedReduction>& sums, int64_t size)
    : sums_(sums), size_(size), columns_(sums[0].columns) {
  const bool by_column = std::any_of(sums.begin(), sums.end(), [](const FusedReduction& s) { return s.by_column; });
  period_ = columns_ * std::max<int64_t>(1, kMinLoopLength / columns_);
  grain_ = rows() == 1 ? 512 : columns_;
  const int64_t grains = (size + grain_ - 1) / grain_;
  parts_ = by_column ? std::clamp<int64_t>(rows() / kRowsPerPart, 1, kMaxParts)
                     : std::clamp<int64_t>(size / kElementsPerPart, 1, std::min(grains, kMaxRowParts));
  offsets_.push_back(0);
  for (const FusedReduction& s : sums) offsets_.push_back(offsets_.back() + Width(s) * (HasCopies(s) ? parts_ : 1));
}

int64_t FusedReductions::Begin(int64_t part) const {
  const int64_t grains = (size_ + grain_ - 1) / grain_;
  return std::min(size_, grains * part / parts_ * grain_);
}

size_t FusedReductions::workspace() const { return sums_.empty() ? 0 : offsets_.back() * sizeof(double); }

double* FusedReductions::Accumulators(size_t sum, int64_t part, double* workspace) const {
  const FusedReduction& s = sums_[sum];
  return workspace + offsets_[sum] + (HasCopies(s) ? part * Width(s) : 0);
}

void FusedReductions::Start(int64_t part, double* workspace) const {
  for (size_t i = 0; i < sums_.size(); ++i) {
    double* accs = Accumulators(i, part, workspace);
    if (HasCopies(sums_[i])) {
      std::fill_n(accs, Width(sums_[i]), 0.0);
    } else {
      std::fill(accs + Begin(part) / columns_, accs + Begin(part + 1) / columns_, 0.0);
    }
  }
}

void FusedReductions::Add(size_t sum, int64_t part, int64_t first, const float* x, int64_t n, double* workspace) const {
  double* accs = Accumulators(sum, part, workspace);
  const bool by_column = sums_[sum].by_column;
  const int64_t length = by_column ? period_ : columns_;
  while (n > 0) {
    const int64_t row = first / length, column = first % length, count = std::min(n, length - column);
    by_column ? GetFloatSumReducer().columns(x, count, accs + column) : GetFloatSumReducer().row(x, count, accs + row);
    x += count;
    first += count;
    n -= count;
  }
}

void FusedReductions::Finish(size_t sum, double* workspace, float* to) const {
  const FusedReduction& s = sums_[sum];
  const int64_t width = Width(s), copies = HasCopies(s) ? parts_ : 1;
  const double divisor = s.mean ? static_cast<double>(s.by_column ? rows() : columns_) : 1;
  double* total = Accumulators(sum, 0, workspace);
  Parallel(width, copies, [&](int64_t begin, int64_t end) {
    for (int64_t copy = 1; copy < copies; ++copy)
      GetFloatSumReducer().merge(total + begin, total + copy * width + begin, end - begin);
  });
  const int64_t results = s.by_column ? columns_ : width;
  for (int64_t i = results; i < width; i += results) GetFloatSumReducer().merge(total, total + i, results);
  GetFloatSumReducer().finish(total, results, divisor, to);
}

}  // namespace onnxtrain::cpu
