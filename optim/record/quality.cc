#include "optim/record/quality.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>

#include "frontend/base/status.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/text/block_columns.h"
#include "optim/plan/run_memory.h"
#include "optim/record/quality_collectors.h"
#include "optim/step/loss.h"

namespace onnxtrain {
namespace {

std::vector<int64_t> Spread(int64_t samples, int64_t most) {
  const int64_t count = std::min(samples, most);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(i * samples / count);
  return rows;
}

// Converts standardized labels or predictions back to the original unit.
HostTensor Unscaled(const FeedSpec* label, const HostTensor& tensor) {
  if (label == nullptr || label->shift.empty() || !IsFloat(tensor.dtype())) return tensor;
  HostTensor own = tensor.Clone();
  const auto units = static_cast<int64_t>(label->shift.size());
  for (int64_t i = 0; i < own.size(); ++i) own.Set(i, own.At(i) * label->divisor[i % units] + label->shift[i % units]);
  return own;
}

const FeedSpec* FindFeed(const std::vector<FeedSpec>& specs, const std::string& feed) {
  const auto found = std::ranges::find(specs, feed, &FeedSpec::feed);
  return found == specs.end() ? nullptr : &*found;
}

}  // namespace

int64_t Quality::Count(int64_t label, int64_t prediction) const {
  const auto found = confusion.find({label, prediction});
  return found == confusion.end() ? 0 : found->second;
}

double Quality::accuracy() const {
  int64_t correct = 0, all = 0;
  for (const ConfidenceBin& bin : bins) correct += bin.correct, all += bin.samples;
  return all > 0 ? static_cast<double>(correct) / static_cast<double>(all) : 0;
}

double Quality::calibration_error() const {
  double error = 0;
  int64_t all = 0;
  for (const ConfidenceBin& bin : bins) {
    error += std::abs(static_cast<double>(bin.correct) - bin.confidence);
    all += bin.samples;
  }
  return all > 0 ? error / static_cast<double>(all) : 0;
}

NumberErrors ErrorsOf(const Quality& quality, size_t target) {
  const auto n = static_cast<double>(quality.results.size());
  double mean = 0, variance = 0, squares = 0, absolute = 0;
  for (const SampleResult& r : quality.results) mean += r.labels[target] / n;
  for (const SampleResult& r : quality.results) {
    const double deviation = r.labels[target] - mean, error = r.predictions[target] - r.labels[target];
    variance += deviation * deviation / n;
    squares += error * error / n;
    absolute += std::abs(error) / n;
  }
  return {.rmse = std::sqrt(squares),
          .mae = absolute,
          .r2 = variance > 0 ? 1 - squares / variance : std::nan(""),
          .spread = std::sqrt(variance)};
}

std::vector<SampleResult> FindWorst(const Quality& quality, size_t count) {
  std::vector<const SampleResult*> order;
  for (const SampleResult& result : quality.results) order.push_back(&result);
  const auto loss = [](const SampleResult* r) {
    return std::isnan(r->loss) ? std::numeric_limits<double>::infinity() : r->loss;
  };
  std::ranges::stable_sort(order, std::greater(), loss);
  order.resize(std::min(order.size(), count));
  std::vector<SampleResult> worst;
  for (const SampleResult* result : order) worst.push_back(*result);
  return worst;
}

absl::StatusOr<std::optional<Quality>> EvaluateQuality(Session& session, const TrainData& data, int64_t most,
                                                       int64_t ignore_index, const std::atomic<bool>* stop) {
  if (session.loss().leading().function->pairs) return std::nullopt;  // outputs have two rows per sample
  const LossChoice& loss = session.loss();
  const std::string& feed = loss.leading().feed;
  const FeedSpec* label = FindFeed(data.specs, feed);
  const ReportedSamples reported =
      PlanReportedSamples(loss, data.specs, most, session.micro_batch(), session.fixed_batch());
  const std::vector<int64_t> rows = Spread(data.dataset->size(), reported.most);
  if (rows.empty()) return std::nullopt;
  ASSIGN_OR_RETURN(auto loader, Loader::Create(SubsetDataset(data.dataset, rows), data.specs,
                                               {.batch_size = reported.batch, .num_workers = 1}));
  const Dataset* blocks = HasBlockColumns(*data.dataset) ? data.dataset.get() : nullptr;
  GlobalBatch global_batch(FeedNames(data.specs));
  std::unique_ptr<QualityCollector> collector;
  while (true) {
    ASSIGN_OR_RETURN(const Batch* batch, loader->Next());
    if (batch == nullptr) break;
    if (stop != nullptr && stop->load()) return absl::CancelledError("stopped by a signal");
    SetTensors(*batch, &global_batch);
    ASSIGN_OR_RETURN(const Evaluation e, session.Predict(global_batch));
    const auto values = e.outputs.find(loss.output());
    const HostTensor* labels = global_batch.Find(feed);
    const auto count = static_cast<int64_t>(batch->samples.size());
    if (values == e.outputs.end() || labels == nullptr || values->second.type().rank() == 0 ||
        values->second.shape()[0] != count)
      return std::nullopt;
    const HostTensor own_labels = Unscaled(label, *labels), own_values = Unscaled(label, values->second);
    const PredictedBatch predicted{own_labels, own_values};
    if (collector == nullptr) collector = MakeQualityCollector(loss, predicted, ignore_index, blocks);
    if (collector == nullptr) return std::nullopt;
    for (int64_t i = 0; i < count; ++i) collector->Add(rows[batch->samples[i]], predicted, i);
  }
  if (collector == nullptr) return std::nullopt;
  Quality quality = collector->Take();
  return quality.samples > 0 ? std::optional(std::move(quality)) : std::nullopt;
}

}  // namespace onnxtrain
