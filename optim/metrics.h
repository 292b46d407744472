// What an evaluation tells besides the loss. A metric is a few small tensors computed on the device for each batch, which the
// host adds up (or, where the metric is of all scores together, keeps), and a number made of them at the end: the same for any
// split of the data into batches, to rounding.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/loss.h"

namespace onnxtrain {

struct MetricContext {
  Val y, labels;         // as the loss has them: see LossContext
  LabelForm form;
  int64_t ignore_index;
  int64_t k;             // of top5: 5
};

// A metric's tensors, flat: sums over the batches, or all of them one behind the other.
using MetricStats = std::vector<std::vector<double>>;

struct MetricRow {
  std::string_view name;
  std::string_view text;       // for people
  bool numbered = false;       // a number stands behind the name: top5
  bool keep = false;           // tensors are kept, not added up
  // Which labels it is of: classes; coins (elements of a loss on a Sigmoid); values (elements of any other).
  bool classes = false, coins = false, values = false;
  std::vector<Val> (*stats)(const MetricContext&) = nullptr;
  double (*value)(const MetricStats&) = nullptr;  // NaN where it is not defined
};

std::span<const MetricRow> AllMetrics();

struct Metric {
  std::string name;            // as it was given: "f1", "top5", "mae@angle"
  const MetricRow* row = nullptr;
  int64_t k = 0;
  size_t term = 0;             // of the loss whose output and labels it is about
};

// "NAME[@OUTPUT]" each; without an output it is about the loss that accuracy is told of.
absl::StatusOr<std::vector<Metric>> ChooseMetrics(const std::vector<std::string>& names, const LossChoice& loss);

// The name of a graph output that holds a metric's tensor.
std::string MetricOutput(size_t metric, size_t stat);

// Appends the tensors to a graph that the loss was attached to.
absl::Status AttachMetrics(Graph* graph, const std::vector<Metric>& metrics, const LossChoice& loss, const LossSpec& spec);

// What has come together of every metric.
class MetricSums {
 public:
  void Add(const std::vector<Metric>& metrics, size_t metric, size_t stat, const HostTensor& tensor);
  void Add(const std::vector<Metric>& metrics, const MetricSums& other);
  // Of each metric.
  std::vector<double> Values(const std::vector<Metric>& metrics) const;

 private:
  void Add(const MetricRow& row, std::vector<double> part, std::vector<double>* into);

  std::vector<MetricStats> stats_;  // by metric
};

}  // namespace onnxtrain
