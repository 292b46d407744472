// summary.json: what a run was and what came out of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "optim/trainer.h"

namespace onnxtrain {

struct RunSummary {
  std::string version;
  TrainResult result;
  bool resumable = false;
  bool exported = false;        // model.onnx was written
  std::string exported_file;    // its name in the folder
  std::string exported_metric;  // which weights they are: "last"
  std::string backend, device, cpu, precision = "float32";
  int64_t global_batch = 0, micro_batch = 0, accumulation = 1, world = 1;
  int64_t planned_peak_bytes = 0;   // the session's arenas, activations, feeds
  int64_t measured_peak_bytes = 0;  // of the whole process: libraries, model and data set included
  int64_t trainable_parameters = 0;
  std::string loss, optimizer;
  double learning_rate = 0;  // the highest of the schedule
  std::string data;          // path, or "synthetic"
  int64_t data_samples = 0;
  std::string model, model_sha256;  // of the model that was trained
  uint64_t seed = 0;
  std::vector<std::string> warnings;
};

// Samples per second of data, compute and nothing else: without compile and evaluation.
double Throughput(const TrainResult& result);

// The object as text, indented, with a final newline. Numbers that are not finite, and what was not measured, are null.
std::string ToJson(const RunSummary& summary);

// A number of the summary by name, "final_loss" or "eval.accuracy"; loss, accuracy and metrics alone are those of the last
// evaluation. nullopt where there is none.
std::optional<double> MetricOf(const std::string& summary_json, const std::string& name);

// The most memory that this process has had resident, in bytes; 0 where the system does not say.
int64_t PeakResidentBytes();

}  // namespace onnxtrain
