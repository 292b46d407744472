// What several ranks have evaluated, merged, and the comparison of their weights.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "frontend/base/status.h"
#include "optim/parallel/data_parallel.h"
#include "optim/record/checkpoint/file_writer.h"

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

}  // namespace

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

namespace {

absl::StatusOr<uint64_t> ComputeChecksum(Session& session) {
  ASSIGN_OR_RETURN(const std::vector<StateTensor> tensors, session.State());
  uint64_t crc = 0;
  for (const StateTensor& tensor : tensors) {
    if (!tensor.of_model || tensor.region.view.buffer == nullptr) continue;
    ASSIGN_OR_RETURN(const HostTensor value, ReadRegion(tensor.region));
    crc = ExtendCrc64(crc, value.bytes());
  }
  return crc;
}

}  // namespace

absl::Status DataParallel::CompareWeights(Session& session) {
  constexpr char kWhat[] = "comparison of weights";
  const auto own = ComputeChecksum(session);
  RETURN_IF_ERROR(Agree(kWhat, own.status()));
  std::vector<uint64_t> all(size());
  RETURN_IF_ERROR(ranks_.AllGather(kWhat, std::as_bytes(std::span(&*own, 1)), std::as_writable_bytes(std::span(all))));
  std::string differ;
  for (int r = 1; r < size(); ++r) {
    if (all[r] != all[0]) StrAppend(&differ, differ.empty() ? "" : ", ", r);
  }
  if (differ.empty()) return absl::OkStatus();
  const absl::Status status = absl::DataLossError(
      StrCat("after update ", session.steps(), " the weights differ from those of rank 0 on rank ", differ));
  const absl::Status agreed = Agree(kWhat, status);  // which every rank knows already, but not that all do
  return absl::IsUnavailable(agreed) ? agreed : status;
}

namespace {

// Adds one batch of every rank at a time: the order of the sums is that of one rank.
absl::Status EvaluateInOrder(Session& session, DataParallel& ranks, absl::Status opened, EvaluatedBatches& batches,
                             Evaluation* total, int64_t* samples) {
  for (int64_t at = 0; at < batches.batches(); at += ranks.size()) {
    Evaluation own;
    int64_t own_samples = 0;
    if (opened.ok()) opened = batches.AddNext(&own, &own_samples).status();
    RETURN_IF_ERROR(GatherEvaluation(ranks, opened, session.metrics(), own, own_samples, total, samples));
  }
  return absl::OkStatus();
}

// Every stage takes part in every batch; the last one knows the results.
absl::Status EvaluateInStages(Session& session, DataParallel& ranks, const absl::Status& opened,
                              EvaluatedBatches& batches, Evaluation* total, int64_t* samples) {
  Evaluation own;
  int64_t own_samples = 0;
  for (bool more = true; more;) {
    absl::StatusOr<int64_t> count = 0;
    if (opened.ok()) count = batches.TakeNext();
    RETURN_IF_ERROR(ranks.Agree("evaluation", opened.ok() ? count.status() : opened));
    more = *count > 0;
    if (more) RETURN_IF_ERROR(batches.AddTaken(*count, &own, &own_samples));
  }
  if (ranks.rank() + 1 < ranks.size()) own_samples = 0;
  return GatherEvaluation(ranks, absl::OkStatus(), session.metrics(), own, own_samples, total, samples);
}

}  // namespace

absl::Status DataParallel::Evaluate(Session& session, EvaluatedBatches& batches, const LoaderOptions& load,
                                    Evaluation* total, int64_t* samples) {
  if (session.holds_partial_weights())
    return EvaluateInStages(session, *this, batches.Open(load), batches, total, samples);
  LoaderOptions own_batches = load;
  own_batches.first_batch = rank(), own_batches.batch_stride = size();
  absl::Status evaluated = batches.Open(own_batches);
  if (options_.in_order) return EvaluateInOrder(session, *this, evaluated, batches, total, samples);
  Evaluation own;
  int64_t own_samples = 0;
  if (evaluated.ok()) evaluated = batches.AddAll(&own, &own_samples);
  return GatherEvaluation(*this, evaluated, session.metrics(), own, own_samples, total, samples);
}

}  // namespace onnxtrain
