#include "optim/record/telemetry/histogram_recorder.h"

#include <set>

#include "frontend/base/status.h"

namespace onnxtrain {

HistogramRecorder::HistogramRecorder(Session& session, EventFile& events, const TrainData& data, int64_t every_updates,
                                     double every_seconds)
    : session_(session),
      events_(events),
      every_updates_(every_updates),
      every_seconds_(every_seconds),
      batch_(FeedNames(data.specs)) {}

bool HistogramRecorder::IsDue(int64_t update) const {
  if (!status_.ok()) return false;
  if (update == 1) return true;
  if (every_updates_ > 0) return update % every_updates_ == 0;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - written_at_).count() >= every_seconds_;
}

absl::Status HistogramRecorder::OnBatch(int64_t update, const Batch& batch) {
  if (!IsDue(update)) return absl::OkStatus();
  SetTensors(batch, &batch_);
  const absl::Status written = Write(update);
  written_at_ = std::chrono::steady_clock::now();
  if (!absl::IsResourceExhausted(written)) return written;
  status_ = Annotate(written, "`histogram_every`: no more histograms: ");
  return absl::OkStatus();
}

absl::Status HistogramRecorder::Write(int64_t update) {
  std::set<std::string> trained;
  for (const WeightDecision& weight : session_.weights()) {
    if (weight.trained) trained.insert(weight.name);
  }
  const auto write = [&](const char* kind, const std::string& name, const HostTensor& tensor) {
    Histogram histogram;
    histogram.Add(tensor);
    events_.Write(update, StrCat(kind, "/", name), histogram);
  };
  ASSIGN_OR_RETURN(const std::vector<StateTensor> state, session_.State());
  for (const StateTensor& tensor : state) {
    if (!trained.contains(tensor.name)) continue;
    ASSIGN_OR_RETURN(const HostTensor weight, ReadRegion(tensor.region));
    write("weights", tensor.name, weight);
  }
  return session_.VisitGradients(
      batch_, [&](const std::string& name, const HostTensor& gradient) { write("gradients", name, gradient); });
}

}  // namespace onnxtrain
