#include "optim/parallel/gather_evaluation.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

constexpr char kWhat[] = "exchange of an evaluation";

void Append(const std::vector<double>& values, std::vector<double>* packed) {
  packed->push_back(static_cast<double>(values.size()));
  packed->insert(packed->end(), values.begin(), values.end());
}

std::vector<double> Take(std::span<const double>* packed) {
  const auto size = static_cast<size_t>(packed->front());
  const std::span values = packed->subspan(1, size);
  *packed = packed->subspan(1 + size);
  return {values.begin(), values.end()};
}

std::string Pack(const Evaluation& e, int64_t samples) {
  std::vector<double> packed = {static_cast<double>(samples), e.correct, e.targets};
  Append(e.loss_sums, &packed);
  Append(e.weights, &packed);
  packed.push_back(static_cast<double>(e.metrics.stats().size()));
  for (const MetricStats& metric : e.metrics.stats()) {
    packed.push_back(static_cast<double>(metric.size()));
    for (const std::vector<double>& stat : metric) Append(stat, &packed);
  }
  return {reinterpret_cast<const char*>(packed.data()), packed.size() * sizeof(double)};
}

Evaluation Unpack(const std::string& text, int64_t* samples) {
  std::vector<double> numbers(text.size() / sizeof(double));
  std::memcpy(numbers.data(), text.data(), text.size());
  *samples = static_cast<int64_t>(numbers[0]);
  Evaluation e{.correct = numbers[1], .targets = numbers[2]};
  std::span<const double> rest = std::span<const double>(numbers).subspan(3);
  e.loss_sums = Take(&rest);
  e.weights = Take(&rest);
  std::vector<MetricStats> metrics(static_cast<size_t>(rest[0]));
  rest = rest.subspan(1);
  for (MetricStats& metric : metrics) {
    metric.resize(static_cast<size_t>(rest[0]));
    rest = rest.subspan(1);
    for (std::vector<double>& stat : metric) stat = Take(&rest);
  }
  e.metrics = MetricSums(std::move(metrics));
  return e;
}

void AddTo(const std::vector<double>& part, std::vector<double>* total) {
  total->resize(std::max(part.size(), total->size()));
  for (size_t i = 0; i < part.size(); ++i) (*total)[i] += part[i];
}

}  // namespace

void AddEvaluation(const std::vector<Metric>& metrics, const Evaluation& part, Evaluation* total) {
  AddTo(part.loss_sums, &total->loss_sums);
  AddTo(part.weights, &total->weights);
  total->correct += part.correct;
  total->targets += part.targets;
  total->metrics.Add(metrics, part.metrics);
}

absl::Status GatherEvaluation(DataParallel& ranks, const absl::Status& evaluated, const std::vector<Metric>& metrics,
                              const Evaluation& own, int64_t own_samples, Evaluation* total, int64_t* samples) {
  RETURN_IF_ERROR(ranks.Agree(kWhat, evaluated));
  ASSIGN_OR_RETURN(const auto texts, AllGatherText(ranks.ranks(), kWhat, Pack(own, own_samples)));
  for (const std::string& text : texts) {
    int64_t more;
    AddEvaluation(metrics, Unpack(text, &more), total);
    *samples += more;
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
