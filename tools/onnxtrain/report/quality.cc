#include "tools/onnxtrain/report/quality.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "frontend/base/status.h"
#include "frontend/data/data_view.h"
#include "tools/onnxtrain/report/predictions.h"

namespace onnxtrain::cli {
namespace {

std::vector<int64_t> Spread(int64_t samples, int64_t most) {
  const int64_t count = std::min(samples, most);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(i * samples / count);
  return rows;
}

// Adds samples to a Quality.
class Collector {
 public:
  Collector(const LossChoice& loss, const Shape& output, int64_t ignore_index)
      : scores_(loss, output), form_(loss.leading().form), ignore_index_(ignore_index) {
    if (scores_.form() == ScoreReader::Form::kClasses) quality_.classes = scores_.width();
    if (scores_.form() == ScoreReader::Form::kBinary && scores_.width() == 1) quality_.classes = 2;
  }

  bool Fits(const HostTensor& labels, const HostTensor& values) const {
    const int64_t samples = values.shape()[0], expected = form_ == LabelForm::kClasses ? 1 : scores_.width();
    const bool one = quality_.classes > 0 || (scores_.form() == ScoreReader::Form::kNumbers && scores_.width() == 1);
    return one && labels.size() == samples * expected;
  }

  void Add(int64_t sample, const HostTensor& labels, const HostTensor& values, int64_t i) {
    std::vector<double> row = scores_.Read(values, i);
    if (quality_.classes == 0) return AddNumber(sample, labels.At(i), row[0]);
    if (row.size() == 1) row = {1 - row[0], row[0]};
    const int64_t label = Label(labels, i);
    if (label >= 0 && label < quality_.classes) AddClass(sample, label, row);
  }

  Quality Take() { return std::move(quality_); }

 private:
  int64_t Label(const HostTensor& labels, int64_t i) const {
    if (form_ == LabelForm::kDistribution) {
      int64_t best = 0;
      for (int64_t c = 1; c < quality_.classes; ++c) {
        if (labels.At(i * quality_.classes + c) > labels.At(i * quality_.classes + best)) best = c;
      }
      return best;
    }
    const auto label = static_cast<int64_t>(std::llround(labels.At(i)));
    return label == ignore_index_ ? -1 : label;
  }

  void AddNumber(int64_t sample, double label, double prediction) {
    ++quality_.samples;
    quality_.results.push_back(
        {.sample = sample, .label = label, .prediction = prediction, .loss = std::abs(prediction - label)});
  }

  void AddClass(int64_t sample, int64_t label, const std::vector<double>& row) {
    const int64_t best = std::max_element(row.begin(), row.end()) - row.begin();
    ++quality_.samples;
    ++quality_.confusion[{label, best}];
    const auto bin = static_cast<size_t>(std::clamp(10 * row[best], 0.0, 9.0));
    quality_.bins[bin].samples += 1;
    quality_.bins[bin].correct += best == label;
    quality_.bins[bin].confidence += row[best];
    constexpr double kLeast = 1e-300;
    quality_.results.push_back({.sample = sample,
                                .label = static_cast<double>(label),
                                .prediction = static_cast<double>(best),
                                .probability = row[best],
                                .loss = -std::log(std::max(row[label], kLeast))});
  }

  const ScoreReader scores_;
  const LabelForm form_;
  const int64_t ignore_index_;
  Quality quality_;
};

}  // namespace

int64_t Quality::Count(int64_t label, int64_t prediction) const {
  const auto found = confusion.find({label, prediction});
  return found == confusion.end() ? 0 : found->second;
}

double Quality::accuracy() const {
  int64_t correct = 0;
  for (const auto& [pair, count] : confusion) correct += pair.first == pair.second ? count : 0;
  return samples > 0 ? static_cast<double>(correct) / static_cast<double>(samples) : 0;
}

double Quality::calibration_error() const {
  double error = 0;
  for (const ConfidenceBin& bin : bins) error += std::abs(static_cast<double>(bin.correct) - bin.confidence);
  return samples > 0 ? error / static_cast<double>(samples) : 0;
}

absl::StatusOr<std::optional<Quality>> EvaluateQuality(Session& session, const TrainData& data, int64_t most,
                                                       int64_t ignore_index, const std::atomic<bool>* stop) {
  const LossChoice& loss = session.loss();
  const std::string& feed = loss.leading().feed;
  const LabelForm form = loss.leading().form;
  if (form == LabelForm::kNone || form == LabelForm::kSequence || loss.leading().onnx != nullptr) return std::nullopt;
  const std::vector<int64_t> rows = Spread(data.dataset->size(), most);
  ASSIGN_OR_RETURN(auto loader, Loader::Create(SubsetDataset(data.dataset, rows), data.specs,
                                               {.batch_size = session.micro_batch(), .num_workers = 1}));
  GlobalBatch global_batch(FeedNames(data.specs));
  std::optional<Collector> collector;
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
    if (!collector) collector.emplace(loss, values->second.shape(), ignore_index);
    if (!collector->Fits(*labels, values->second)) return std::nullopt;
    for (int64_t i = 0; i < count; ++i) collector->Add(rows[batch->samples[i]], *labels, values->second, i);
  }
  if (!collector) return std::nullopt;
  Quality quality = collector->Take();
  return quality.samples > 0 ? std::optional(std::move(quality)) : std::nullopt;
}

}  // namespace onnxtrain::cli
