#include "optim/loop/evaluate.h"

#include <algorithm>
#include <limits>
#include <span>

#include "frontend/base/status.h"
#include "optim/loop/peers.h"

namespace onnxtrain {

std::vector<std::string> FeedNames(const std::vector<FeedSpec>& specs) {
  std::vector<std::string> names;
  for (const FeedSpec& spec : specs) names.push_back(spec.feed);
  return names;
}

void SetTensors(const Batch& batch, GlobalBatch* global_batch) {
  const auto set = [](std::span<const HostTensor> tensors, GlobalBatch* part) {
    for (size_t i = 0; i < tensors.size(); ++i) part->Set(i, tensors[i]);
  };
  set(batch.tensors, global_batch);
  std::vector<GlobalBatch>& further = global_batch->ResizeFurther(batch.further.size());
  for (size_t p = 0; p < further.size(); ++p) set(batch.further[p], &further[p]);
}

namespace {

// Returns the divisors of standardized targets for each metric; for text, the tokens per unit.
std::vector<std::vector<double>> TargetUnits(const Session& session, const TrainData& data) {
  std::vector<std::vector<double>> units;
  for (const Metric& metric : session.metrics()) {
    if (metric.row->per_token != nullptr) {
      const double per_token = metric.row->per_token(data.text_unit);
      units.push_back({per_token > 0 ? 1 / per_token : std::numeric_limits<double>::quiet_NaN()});
      continue;
    }
    const std::string& feed = session.loss().terms[metric.term].feed;
    const auto spec = std::ranges::find(data.specs, feed, &FeedSpec::feed);
    units.push_back(spec != data.specs.end() ? spec->divisor : std::vector<double>());
  }
  return units;
}

std::vector<std::pair<std::string, double>> NamedMetrics(const Session& session, const TrainData& data,
                                                         const Evaluation& total) {
  std::vector<double> values = total.metrics.Values(session.metrics(), TargetUnits(session, data));
  std::vector<std::string> names;
  for (const Metric& metric : session.metrics()) names.push_back(metric.name);
  for (size_t t = 0; t < session.loss().terms.size(); ++t) {
    values.push_back(total.weights[t] > 0 ? total.loss_sums[t] / total.weights[t]
                                          : std::numeric_limits<double>::quiet_NaN());
  }
  std::vector<std::pair<std::string, double>> named;
  for (const std::string& name : EvalNames(session.loss(), names)) named.emplace_back(name, values[named.size()]);
  return named;
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

absl::Status EvaluatedBatches::Open(const LoaderOptions& load) {
  batches_ = CountBatches(*data_.dataset, data_.specs, load);
  if (load.first_batch >= batches_) return absl::OkStatus();  // other peers evaluate all of them
  ASSIGN_OR_RETURN(loader_, Loader::Create(data_.dataset, data_.specs, load));
  return absl::OkStatus();
}

absl::StatusOr<bool> EvaluatedBatches::AddNext(Evaluation* total, int64_t* samples) {
  ASSIGN_OR_RETURN(const int64_t count, TakeNext());
  if (count > 0) RETURN_IF_ERROR(AddTaken(count, total, samples));
  return count > 0;
}

absl::StatusOr<int64_t> EvaluatedBatches::TakeNext() {
  if (loader_ == nullptr) return 0;
  ASSIGN_OR_RETURN(const Batch* batch, loader_->Next());
  if (batch == nullptr) return 0;
  if (stop_ != nullptr && stop_->load()) return absl::CancelledError("stopped by a signal");
  SetTensors(*batch, &global_batch_);
  return static_cast<int64_t>(batch->samples.size());
}

absl::Status EvaluatedBatches::AddTaken(int64_t count, Evaluation* total, int64_t* samples) {
  ASSIGN_OR_RETURN(const Evaluation e, session_.Evaluate(global_batch_));
  AddEvaluation(session_.metrics(), e, total);
  *samples += count;
  return absl::OkStatus();
}

absl::Status EvaluatedBatches::AddAll(Evaluation* total, int64_t* samples) {
  while (true) {
    ASSIGN_OR_RETURN(const bool more, AddNext(total, samples));
    if (!more) return absl::OkStatus();
  }
}

absl::Status Peers::Evaluate(Session& session, EvaluatedBatches& batches, const LoaderOptions& load, Evaluation* total,
                             int64_t* samples) {
  RETURN_IF_ERROR(batches.Open(load));
  return batches.AddAll(total, samples);
}

namespace {

absl::StatusOr<EvalMetrics> EvaluateWeights(Session& session, const TrainData& data, int num_workers,
                                            const std::atomic<bool>* stop, Peers& peers) {
  constexpr int64_t kStageMicros = 16;  // stages overlap only within a global batch
  LoaderOptions load{.batch_size = session.micro_batch() * (session.holds_partial_weights() ? kStageMicros : 1),
                     .tokens = session.tokens(),
                     .num_workers = num_workers};
  load.tokens.accumulation = 1;
  Evaluation total;
  EvalMetrics metrics;
  EvaluatedBatches batches(session, data, stop);
  RETURN_IF_ERROR(peers.Evaluate(session, batches, load, &total, &metrics.samples));
  if (total.weights.empty()) return metrics;
  const LossChoice& loss = session.loss();
  metrics.loss = MeanLoss(loss, total);
  if (loss.classes && total.targets > 0) metrics.accuracy = total.correct / total.targets;
  metrics.metrics = NamedMetrics(session, data, total);
  return metrics;
}

}  // namespace

absl::StatusOr<EvalMetrics> EvaluateAll(Session& session, const TrainData& data, int num_workers,
                                        const std::atomic<bool>* stop, Peers* peers) {
  Peers alone;
  RETURN_IF_ERROR(session.UseAverage(true));
  auto metrics = EvaluateWeights(session, data, num_workers, stop, peers != nullptr ? *peers : alone);
  RETURN_IF_ERROR(session.UseAverage(false));
  return metrics;
}

std::vector<std::string> EvalNames(const LossChoice& loss, const std::vector<std::string>& metrics) {
  std::vector<std::string> names;
  const auto chosen = ChooseMetrics(metrics, loss);
  for (size_t m = 0; chosen.ok() && m < chosen->size(); ++m) {
    for (std::string& name : ValueNames((*chosen)[m], loss)) names.push_back(std::move(name));
  }
  for (const LossTerm& term : loss.terms) {
    if (loss.terms.size() > 1) names.push_back(StrCat(term.function->name, "@", term.output));
  }
  return names;
}

std::optional<double> FindEvalMetric(const EvalMetrics& metrics, const std::string& name) {
  for (const auto& [own, value] : metrics.metrics) {
    if (own == name) return value;
  }
  if (name == "accuracy" && metrics.accuracy >= 0) return metrics.accuracy;
  return name == "loss" ? std::optional(metrics.loss) : std::nullopt;
}

}  // namespace onnxtrain
