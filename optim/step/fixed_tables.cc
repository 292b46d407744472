#include "optim/step/fixed_tables.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/read/file.h"
#include "frontend/onnx/recover/weight_index.h"

namespace onnxtrain {
namespace {

// The elements of one column: position p is at first + p·stride. The table must outlive it.
struct TableColumn {
  const HostTensor& table;
  int64_t first, stride, rows;

  double At(int64_t p) const { return table.At(first + p * stride); }
  double Neighbours(int64_t p) const { return At(p - 1) + At(p + 1); }
};

// Sines and cosines of equally spaced angles fulfil x[p−1] + x[p+1] = 2·cos(f)·x[p] for all p. Returns 2·cos(f), 2 for
// zeros.
double WaveFactor(const TableColumn& x) {
  double product = 0, square = 0;
  for (int64_t p = 1; p + 1 < x.rows; ++p) {
    product += x.At(p) * x.Neighbours(p);
    square += x.At(p) * x.At(p);
  }
  return square > 0 ? product / square : 2;
}

// Returns true if the column satisfies the recurrence within 1/1000 of its largest number or within `noise`, or is
// noise.
bool IsWave(const TableColumn& x, double noise = 0) {
  const double factor = WaveFactor(x);
  double largest = 0, worst = 0;
  for (int64_t p = 1; p + 1 < x.rows; ++p) {
    worst = std::max(worst, std::abs(x.Neighbours(p) - factor * x.At(p)));
    largest = std::max(largest, std::abs(x.At(p)));
  }
  if (std::max(worst, largest) <= noise) return true;  // the factor of noise may be any
  return std::abs(factor) < 2.001 && worst <= std::max(noise, 1e-3 * largest);
}

constexpr int64_t kMinWaves = 8;  // fewer may fulfil the equation of waves by chance

// A tensor as a matrix: element (r, c) is at first + r·of_row + c·of_column.
struct Matrix {
  const HostTensor& tensor;
  int64_t first, rows, columns, of_row, of_column;

  double At(int64_t r, int64_t c) const { return tensor.At(first + r * of_row + c * of_column); }
  TableColumn Column(int64_t c, int64_t length) const { return {tensor, first + c * of_column, of_row, length}; }
  // Returns `count` rows from `row` on, with a step of `stride`.
  Matrix Rows(int64_t row, int64_t count, int64_t stride = 1) const {
    return {tensor, first + row * of_row, count, columns, of_row * stride, of_column};
  }
};

// The first axis of more than one element against all others, or turned around.
Matrix AsMatrix(const HostTensor& tensor, bool transposed) {
  const auto axis = std::ranges::find_if(tensor.shape(), [](int64_t extent) { return extent > 1; });
  const int64_t rows = axis == tensor.shape().end() ? 1 : *axis, columns = tensor.size() / rows;
  if (transposed) return {tensor, 0, columns, rows, 1, columns};
  return {tensor, 0, rows, columns, columns, 1};
}

bool IsMatrix(const HostTensor& tensor) {
  const auto axes = std::ranges::count_if(tensor.shape(), [](int64_t extent) { return extent > 1; });
  return IsFloat(tensor.dtype()) && axes == 2;
}

double LargestAtFirst(const Matrix& m) {
  double largest = 0;
  for (int64_t i = 0; i < kMinWaves * m.columns; ++i)
    largest = std::max(largest, std::abs(m.At(i / m.columns, i % m.columns)));
  return largest;
}

// Waves of equally spaced frequencies at one time each: every column is a wave over the rows, and most turn fast.
bool HasWaves(const Matrix& m) {
  if (m.rows < kMinWaves || m.columns < kMinWaves) return false;
  const double noise = 1e-4 * LargestAtFirst(m);  // of sines of multiples of π
  int64_t slow = 0;
  for (int64_t c = 0; c < m.columns; ++c) {
    // Tells large weights without reading all of them.
    if (!IsWave(m.Column(c, kMinWaves), noise) || !IsWave(m.Column(c, m.rows), noise)) return false;
    slow += WaveFactor(m.Column(c, m.rows)) < 1.99 ? 0 : 1;
    if (2 * slow > m.columns) return false;
  }
  return true;
}

bool HasCosinesAndSines(const Matrix& m) {
  const int64_t half = m.rows / 2;
  if (HasWaves(m) || HasWaves(m.Rows(1, m.rows - 1))) return true;  // the first row may have a different scale
  if (m.rows % 2 != 0) return false;
  return (HasWaves(m.Rows(0, half)) && HasWaves(m.Rows(half, half))) ||
         (HasWaves(m.Rows(0, half, 2)) && HasWaves(m.Rows(1, half, 2)));
}

// The range from the first to the last non-zero element of a row.
struct Band {
  int64_t begin = 0, end = 0;  // empty: all are zeros
  bool in_one_piece = true;
};

Band FindBand(const Matrix& m, int64_t row) {
  Band band;
  int64_t count = 0;
  for (int64_t c = 0; c < m.columns; ++c) {
    const double x = m.At(row, c);
    if (x == 0) continue;
    if (x < 0) return {.in_one_piece = false};
    if (count++ == 0) band.begin = c;
    band.end = c + 1;
  }
  band.in_one_piece = band.end - band.begin == count;
  return band;
}

bool HasBands(const Matrix& m) {
  int64_t filled = 0, bands = 0, wide = 0, last = 0;
  for (int64_t r = 0; r < m.rows; ++r) {
    const Band band = FindBand(m, r);
    const int64_t width = band.end - band.begin;
    if (!band.in_one_piece || (width > 0 && band.begin < last)) return false;
    filled += width;
    bands += width > 0 ? 1 : 0;
    wide += width > 1 ? 1 : 0;
    if (width > 0) last = band.begin;
  }
  return bands > 2 && 2 * wide > bands && 2 * filled <= m.rows * m.columns;
}

}  // namespace

bool IsFrequencyBasis(const HostTensor& tensor) {
  if (!IsMatrix(tensor) || IsSplat(tensor)) return false;
  return HasCosinesAndSines(AsMatrix(tensor, false)) || HasCosinesAndSines(AsMatrix(tensor, true));
}

bool IsBandFilterBank(const HostTensor& tensor) {
  if (!IsMatrix(tensor)) return false;
  return HasBands(AsMatrix(tensor, false)) || HasBands(AsMatrix(tensor, true));
}

bool HasIntegerKernels(const HostTensor& tensor) {
  constexpr int64_t kFewest = 8, kMost = 1024;  // elements
  constexpr double kLargest = 64, kRounding = 1e-5;
  const Shape& shape = tensor.shape();
  if (!IsFloat(tensor.dtype()) || tensor.size() < kFewest || tensor.size() > kMost) return false;
  if (shape.size() < 3 || tensor.size() == shape[0] * shape[1]) return false;  // mixes channels only
  double unit = std::numeric_limits<double>::infinity(), least = unit, largest = -unit;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double x = tensor.At(i);
    if (x == 0) continue;
    unit = std::min(unit, std::abs(x));
    least = std::min(least, x);
    largest = std::max(largest, x);
  }
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double multiple = tensor.At(i) / unit;
    if (!(std::abs(multiple) <= kLargest) || std::abs(multiple - std::round(multiple)) > kRounding) return false;
  }
  return least < largest;
}

bool RepeatsOneKernel(const HostTensor& tensor) {
  constexpr int64_t kFewest = 3;  // elements of a kernel
  const Shape& shape = tensor.shape();
  if (!IsFloat(tensor.dtype()) || shape.size() < 3 || shape[0] < 2 || shape[1] != 1) return false;
  const int64_t size = tensor.size() / shape[0];
  bool splat = true, one_hot = true;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (tensor.At(i) != tensor.At(i % size)) return false;
    splat = splat && tensor.At(i) == tensor.At(0);
    one_hot = one_hot && (tensor.At(i) == 0 || tensor.At(i) == 1);
  }
  return size >= kFewest && !splat && !one_hot;
}

namespace {

// Every row has squared norm width/2, the first one has zeros and ones. Rows of zeros before them belong to special
// tokens.
bool HasRowsOfSinesAndCosines(const HostTensor& tensor) {
  const int64_t width = tensor.shape().back(), rows = tensor.size() / width;
  if (width < 4 || width % 2 != 0) return false;
  int64_t waves = 0;
  for (int64_t r = 0; r < rows; ++r) {
    double square = 0;
    bool zeros_and_ones = true;
    for (int64_t i = 0; i < width; ++i) {
      const double x = tensor.At(r * width + i);
      zeros_and_ones &= x == 0 || x == 1;
      square += x * x;
    }
    if (waves == 0 && square == 0) continue;
    if (waves++ == 0 && !zeros_and_ones) return false;
    if (std::abs(square - static_cast<double>(width) / 2) > 1e-3 * static_cast<double>(width)) return false;
  }
  return waves >= 2;
}

// The same, shifted and scaled as a whole (PatchTST standardizes its table): the first row has two numbers instead of
// zeros and ones.
bool HasRescaledSinesAndCosines(const HostTensor& tensor) {
  constexpr int64_t kMinRows = 8;
  const int64_t width = tensor.shape().back(), rows = tensor.size() / width;
  const double first = tensor.At(0), second = tensor.At(tensor.At(1) != first || width < 4 ? 1 : width - 1);
  if (width < 4 || width % 2 != 0 || rows < kMinRows || first == second) return false;
  for (int64_t i = 0; i < width; ++i) {
    if (tensor.At(i) != first && tensor.At(i) != second) return false;
  }
  const auto has_waves = [&](double zero, double one) {
    for (int64_t r = 0; r < rows; ++r) {
      double square = 0;
      for (int64_t i = 0; i < width; ++i) square += std::pow((tensor.At(r * width + i) - zero) / (one - zero), 2);
      if (std::abs(square - static_cast<double>(width) / 2) > 1e-3 * static_cast<double>(width)) return false;
    }
    return true;
  };
  return has_waves(first, second) || has_waves(second, first);
}

// Positions are the first axis of more than one element. The first column has the highest frequency; those of others
// may be so low that they look like constants and straight lines, which fulfil the equation with a factor of 2.
bool HasColumnsOfWaves(const HostTensor& tensor) {
  constexpr int64_t kMinRows = 8;  // fewer may fulfil the equation by chance
  const auto axis = std::ranges::find_if(tensor.shape(), [](int64_t extent) { return extent > 1; });
  if (axis == tensor.shape().end() || *axis < kMinRows) return false;
  const int64_t rows = *axis, width = tensor.size() / rows;
  if (!IsWave({tensor, 0, width, kMinRows})) return false;  // without reading all of a large weight
  if (WaveFactor({tensor, 0, width, rows}) > 1.99) return false;
  for (int64_t c = 0; c < width; ++c) {
    if (!IsWave({tensor, c, width, rows})) return false;
  }
  return true;
}

// Lines of `length` numbers at `step`, each wave over them: the first is cos 0, and some turn (the basis of seasons of
// Oreshkin et al., 2020, "N-BEATS").
bool HasHarmonics(const HostTensor& tensor, int64_t lines, int64_t length, int64_t of_line, int64_t step) {
  constexpr double kNoise = 1e-5;
  if (lines < 3 || length < 5) return false;
  bool turns = false;
  for (int64_t k = 0; k < lines; ++k) {
    const TableColumn line = {tensor, k * of_line, step, length};
    for (int64_t p = 0; p < length; ++p) {
      const double x = line.At(p);
      if (k == 0 ? x != 1 : std::abs(x) > 1 + kNoise) return false;
    }
    if (!IsWave(line, kNoise)) return false;
    turns |= WaveFactor(line) < 1.99;
  }
  return turns;
}

bool IsHarmonicBasis(const HostTensor& tensor) {
  if (tensor.shape().size() != 2) return false;
  const int64_t rows = tensor.shape()[0], columns = tensor.shape()[1];
  return HasHarmonics(tensor, rows, columns, columns, 1) || HasHarmonics(tensor, columns, rows, 1, columns);
}

// The axis of a table that selects the coordinate; positions enumerate the other axes in row-major order.
struct CoordinateAxis {
  const HostTensor& table;
  int64_t extent, inner = 1, positions;

  CoordinateAxis(const HostTensor& t, size_t axis) : table(t), extent(t.shape()[axis]), positions(t.size() / extent) {
    for (size_t a = axis + 1; a < t.shape().size(); ++a) inner *= t.shape()[a];
  }

  double At(int64_t index, int64_t p) const { return table.At((p / inner * extent + index) * inner + p % inner); }

  std::vector<double> Read(int64_t index) const {
    std::vector<double> values(static_cast<size_t>(positions));
    for (int64_t p = 0; p < positions; ++p) values[static_cast<size_t>(p)] = At(index, p);
    return values;
  }
};

// Returns the length of the runs of equal numbers; 0 if runs differ in length.
size_t RunLength(const std::vector<double>& values) {
  const auto run =
      static_cast<size_t>(std::ranges::find_if(values, [&](double x) { return x != values[0]; }) - values.begin());
  if (values.size() % run != 0) return 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != values[i / run * run]) return 0;
  }
  return run;
}

// The coordinates of a grid in row-major order: each is repeated `run` times, and all of them again after a period.
struct GridCoordinate {
  size_t run = 0, count = 0;  // count: of different numbers in a period; 0: no grid
};

GridCoordinate FindGridCoordinate(const std::vector<double>& values) {
  const size_t run = RunLength(values);
  if (run == 0) return {};
  size_t period = run;
  while (period < values.size() && values[period] != values[0]) period += run;
  for (size_t i = period; i < values.size(); ++i) {
    if (values[i] != values[i - period]) return {};
  }
  std::set<double> different(values.begin(), values.begin() + static_cast<int64_t>(period));
  return {run, different.size() * run == period ? different.size() : 0};
}

// Two or three coordinates along one axis, each of which changes along another axis of the grid only.
bool HasGridAlong(const HostTensor& tensor, size_t axis) {
  constexpr size_t kEnough = 3;  // fewer may be equal by chance
  const CoordinateAxis table(tensor, axis);
  if (table.extent < 2 || table.extent > 3 || table.positions < 16) return false;
  // Neighbouring positions differ in one coordinate only; this rejects most large weights after four reads.
  if (table.At(0, 0) != table.At(0, 1) && table.At(1, 0) != table.At(1, 1)) return false;
  std::set<size_t> runs;
  for (int64_t i = 0; i < table.extent; ++i) {
    const GridCoordinate c = FindGridCoordinate(table.Read(i));
    if (c.count < kEnough || !runs.insert(c.run).second) return false;
  }
  return true;
}

// Returns true if element (k, i), at k·of_power + i·of_number, is the k-th power of the i-th of equally spaced numbers.
bool HasPowers(const HostTensor& tensor, int64_t powers, int64_t numbers, int64_t of_power, int64_t of_number) {
  if (powers < 2 || numbers < 4) return false;
  const auto base = [&](int64_t i) { return tensor.At(of_power + i * of_number); };
  const double step = base(1) - base(0), size = std::max(std::abs(base(0)), std::abs(base(numbers - 1)));
  if (step == 0) return false;
  for (int64_t i = 0; i < numbers; ++i) {
    if (std::abs(base(i) - base(0) - step * static_cast<double>(i)) > 1e-5 * size) return false;
    for (int64_t k = 0; k < powers; ++k) {
      const double power = std::pow(base(i), static_cast<double>(k));
      if (std::abs(tensor.At(k * of_power + i * of_number) - power) > 1e-5 * std::max(1.0, std::abs(power)))
        return false;
    }
  }
  return true;
}

FixedTable Classify(const ImportedWeight& weight) {
  const HostTensor& tensor = weight.value;
  if (IsSinusoidTable(tensor)) return FixedTable::kSinusoids;
  if (IsAttentionMask(tensor)) return FixedTable::kMask;
  if (IsCoordinateTable(tensor)) return FixedTable::kGrid;
  if (IsPowerTable(tensor)) return FixedTable::kPowers;
  if (IsSlopeTable(tensor)) return FixedTable::kSlopes;
  const bool kernels = weight.consumer.starts_with("Conv ") && (HasIntegerKernels(tensor) || RepeatsOneKernel(tensor));
  return kernels || IsFrequencyBasis(tensor) || IsBandFilterBank(tensor) ? FixedTable::kFilters : FixedTable::kNone;
}

}  // namespace

FixedTable FindFixedTable(const ImportedWeight& weight) {
  const FixedTable found = Classify(weight);
  ReleaseMappedPages(weight.value.bytes());
  return found;
}

FixedTable FixedTables::Find(const ImportedWeight& weight) {
  const HostTensor& value = weight.value;
  if (value.size() == 0) return FixedTable::kNone;
  const auto known = known_.find(weight.name);
  const bool same = known != known_.end() && known->second.bytes == value.bytes().data() &&
                    known->second.type == value.type() && known->second.consumer == weight.consumer;
  if (same) return known->second.table;
  const FixedTable found = FindFixedTable(weight);
  known_.insert_or_assign(weight.name, Known{value.bytes().data(), value.type(), weight.consumer, found});
  return found;
}

bool IsSinusoidTable(const HostTensor& tensor) {
  if (!IsFloat(tensor.dtype()) || tensor.shape().size() < 2 || tensor.size() == 0) return false;
  return HasRowsOfSinesAndCosines(tensor) || HasRescaledSinesAndCosines(tensor) || HasColumnsOfWaves(tensor) ||
         IsHarmonicBasis(tensor);
}

bool IsCoordinateTable(const HostTensor& tensor) {
  if (!IsFloat(tensor.dtype()) || tensor.shape().size() < 2 || tensor.size() == 0) return false;
  const size_t last = tensor.shape().size() - 1;
  for (size_t axis : {last, last - std::min<size_t>(last, 2), last - 1}) {
    if (HasGridAlong(tensor, axis)) return true;
  }
  return false;
}

bool IsPowerTable(const HostTensor& tensor) {
  if (!IsFloat(tensor.dtype()) || tensor.shape().size() != 2 || tensor.size() == 0) return false;
  const int64_t rows = tensor.shape()[0], columns = tensor.shape()[1];
  return HasPowers(tensor, rows, columns, columns, 1) || HasPowers(tensor, columns, rows, 1, columns);
}

bool IsSlopeTable(const HostTensor& tensor) {
  constexpr int64_t kFewest = 4;  // numbers of a row
  if (!IsFloat(tensor.dtype()) || tensor.shape().size() < 2) return false;
  const int64_t width = tensor.shape().back();
  if (width < kFewest || tensor.size() < 2 * width) return false;
  bool same = true;
  for (int64_t first = 0; first < tensor.size(); first += width) {
    const double step = tensor.At(first + 1) - tensor.At(first);
    const double most = std::max(std::abs(tensor.At(first)), std::abs(tensor.At(first + width - 1)));
    if (step == 0) return false;
    for (int64_t i = 2; i < width; ++i) {
      if (std::abs(tensor.At(first + i) - tensor.At(first) - step * static_cast<double>(i)) > 1e-5 * most) return false;
    }
    same = same && std::abs(step - (tensor.At(1) - tensor.At(0))) <= 1e-5 * std::abs(step);
  }
  return !same;
}

bool IsAttentionMask(const HostTensor& tensor) {
  constexpr double kHides = -100;  // models write −100, −1e4, −1e9, the lowest finite number or −inf
  if (!IsFloat(tensor.dtype()) || tensor.shape().size() < 2) return false;
  double hidden = 0;
  bool open = false;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double x = tensor.At(i);
    if (x == 0) {
      open = true;
    } else if (x <= kHides && (hidden == 0 || x == hidden)) {
      hidden = x;
    } else {
      return false;
    }
  }
  return open && hidden != 0;
}

}  // namespace onnxtrain
