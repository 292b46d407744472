#include "frontend/onnx/recover/updated_weight.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <unordered_map>

namespace onnxtrain {
namespace {

// Returns the elements of [rows, columns…], or of the transpose, in row-major order.
std::vector<float> ToFloats(const HostTensor& matrix, bool transposed) {
  const int64_t rows = matrix.shape()[0], columns = matrix.size() / rows;
  std::vector<float> values(static_cast<size_t>(matrix.size()));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c)
      values[static_cast<size_t>(transposed ? c * rows + r : r * columns + c)] =
          static_cast<float>(matrix.At(r * columns + c));
  }
  return values;
}

// Returns B for all outputs of the weight, with zero rows for those that are not updated.
HostTensor ExtendRows(const HostTensor& b, const LowRankUpdate& update) {
  if (!update.is_part()) return b;
  const int64_t rank = b.shape()[1];
  HostTensor all({b.dtype(), {update.outputs_before + b.shape()[0] + update.outputs_after, rank}});
  for (int64_t i = 0; i < b.size(); ++i) all.Set(update.outputs_before * rank + i, b.At(i));
  return all;
}

}  // namespace

std::vector<LowRankUpdates> GroupByWeight(const std::vector<LowRankUpdate>& updates) {
  std::vector<LowRankUpdates> groups;
  std::unordered_map<std::string, size_t> by_weight;
  for (const LowRankUpdate& update : updates) {
    const auto [group, added] = by_weight.emplace(update.weight, groups.size());
    if (added) groups.emplace_back();
    groups[group->second].push_back(update);
  }
  return groups;
}

UpdatedWeight::UpdatedWeight(LazyTensor weight, const LowRankUpdate& update,
                             const std::map<std::string, HostTensor>& trained)
    : weight_(std::move(weight)), outputs_first_(update.outputs_first), rank_(update.whole_rank()) {
  const auto [a, rows] = WholeFactors(update, trained);
  const HostTensor b = ExtendRows(rows, update);
  const int64_t matrices = std::max<int64_t>(update.experts, 1);
  // Rows of the stored weight are rows or columns of B·A.
  for (int64_t e = 0; e < matrices; ++e) {
    const auto [in, out] = update.experts > 0 ? FactorsOfExpert(a, b, matrices, e) : std::pair(a, b);
    std::ranges::copy(outputs_first_ ? ToFloats(out, false) : ToFloats(in, true), std::back_inserter(rows_));
    std::ranges::copy(outputs_first_ ? ToFloats(in, false) : ToFloats(out, true), std::back_inserter(along_));
  }
  columns_ = std::ssize(along_) / (rank_ * matrices);
  matrix_rows_ = std::ssize(rows_) / (rank_ * matrices);
  for (float& value : rows_) value = static_cast<float>(value * update.scale);
  if (update.has_magnitude()) SetMagnitudes(trained.at(update.magnitude_name()), update.outputs_before);
}

// Scales the rows of outputs, from `first_output` on, to the lengths in `magnitude`.
void UpdatedWeight::SetMagnitudes(const HostTensor& magnitude, int64_t first_output) {
  constexpr int64_t kBlock = 1 << 16;
  const int64_t size = weight_.type().elements();
  std::vector<double> squares(static_cast<size_t>(outputs_first_ ? size / columns_ : columns_));
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const std::vector<float> sum = Sum(begin, std::min(kBlock, size - begin));
    for (size_t i = 0; i < sum.size(); ++i)
      squares[OutputOf(begin + static_cast<int64_t>(i))] += static_cast<double>(sum[i]) * sum[i];
  }
  factors_.assign(squares.size(), 1);
  for (int64_t i = 0; i < magnitude.size(); ++i) {
    const auto output = static_cast<size_t>(first_output + i);
    if (squares[output] > 0) factors_[output] = static_cast<float>(magnitude.At(i) / std::sqrt(squares[output]));
  }
}

HostTensor UpdatedWeight::Read(int64_t begin, int64_t count) const {
  std::vector<float> sum = Sum(begin, count);
  if (!factors_.empty()) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] *= factors_[OutputOf(begin + static_cast<int64_t>(i))];
  }
  HostTensor result({DType::kFloat32, {count}});
  std::ranges::copy(sum, result.mutable_data<float>().begin());
  return result.CastTo(weight_.dtype());
}

size_t UpdatedWeight::OutputOf(int64_t element) const {
  return static_cast<size_t>(outputs_first_ ? element / columns_ : element % columns_);
}

std::vector<float> UpdatedWeight::Sum(int64_t begin, int64_t count) const {
  std::vector<double> stored(static_cast<size_t>(count));
  weight_.Read(begin, count).Read(0, stored);
  std::vector<float> sum(stored.begin(), stored.end());
  for (int64_t at = begin; at < begin + count;) {
    const int64_t row = at / columns_, first = at % columns_, last = std::min(columns_, first + begin + count - at);
    AddRow(row, first, last, sum.data() + (at - begin) - first);
    at += last - first;
  }
  return sum;
}

void UpdatedWeight::AddRow(int64_t row, int64_t first, int64_t last, float* out) const {
  for (int64_t r = 0; r < rank_; ++r) {
    const float factor = rows_[static_cast<size_t>(row * rank_ + r)];
    const float* along = along_.data() + (row / matrix_rows_ * rank_ + r) * columns_;
    for (int64_t c = first; c < last; ++c) out[c] += factor * along[c];
  }
}

std::pair<HostTensor, HostTensor> FactorsOfExpert(const HostTensor& a, const HostTensor& b, int64_t experts,
                                                  int64_t expert) {
  const int64_t rank = a.shape()[0] / experts, inputs = a.shape()[1], outputs = b.shape()[0];
  HostTensor rows({a.dtype(), {rank, inputs}}), columns({b.dtype(), {outputs, rank}});
  for (int64_t i = 0; i < rows.size(); ++i) rows.Set(i, a.At(expert * rank * inputs + i));
  for (int64_t i = 0; i < columns.size(); ++i) columns.Set(i, b.At(i * experts + expert));
  return {rows, columns};
}

std::pair<HostTensor, HostTensor> WholeFactors(const LowRankUpdate& update,
                                               const std::map<std::string, HostTensor>& trained) {
  const auto find = [&](const std::string& name, const HostTensor& initial) {
    const auto found = trained.find(name);
    return found == trained.end() ? initial : found->second;
  };
  const HostTensor a = find(update.a_name(), update.a), b = find(update.b_name(), update.b);
  if (!update.has_first()) return {a, b};
  const int64_t rank = update.rank(), inputs = a.size() / rank, outputs = b.shape()[0];
  Shape shape_a = a.shape(), shape_b = b.shape();
  shape_a[0] = shape_b[1] = 2 * rank;
  HostTensor whole_a({a.dtype(), shape_a}), whole_b({b.dtype(), shape_b});
  for (int64_t i = 0; i < rank * inputs; ++i) {
    whole_a.Set(i, a.At(i));
    whole_a.Set(rank * inputs + i, update.first_a.At(i));
  }
  for (int64_t i = 0; i < outputs * rank; ++i) {
    const int64_t at = i / rank * 2 * rank + i % rank;
    whole_b.Set(at, b.At(i));
    whole_b.Set(at + rank, -update.first_b.At(i));
  }
  return {whole_a, whole_b};
}

HostTensor SumSquares(const LazyTensor& weight, bool outputs_first) {
  const int64_t rows = weight.shape()[0], columns = weight.type().elements() / rows;
  std::vector<double> sums(static_cast<size_t>(outputs_first ? rows : columns));
  std::vector<double> row(static_cast<size_t>(columns));
  for (int64_t r = 0; r < rows; ++r) {
    weight.Read(r * columns, columns).Read(0, row);
    for (int64_t c = 0; c < columns; ++c) {
      const double value = row[static_cast<size_t>(c)];
      sums[static_cast<size_t>(outputs_first ? r : c)] += value * value;
    }
  }
  return HostTensor::FromDoubles({DType::kFloat64, {static_cast<int64_t>(sums.size())}}, sums);
}

}  // namespace onnxtrain
