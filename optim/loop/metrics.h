// Computes evaluation metrics. A metric is a few small tensors per batch, computed on the device and summed by the host
// (or concatenated, if the metric needs all scores), and a final function of them. Up to rounding, the result does not
// depend on the split into batches.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/text/token_blocks.h"
#include "optim/step/loss.h"

namespace onnxtrain {

struct MetricContext {
  Val y, labels;  // as in LossContext
  LabelForm form;
  int64_t ignore_index;
  int64_t k;  // the number in the name, 5 for top5
  int batch_axis = 0;
  std::optional<double> least_logit = {};  // as in LossContext
  const LossFunction* function = nullptr;  // of the term
  const LossContext* loss = nullptr;       // its inputs
};

// The tensors of a metric, flattened: summed or concatenated over the batches.
using MetricStats = std::vector<std::vector<double>>;

struct Metric;

struct MetricRow {
  std::string_view name;
  std::string_view text;  // for people
  bool numbered = false;  // the name ends in a number: top5
  bool keep = false;      // tensors are concatenated, not summed
  // Accepted labels: classes; binary labels (elements of a loss on a Sigmoid); values (elements of any other loss).
  bool classes = false, binary_labels = false, values = false;
  bool pairs = false;        // accepts losses of pairs, and no other metric does
  bool sequences = false;    // accepts labels of sequences, and no other metric does
  bool needs_words = false;  // of sequences whose classes have texts with spaces
  std::vector<Val> (*stats)(const MetricContext&) = nullptr;
  // Replaces a tensor of a batch by numbers that are summed.
  std::vector<double> (*count)(const Metric& metric, const HostTensor& tensor) = nullptr;
  double (*value)(const MetricStats&) = nullptr;  // NaN if undefined
  // Computes the values of a regression by target, an element of a sample's labels.
  std::vector<double> (*by_target)(const MetricStats&) = nullptr;
  int error_power = 0;  // the first tensor, by target, has the unit of the targets to this power
  // Returns the bytes or characters per token of a text, if the metric is reported per byte or character.
  double (*per_token)(const TextUnit& unit) = nullptr;
};

struct Metric {
  std::string name;  // as written: "f1", "top5", "mae@angle"
  const MetricRow* row = nullptr;
  int64_t k = 0;
  size_t term = 0;                                // the loss term whose output and labels it reads
  std::shared_ptr<const Alphabet> alphabet = {};  // as in LossChoice
};

// Parses names "NAME[@OUTPUT]"; without an output, the metric reads the leading term.
absl::StatusOr<std::vector<Metric>> ChooseMetrics(const std::vector<std::string>& names, const LossChoice& loss);

// Returns rmse and r2 for a regression with few targets, perplexity and bits for text, else nothing.
std::vector<std::string> DefaultMetrics(const LossChoice& loss, const TextUnit& unit = {});

// Returns the names of a metric's values: the metric and, for 2 to 64 targets, "rmse_0", "rmse_1", …
std::vector<std::string> ValueNames(const Metric& metric, const LossChoice& loss);

// Returns the name of the graph output of a metric's tensor.
std::string MetricOutput(size_t metric, size_t stat);

// Appends the tensors of the metrics as outputs to a graph with an attached loss.
absl::Status AttachMetrics(Graph* graph, const std::vector<Metric>& metrics, const LossChoice& loss,
                           const LossSpec& spec);

// Accumulates the tensors of all metrics over batches.
class MetricSums {
 public:
  MetricSums() = default;
  explicit MetricSums(std::vector<MetricStats> stats) : stats_(std::move(stats)) {}
  const std::vector<MetricStats>& stats() const { return stats_; }  // by metric

  void Add(const std::vector<Metric>& metrics, size_t metric, size_t stat, const HostTensor& tensor);
  void Add(const std::vector<Metric>& metrics, const MetricSums& other);
  // Returns the value of each metric, followed by those of its targets if ValueNames lists them. units[m] are the
  // divisors of the targets of metric m: one per target or one for all; empty: 1.
  std::vector<double> Values(const std::vector<Metric>& metrics,
                             const std::vector<std::vector<double>>& units = {}) const;

 private:
  void Add(const MetricRow& row, const std::vector<double>& part, std::vector<double>* into);

  std::vector<MetricStats> stats_;  // by metric
};

inline constexpr double kUndefinedMetric = std::numeric_limits<double>::quiet_NaN();

std::span<const MetricRow> ClassMetrics();
std::span<const MetricRow> ValueMetrics();
std::span<const MetricRow> PairMetrics();
std::span<const MetricRow> TextMetrics();

// The errors of a text against its label, in characters; in classes without an alphabet.
struct TextErrors {
  int64_t edits = 0, units = 0;  // insertions, deletions and replacements; characters of the label
};
TextErrors CompareTexts(const Alphabet* alphabet, const std::vector<int64_t>& prediction,
                        const std::vector<int64_t>& label);

// The metric whose tensor has the log-probabilities of both answers, [N, 2], of all samples.
inline constexpr char kLogProbabilities[] = "$log_probabilities";

}  // namespace onnxtrain
