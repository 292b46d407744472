#include "optim/record/telemetry/summary.h"

#include <algorithm>
#include <functional>

#include <nlohmann/json.hpp>
#include "absl/strings/str_format.h"
#include "frontend/base/strings.h"
#include "frontend/data/sources/json.h"

namespace onnxtrain {
namespace {

struct Evidence {
  const TrainResult& result;
  const RunConditions& conditions;

  double Share(double seconds) const { return result.seconds > 0 ? seconds / result.seconds : 0; }
  std::string Percent(double seconds) const { return absl::StrFormat("%.0f %%", 100 * Share(seconds)); }
};

struct Rule {
  const char* limit;
  std::function<bool(const Evidence&)> applies;
  std::function<std::string(const Evidence&)> text;
};

// Ordered by the gain that a change promises; the first rule that applies is the diagnosis.
const Rule kRules[] = {
    {"duration", [](const Evidence& e) { return e.result.seconds < 1; },
     [](const Evidence&) { return std::string("the run took less than a second, which is too short to judge"); }},
    {"compilation", [](const Evidence& e) { return e.Share(e.result.compile_seconds) > 0.5; },
     [](const Evidence& e) {
       return "compiling the programs took " + e.Percent(e.result.compile_seconds) +
              " of the time: the run was short (`epochs`, `max_steps`)";
     }},
    {"evaluation", [](const Evidence& e) { return e.Share(e.result.eval_seconds) > 0.4; },
     [](const Evidence& e) {
       return "evaluations took " + e.Percent(e.result.eval_seconds) +
              " of the time: evaluate less often (`eval_every`)";
     }},
    {"checkpoints", [](const Evidence& e) { return e.Share(e.result.checkpoint_seconds) > 0.1; },
     [](const Evidence& e) {
       return "checkpoints took " + e.Percent(e.result.checkpoint_seconds) +
              " of the time: save less often (`save_every`)";
     }},
    {"overhead",
     [](const Evidence& e) { return e.result.step_median_seconds > 0 && e.result.step_median_seconds < 5e-4; },
     [](const Evidence& e) {
       return absl::StrFormat(
           "updates take %.0f µs, most of it not for arithmetic: larger batches give more samples/s "
           "(`batch_size`)",
           1e6 * e.result.step_median_seconds);
     }},
    {"machine", [](const Evidence& e) { return e.conditions.queued_share > 0.2; },
     [](const Evidence& e) {
       return absl::StrFormat(
           "training was ready but had no CPU for %.0f %% of the time: other processes, or a limit on CPUs, took it "
           "(fewer `threads` wait less)",
           100 * e.conditions.queued_share);
     }},
    {"data", [](const Evidence& e) { return e.Share(e.result.data_seconds) > 0.1; },
     [](const Evidence& e) {
       return "the step waited for data " + e.Percent(e.result.data_seconds) +
              " of the time: use more loader threads (`num_workers`) or a file that is read faster";
     }},
    {"memory", [](const Evidence& e) { return e.conditions.recompute_share > 0.05; },
     [](const Evidence& e) {
       return absl::StrFormat(
           "recomputing activations takes about %.0f %% of the arithmetic: a larger `memory_budget` "
           "or a smaller `micro_batch_size` saves it",
           100 * e.conditions.recompute_share);
     }},
    {"threads",
     [](const Evidence& e) { return e.conditions.threads > 1 && e.conditions.busy_cpus < 0.6 * e.conditions.threads; },
     [](const Evidence& e) {
       return absl::StrFormat("only %.1f of %d threads were busy: larger batches (`batch_size`) use them better",
                              e.conditions.busy_cpus, e.conditions.threads);
     }},
    {"compute", [](const Evidence&) { return true; },
     [](const Evidence& e) {
       return "arithmetic took " + e.Percent(e.result.compute_seconds) + " of the time" +
              (e.conditions.full_precision ? ": bf16 may be faster (`mixed_precision` auto)" : "");
     }},
};

}  // namespace

Diagnosis Diagnose(const TrainResult& result, const RunConditions& conditions) {
  if (result.steps == 0 || result.seconds <= 0) return {};
  const Evidence evidence{result, conditions};
  const Rule* rule = std::ranges::find_if(kRules, [&](const Rule& r) { return r.applies(evidence); });
  return {rule->limit, rule->text(evidence)};
}

namespace {

using Json = nlohmann::ordered_json;

Json EvalJson(const EvalMetrics& m) {
  if (m.samples == 0) return nullptr;
  Json json = {{"loss", m.loss}};
  if (m.accuracy >= 0) json["accuracy"] = m.accuracy;
  for (const auto& [name, value] : m.metrics) json[name] = value;
  json["samples"] = m.samples;
  return json;
}

Json ResultJson(const RunSummary& s) {
  const TrainResult& r = s.result;
  return {{"version", s.version},
          {"stop_reason", r.stop_reason},
          {"resumable", s.resumable},
          {"resumed_from", s.resumed_from},
          {"steps", r.steps},
          {"epochs", r.epochs},
          {"samples", r.samples},
          {"seconds", r.seconds},
          {"samples_per_second", Throughput(r)},
          {"final_loss", r.final_loss},
          {"eval_before", EvalJson(r.eval_before)},
          {"eval", EvalJson(r.eval)}};
}

Json Measured(double value) { return value > 0 ? Json(value) : Json(); }

// Returns the seconds of one phase of computing.
Json Part(const TrainResult& r, double PhaseShares::*share) {
  const bool known = r.phases.forward > 0 || r.phases.backward > 0;
  return known ? Json(r.phases.*share * r.compute_seconds) : Json();
}

Json TimeSplit(const TrainResult& r) {
  return {{"compile", r.compile_seconds},
          {"data", r.data_seconds},
          {"compute", r.compute_seconds},
          {"copy", Part(r, &PhaseShares::copy)},  // this and the next three are parts of compute
          {"forward", Part(r, &PhaseShares::forward)},
          {"backward", Part(r, &PhaseShares::backward)},
          {"optimizer", Part(r, &PhaseShares::update)},
          {"checkpoint", r.checkpoint_seconds},
          {"eval", r.eval_seconds}};
}

Json MemoryJson(const SessionMemory& m) {
  return {{"parameters", m.parameters}, {"gradients", m.gradients},     {"sums", m.sums},
          {"moments", m.moments},       {"statistics", m.statistics},   {"packed", m.packed},
          {"feeds", m.feeds},           {"activations", m.activations}, {"host", m.host}};
}

// Returns null for a single rank.
Json CommunicationJson(const CommunicationTime& t) {
  if (t.updates == 0) return nullptr;
  return {{"updates", t.updates},         {"seconds", t.seconds},
          {"exposed_seconds", t.exposed}, {"hidden", t.seconds > 0 ? 1 - t.exposed / t.seconds : 0},
          {"gradient_bytes", t.bytes},    {"sent_bytes", t.sent_bytes}};
}

}  // namespace

double Throughput(const TrainResult& r) {
  const double seconds = r.data_seconds + r.compute_seconds;
  return seconds > 0 ? static_cast<double>(r.samples) / seconds : 0;
}

std::string ToJson(const RunSummary& s) {
  Json json = ResultJson(s);
  if (s.tokens_per_sample > 0)
    json["tokens_per_second"] = Throughput(s.result) * static_cast<double>(s.tokens_per_sample);
  json["exported"] = nullptr;
  if (s.exported)
    json["exported"] = {{"step", s.exported_step}, {"metric", s.exported_metric}, {"file", s.exported_file}};
  json["loss"] = s.loss;
  json["optimizer"] = s.optimizer;
  json["lr"] = s.learning_rate;
  json["backend"] = s.backend;
  json["device"] = s.device;
  json["cpu"] = s.cpu;
  json["precision"] = s.precision;
  json["global_batch"] = s.global_batch;
  json["micro_batch"] = s.micro_batch;
  json["accumulation"] = s.accumulation;
  json["world"] = s.world;
  json["planned_peak_bytes"] = s.planned_peak_bytes;
  json["planned_bytes"] = MemoryJson(s.memory);
  json["mapped_bytes"] = s.memory.mapped;
  json["offloaded_bytes"] = s.memory.offloaded;
  json["measured_peak_bytes"] = s.measured_peak_bytes;
  json["time_split"] = TimeSplit(s.result);
  json["communication"] = CommunicationJson(s.result.communication);
  json["step_seconds"] = {{"median", Measured(s.result.step_median_seconds)},
                          {"p95", Measured(s.result.step_p95_seconds)}};
  json["checkpoint_pause"] = Measured(s.result.checkpoint_pause_seconds);
  json["busy_cpus"] = Measured(s.busy_cpus);
  json["queued_share"] = s.queued_share;
  json["diagnosis"] =
      s.diagnosis.limit.empty() ? Json() : Json{{"limit", s.diagnosis.limit}, {"text", s.diagnosis.text}};
  json["skipped_steps"] = s.result.skipped_steps;
  json["oom_retries"] = s.result.oom_retries;
  json["trainable_parameters"] = s.trainable_parameters;
  json["parameters"] = s.all_parameters;
  for (const AdapterSummary& adapter : s.adapters)
    json["adapters"].push_back({{"module", adapter.module},
                                {"rank", adapter.rank},
                                {"inputs", adapter.inputs},
                                {"outputs", adapter.outputs},
                                {"singular_values", adapter.singular_values}});
  if (s.base.weights > 0)
    json["quantized_base"] = {{"format", s.config.quantize_base},
                              {"weights", s.base.weights},
                              {"bytes", s.base.bytes},
                              {"file_bytes", s.base.file_bytes},
                              {"largest_error", s.base.worst_error},
                              {"largest_error_weight", s.base.worst}};
  if (const RequantizedSummary& sums = s.requantized; sums.weights > 0)
    json["requantized"] = {{"weights", sums.weights},
                           {"largest_error", sums.worst_error},
                           {"largest_error_weight", sums.worst},
                           {"eval_loss_before", sums.loss_before ? Json(*sums.loss_before) : Json()},
                           {"eval_loss", sums.loss ? Json(*sums.loss) : Json()}};
  json["data"] = s.data;
  json["data_samples"] = s.data_samples;
  json["model"] = s.model;
  json["model_sha256"] = s.model_sha256;
  json["seed"] = s.seed;
  for (const AutoChoice& choice : s.choices)
    json["auto"].push_back({{"field", choice.field}, {"value", choice.value}, {"why", choice.why}});
  json["config"] = Json::parse(ToJson(s.config));
  json["warnings"] = s.warnings;
  // Paths may be any bytes: invalid UTF-8 is replaced.
  return WriteJson(json, 2) + "\n";
}

std::optional<double> FindSummaryMetric(const std::string& summary_json, const std::string& name) {
  const Json json = ParseJson<Json>(summary_json);
  // Metric names may contain dots.
  if (json.is_object() && !json.contains(name) && json.contains("eval") && json["eval"].is_object() &&
      json["eval"].contains(name)) {
    return json["eval"][name].is_number() ? std::optional(json["eval"][name].get<double>()) : std::nullopt;
  }
  const std::string path = name == "loss" || name == "accuracy" ? StrCat("eval.", name) : name;
  const Json* at = &json;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const auto it = at->is_object() ? at->find(path.substr(begin, end - begin)) : at->end();
    if (!at->is_object() || it == at->end()) return std::nullopt;
    at = &*it;
    begin = end + 1;
  }
  return at->is_number() ? std::optional(at->get<double>()) : std::nullopt;
}

}  // namespace onnxtrain
