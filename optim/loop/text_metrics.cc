// Metrics of texts that are recognized with CTC: the best path of a sample against its label.
#include <algorithm>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "frontend/base/strings.h"
#include "frontend/data/text/unicode.h"
#include "optim/loop/metrics.h"

namespace onnxtrain {
namespace {

// A row of the tensor begins with the steps of the path, the blank, and the padding of the label.
constexpr int64_t kHeader = 3;

// Returns, by sample, the header, the best class of each step and the label.
std::vector<Val> PathStats(const MetricContext& c) {
  Builder& b = c.y.b();
  const DType dtype = c.y.dtype();
  const Val y = c.loss->Option("time_first", 0) != 0 ? Transpose(c.y, {1, 0, 2}) : c.y;
  const int64_t n = y.dim(0);
  std::vector<Val> parts;
  for (const double value :
       {static_cast<double>(y.dim(1)), c.loss->Option("blank", 0), static_cast<double>(c.ignore_index)})
    parts.push_back(Expand(b.Scalar(dtype, value), {n, 1}));
  parts.push_back(Cast(ArgMax(y, 2), dtype));
  parts.push_back(Cast(c.labels, dtype));
  return {Concat(parts, 1)};
}

struct Recognized {
  std::vector<int64_t> prediction, label;
};

std::vector<Recognized> ReadRows(const HostTensor& rows) {
  std::vector<Recognized> samples;
  const int64_t width = rows.shape()[1];
  for (int64_t i = 0; i < rows.shape()[0]; ++i) {
    const auto at = [&](int64_t k) { return static_cast<int64_t>(rows.At(i * width + k)); };
    const int64_t steps = at(0), blank = at(1), padding = at(2);
    std::vector<int64_t> path(steps);
    for (int64_t t = 0; t < steps; ++t) path[t] = at(kHeader + t);
    Recognized& sample = samples.emplace_back(Recognized{.prediction = MergeRepeats(path, blank)});
    for (int64_t k = kHeader + steps; k < width && at(k) != padding; ++k) sample.label.push_back(at(k));
  }
  return samples;
}

// The least number of insertions, deletions and replacements that make one sequence of the other: Levenshtein (1966).
template <typename T>
int64_t EditDistance(const std::vector<T>& from, const std::vector<T>& to) {
  std::vector<int64_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), int64_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    int64_t diagonal = std::exchange(row[0], static_cast<int64_t>(i) + 1);
    for (size_t j = 0; j < to.size(); ++j) {
      const int64_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

using Units = std::vector<std::string>;

// Returns the characters of a text; where the characters of classes are not known, the classes.
Units Characters(const Alphabet* alphabet, const std::vector<int64_t>& classes) {
  Units units;
  if (alphabet == nullptr) {
    for (const int64_t c : classes) units.push_back(StrCat(c));
    return units;
  }
  const std::string text = alphabet->Decode(classes);
  for (std::string_view rest = text; !rest.empty();) {
    const size_t bytes = CharBytes(rest[0]);
    units.emplace_back(rest.substr(0, bytes));
    rest.remove_prefix(bytes);
  }
  return units;
}

Units Words(const Alphabet* alphabet, const std::vector<int64_t>& classes) {
  return absl::StrSplit(alphabet->Decode(classes), ' ', absl::SkipEmpty());
}

using SplitFn = Units (*)(const Alphabet*, const std::vector<int64_t>&);

TextErrors CountEdits(SplitFn split, const Alphabet* alphabet, const Recognized& sample) {
  const Units label = split(alphabet, sample.label);
  return {EditDistance(split(alphabet, sample.prediction), label), std::ssize(label)};
}

// Returns the errors of all samples and the units of their labels.
template <SplitFn kSplit>
std::vector<double> CountErrors(const Metric& metric, const HostTensor& rows) {
  std::vector<double> totals = {0, 0};
  for (const Recognized& sample : ReadRows(rows)) {
    const TextErrors errors = CountEdits(kSplit, metric.alphabet.get(), sample);
    totals[0] += static_cast<double>(errors.edits);
    totals[1] += static_cast<double>(errors.units);
  }
  return totals;
}

std::vector<double> CountExact(const Metric& metric, const HostTensor& rows) {
  std::vector<double> totals = {0, 0};
  for (const Recognized& sample : ReadRows(rows)) {
    totals[0] += CountEdits(Characters, metric.alphabet.get(), sample).edits == 0 ? 1 : 0;
    totals[1] += 1;
  }
  return totals;
}

double Ratio(const MetricStats& s) { return s[0].size() == 2 && s[0][1] > 0 ? s[0][0] / s[0][1] : kUndefinedMetric; }

}  // namespace

TextErrors CompareTexts(const Alphabet* alphabet, const std::vector<int64_t>& prediction,
                        const std::vector<int64_t>& label) {
  return CountEdits(Characters, alphabet, {prediction, label});
}

std::span<const MetricRow> TextMetrics() {
  static const std::vector<MetricRow> rows = {
      {.name = "cer",
       .text = "character error rate: edits that make the label of the best path, per character of the labels",
       .sequences = true,
       .stats = PathStats,
       .count = CountErrors<Characters>,
       .value = Ratio},
      {.name = "wer",
       .text = "word error rate: edits of words, per word of the labels",
       .sequences = true,
       .needs_words = true,
       .stats = PathStats,
       .count = CountErrors<Words>,
       .value = Ratio},
      {.name = "exact",
       .text = "share of the samples whose text equals the label",
       .sequences = true,
       .stats = PathStats,
       .count = CountExact,
       .value = Ratio},
  };
  return rows;
}

}  // namespace onnxtrain
