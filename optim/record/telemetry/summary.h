// Writes and reads summary.json: settings and results of a run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "optim/config/config.h"
#include "optim/loop/trainer.h"
#include "optim/plan/auto_choices.h"
#include "optim/plan/quantized_base.h"

namespace onnxtrain {

// Measurements that Diagnose reads besides the TrainResult.
struct RunConditions {
  int threads = 1;
  double busy_cpus = 0;        // mean over the loop
  double queued_share = 0;     // as in ResourceReading, over the loop
  bool full_precision = true;  // float32
  double recompute_share = 0;  // share of the arithmetic that recomputes activations
};

// Names what limited a run, and the setting that changes it.
struct Diagnosis {
  std::string limit;  // "duration", "data", "overhead", "evaluation", "checkpoints", "compilation", "machine",
                      // "memory", "threads", "compute"
  std::string text;   // one sentence; fields in backquotes
};

// Diagnoses by measured shares of the wall time. The limit is "" if nothing was trained.
Diagnosis Diagnose(const TrainResult& result, const RunConditions& conditions);

// The low-rank update of one module after the training.
struct AdapterSummary {
  std::string module;
  int64_t rank = 0, inputs = 0, outputs = 0;
  std::vector<double> singular_values;  // of the update, the largest first
};

// The sums of quantized weights and adapters in the written model (`merge` requantize).
struct RequantizedSummary {
  int64_t weights = 0;
  double worst_error = 0;  // ‖Ŵ − W‖ / ‖W‖ of the sum W
  std::string worst;       // the weight that has it
  // Evaluation losses of the adapters beside the stored weights, and of the written model; nullopt: not evaluated.
  std::optional<double> loss_before, loss;
};

struct RunSummary {
  std::string version;
  TrainResult result;
  bool resumable = false;       // the last step is in a checkpoint
  int64_t resumed_from = 0;     // step; 0: started from the beginning
  bool exported = false;        // model.onnx was written
  std::string exported_file;    // file name in the folder
  std::string exported_metric;  // the exported weights: "last", "ema", "best"
  int64_t exported_step = 0;
  std::string backend, device, cpu, precision = "float32";
  int64_t tokens_per_sample = 0;  // of a language model; 0: none
  int64_t global_batch = 0, micro_batch = 0, accumulation = 1, world = 1;
  int64_t planned_peak_bytes = 0;   // Session::planned_peak_bytes
  SessionMemory memory;             // planned_peak_bytes by purpose
  int64_t measured_peak_bytes = 0;  // peak resident memory, less what the process held when it began
  double busy_cpus = 0;             // mean over the loop; 0: not measured
  double queued_share = 0;          // as in ResourceReading, over the loop
  Diagnosis diagnosis;
  int64_t trainable_parameters = 0;
  int64_t all_parameters = 0;            // trained and frozen values
  std::vector<AdapterSummary> adapters;  // empty: none were trained
  BaseSummary base;                      // blocks of quantize_base; no weights: none
  RequantizedSummary requantized;        // no weights: none
  std::string loss, optimizer;
  double learning_rate = 0;  // the base rate of the schedule
  std::string data;          // path, or "synthetic"
  int64_t data_samples = 0;
  std::string model, model_sha256;  // path and hash of the trained model
  uint64_t seed = 0;
  std::vector<AutoChoice> choices;  // made by `auto`, if it was requested
  TrainConfig config;               // repeats the run (ResolveConfig)
  std::vector<std::string> warnings;
};

// Returns samples per second of data and compute time, without compilation and evaluation.
double Throughput(const TrainResult& result);

// Returns indented JSON with a final newline. Numbers that are not finite or were not measured are null.
std::string ToJson(const RunSummary& summary);

// Returns a number of the summary by path: "final_loss", "eval.accuracy". loss, accuracy and metric names without a
// path are those of the last evaluation. nullopt if there is none.
std::optional<double> FindSummaryMetric(const std::string& summary_json, const std::string& name);

}  // namespace onnxtrain
