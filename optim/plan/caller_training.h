// Trains on batches that a program hands over: no data is opened, and the program runs the loop.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/load/loader.h"
#include "optim/config/config.h"
#include "optim/plan/precision.h"
#include "optim/plan/step_plan.h"
#include "optim/plan/training_run.h"
#include "optim/step/global_batch.h"
#include "optim/step/loss.h"
#include "optim/step/session.h"

namespace onnxtrain {

// Batches that a program hands over as tensors by name: checked, converted where they must be, and fed to a session.

// The name of the default labels in such batches; labels of their own have the names of LossFeed::label.
inline constexpr char kFedLabel[] = "label";

// A tensor [batch, sample…] that a session reads.
struct FedTensor {
  std::string name;  // in the caller's batch
  std::string feed;  // in a GlobalBatch
  Type sample;
  std::optional<ValueRange> range;  // of integers and labels; nullopt: any value
  bool is_label = false;
  // Axes of the sample, one behind the other, whose extents may be smaller: the same ones for all tensors of a batch.
  size_t varying_axis = 0, varying_axes = 0;
};

// The tensors of a session with these inputs, whose ranges are set, and this loss. Specs of labels are left out.
std::vector<FedTensor> ListFedTensors(const std::vector<FeedSpec>& inputs, const LossChoice& loss,
                                      int64_t ignore_index);

struct NamedTensorView {
  std::string name;
  HostTensor tensor;
};

// Makes global batches of caller's tensors without copying those that have the element type and alignment that the
// session wants. Thread-compatible.
class FedBatches {
 public:
  explicit FedBatches(std::vector<FedTensor> tensors);
  // Lets the extents of `axes` axes of the sample of a tensor vary, from the given one on.
  void Vary(std::string_view name, size_t axis, size_t axes);

  const std::vector<FedTensor>& tensors() const { return tensors_; }
  // Every tensor must be there once, and no other, but labels are neither needed nor read where not `labels`. All have
  // the same batch of at least 1. Integers that index tables or classes are checked. The batch refers to the views
  // until the next call. Errors name the tensor.
  absl::StatusOr<const GlobalBatch*> Fill(std::span<const NamedTensorView> views, bool labels);
  // Ends the references to the views of the last call.
  void Clear();

 private:
  absl::Status Set(size_t place, const FedTensor& wanted, const HostTensor& given, GlobalBatch* batch);
  absl::Status CheckExtents(std::span<const NamedTensorView> views, size_t count) const;

  std::vector<FedTensor> tensors_;  // inputs first
  size_t inputs_ = 0;
  GlobalBatch with_labels_, inputs_only_;
};

// A session for a program that hands over its own batches: no data is opened, and the program runs the loop.
//
//   auto training = PrepareFedTraining(config, model, {}, MakeBackend);
//   for (...) {
//     auto batch = training->batches.Fill(views, true);
//     training->session->Step(**batch);
//   }

// What the program says of a sample, without the batch axis. Everything may be left out that follows from the model.
struct FedSample {
  std::map<std::string, Type> inputs;  // shapes of inputs with free dimensions
  std::map<std::string, Type> labels;  // by FedTensor::name; none: those that the loss of the model's output takes
  // Axes of samples whose extents differ between batches, by tensor: one, or two one behind the other. The shapes have
  // the greatest extents, which are the same for all.
  std::map<std::string, std::vector<size_t>> varying;
};

struct FedTraining {
  TrainConfig config;
  BatchPlan batch;
  OptimizerChoice optimizer;
  PrecisionChoice precision;
  std::vector<std::string> notes;  // what was decided, for people
  FedBatches batches{{}};
  std::shared_ptr<PreparedModels> models;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Session> session;  // declared after the backend, which must outlive it
};

// Makes the decisions of PrepareTraining that need no data. The learning rate may be changed at any time
// (Session::SetPlateau). config.max_steps is the length of schedules; the program may run more updates.
absl::StatusOr<FedTraining> PrepareFedTraining(const TrainConfig& config, std::shared_ptr<const OnnxModel> model,
                                               const FedSample& sample, const BackendFactory& make_backend);

}  // namespace onnxtrain
