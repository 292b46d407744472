// Writes histograms of weights and gradients to TensorBoard while a session trains.
#pragma once

#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "optim/loop/trainer.h"
#include "optim/record/telemetry/event_file.h"
#include "optim/step/global_batch.h"
#include "optim/step/session.h"

namespace onnxtrain {

class HistogramRecorder {
 public:
  // At the first update of the run and after every `every_updates`, or where that is 0 every `every_seconds`. All of
  // these must outlive it.
  HistogramRecorder(Session& session, EventFile& events, const TrainData& data, int64_t every_updates,
                    double every_seconds);

  // Called before each update (TrainOptions::on_batch). Computes the gradients of the batch once more, which changes
  // nothing of the training. Where memory does not suffice for that, no more histograms are written: see status().
  absl::Status OnBatch(int64_t update, const Batch& batch);
  const absl::Status& status() const { return status_; }

 private:
  bool IsDue(int64_t update) const;
  absl::Status Write(int64_t update);

  Session& session_;
  EventFile& events_;
  const int64_t every_updates_;
  const double every_seconds_;
  std::chrono::steady_clock::time_point written_at_ = std::chrono::steady_clock::now();
  GlobalBatch batch_;
  absl::Status status_;
};

}  // namespace onnxtrain
