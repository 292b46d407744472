// What the subcommands share: from flags to a model, a backend, bound data and a session's options.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/onnx/import.h"
#include "optim/prepare.h"
#include "optim/session.h"
#include "optim/trainer.h"
#include "tools/onnxtrain/bind.h"
#include "tools/onnxtrain/preprocess.h"

namespace onnxtrain::cli {

// The exit codes of the contract.
enum ExitCode { kDone = 0, kBadInput = 1, kFailed = 2, kRequirement = 3, kStopped = 75 };

// For people, on stderr; not with --quiet.
void Say(const std::string& text);
// On stderr, always: "onnxtrain: warning: …".
void Warn(const std::string& text);
// Says that training failed, and why; returns kFailed.
int Failed(const absl::Status& status);
// Results, on stdout. A reader that went away is no error; a full disk is.
absl::Status Print(const std::string& text);

// --model, which must be given.
absl::StatusOr<std::shared_ptr<const OnnxModel>> LoadModel();
// The same of a model that is going to run: all of its operators, as far as --logits needs them, are known.
absl::StatusOr<std::shared_ptr<const OnnxModel>> LoadKnownModel();
// --dim NAME=N …; each must name a free dimension of an input of the model.
absl::StatusOr<std::map<std::string, int64_t>> DimFlags(const OnnxModel& model);
absl::StatusOr<LossSpec> LossFlags(const OnnxModel& model, const std::optional<Preprocess>& before);
TrainableSpec TrainableFlags();
// Everything of ImportOptions but shapes that come from data.
absl::StatusOr<ImportOptions> ImportFlags(const OnnxModel& model);

// The batch that the model was exported for where that is above 1 and the same for all inputs; else 1.
int64_t FixedBatch(const OnnxModel& model);
// --batch-size; where it is not given, the batch that the model was exported for if above 1, else the flag's default.
int64_t BatchFlag(const OnnxModel& model);

// Sets the environment and loads the backend: --backend, --device, --threads.
absl::StatusOr<std::unique_ptr<Backend>> LoadBackend(const std::string& name);
// "cpu on cpu: oneDNN 2.6.3, …"
std::string DescribeBackend(const Backend& backend);
int ComputeThreads();

// The default holds where no other clipping is asked for.
double MaxGradNorm();
absl::StatusOr<int> WorkerThreads();

// What a file of data becomes for this model, by --input, --label, --normalize, --header and what was written beside
// the model when it was trained.
struct OpenedData {
  BoundData bound;
  std::string normalize;  // what was used for images, "" where there are none
  int own_columns = 0;    // columns of the file; what comes behind them was made up
};
struct DataRequest {
  std::string path, flag;  // the flag is named in errors
  bool eval_split = false;
  bool want_label = true;
  std::vector<std::string> classes;  // fixed class names, from the training data
  std::string leave_out = {};        // a column that is neither input nor label
};
absl::StatusOr<OpenedData> OpenData(const OnnxModel& model, const std::optional<Preprocess>& before,
                                    const DataRequest& request, const LossSpec& loss);

// --header.
Header HeaderKind();

// Is it a folder with evaluation files of its own (MNIST's t10k-*)?
bool HasEvalFiles(const std::string& path);

// Session options for data that is bound: everything but optimizer and schedule.
absl::StatusOr<SessionOptions> MakeSessionOptions(const OnnxModel& model, const BoundData& data, const LossSpec& loss,
                                                  int64_t micro_batch);

// What a session would start from, for a look before it is made: forward graph, weights, loss. An error about the loss
// says which column the label is.
absl::StatusOr<PreparedModel> PrepareFor(const OnnxModel& model, const BoundData& data, const SessionOptions& options,
                                         bool training);

// Feeds and label for the trainer; checks every label against the loss.
absl::StatusOr<TrainData> MakeTrainData(const BoundData& data, const LossChoice& loss, int64_t ignore_index);

// The first `count` samples as one window.
absl::StatusOr<Window> ReadWindow(const TrainData& data, int64_t count);

// Which of label_smoothing, ignore_index the losses read, separated by blanks.
std::string LossTakes(const LossChoice& loss);
// --logits and label flags that the chosen loss makes meaningless.
absl::Status CheckLossFlags(const LossChoice& loss);

// One line: "cnn.onnx  pytorch 1.9, opset 9, 12 weights".
std::string DescribeModel(const OnnxModel& model);

}  // namespace onnxtrain::cli
