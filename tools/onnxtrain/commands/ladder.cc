#include "tools/onnxtrain/commands/ladder.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/json.h"
#include "optim/plan/memory_ladder.h"
#include "optim/plan/model_setup.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/flags/flags.h"
#include "tools/onnxtrain/report/start_page.h"

namespace onnxtrain::cli {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const SessionMemory& memory, double seconds) {
  Json json = {{"memory", Json::object()}, {"peak_bytes", memory.total()}, {"seconds", seconds}};
  for (const MemoryColumn& column : kMemoryColumns) json["memory"][column.key] = memory.*column.bytes;
  return json;
}

Json Fields(const MemoryRung& rung) {
  Json fields = Json::object();
  for (const auto& [name, value] : rung.fields) fields[name] = value;
  return fields;
}

Json ToJson(const RungPlan& plan) {
  return {{"fields", Fields(plan.rung)},
          {"changes", plan.rung.changes},
          {"micro_batch", plan.batch.micro},
          {"kept", ToJson(plan.kept, plan.kept_seconds)},
          {"least", ToJson(plan.least, plan.least_seconds)},
          {"offloaded_bytes", plan.least.offloaded},
          {"least_memory_budget", plan.least_budget}};
}

// The plan of adapters beside the frozen model.
struct PlannedAdapters {
  RungPlan plan;
  std::string refused;              // why the model has no such adapters; "": it has
  int64_t trained = 0, frozen = 0;  // parameters
};

Json ToJson(const TrainConfig& config, const TrainingRun& run, const std::vector<RungPlan>& plans,
            const std::vector<PlannedAdapters>& adapters) {
  Json json = {{"model", config.model}, {"backend", run.backend->name()}, {"batch", run.batch.global}};
  for (const RungPlan& plan : plans) {
    json["rungs"].push_back(ToJson(plan));
    json["rungs"].back()["saves"] = plan.saves;
  }
  json["adapters"] = Json::array();
  for (const PlannedAdapters& form : adapters) {
    Json& entry = json["adapters"].emplace_back();
    if (!form.refused.empty()) {
      entry = {{"fields", Fields(form.plan.rung)}, {"refused", form.refused}};
      continue;
    }
    entry = ToJson(form.plan);
    entry.update({{"trained", form.trained}, {"frozen", form.frozen}, {"mapped_bytes", form.plan.kept.mapped}});
  }
  return json;
}

std::string Row(std::string_view label, const SessionMemory& memory, double time) {
  std::string text = absl::StrFormat("  %-10s", label);
  for (const MemoryColumn& column : kMemoryColumns) absl::StrAppendFormat(&text, " %11s", Bytes(memory.*column.bytes));
  return text + absl::StrFormat(" %11s %6.2fx\n", Bytes(memory.total()), time);
}

std::string Rows(const RungPlan& plan, double unit) {
  if (plan.rung.offloads) return Row("offloaded", plan.least, plan.least_seconds / unit);
  return Row("kept", plan.kept, plan.kept_seconds / unit) + Row("recomputed", plan.least, plan.least_seconds / unit);
}

std::string AdapterRows(const std::vector<PlannedAdapters>& adapters, double unit) {
  std::string text;
  if (!adapters.empty()) text = " adapters, no rungs since they train other weights (never by `memory_budget`):\n";
  for (const PlannedAdapters& form : adapters) {
    const RungPlan& plan = form.plan;
    if (!form.refused.empty()) {
      StrAppend(&text, "  - ", plan.rung.Name(), ": not here: ", form.refused, "\n");
      continue;
    }
    StrAppend(&text, "  - ", plan.rung.Name(), ": trains ", FormatWithCommas(form.trained), " values beside ",
              FormatWithCommas(form.frozen), " that are frozen; ", plan.rung.changes, "; at least `memory_budget` ",
              plan.least_budget >> 20, "MiB",
              plan.kept.mapped > 0 ? StrCat(", besides ", Bytes(plan.kept.mapped), " in the model's file") : "", "\n",
              Rows(plan, unit));
  }
  return text;
}

std::string Page(const TrainingRun& run, const std::vector<RungPlan>& plans,
                 const std::vector<PlannedAdapters>& adapters) {
  std::string text = PageRow("model", DescribeModel(*run.data.models->model())) +
                     PageRow("backend", DescribeBackend(*run.backend)) +
                     PageRow("batch", StrCat(run.batch.global, " in micro-batches of ", run.batch.micro)) +
                     PageRow("ladder",
                             "each rung without recomputation, and with as much as possible; a "
                             "`memory_budget` takes the first one that fits");
  absl::StrAppendFormat(&text, "  %-10s", "");
  for (const MemoryColumn& column : kMemoryColumns) absl::StrAppendFormat(&text, " %11s", column.key);
  absl::StrAppendFormat(&text, " %11s %7s\n", "peak", "time");
  const double unit = plans.front().kept_seconds > 0 ? plans.front().kept_seconds : 1;
  int number = 0;
  std::vector<std::string> others;
  for (const RungPlan& plan : plans) {
    const MemoryRung& rung = plan.rung;
    if (!plan.saves) others.push_back(rung.Name());
    if (!plan.saves) continue;
    StrAppend(&text, " ", ++number, ". ", rung.Name(), ": ",
              rung.changes.empty() ? "the same numbers" : rung.changes + " (`allow_lossy_memory`)",
              "; at least `memory_budget` ", plan.least_budget >> 20, "MiB\n");
    text += Rows(plan, unit);
  }
  if (!others.empty())
    StrAppend(&text, " no rungs, since those before them need no more memory: ", absl::StrJoin(others, "; "), "\n");
  return FieldsToFlags(text + AdapterRows(adapters, unit));
}

// Plans a form of adapters, as the configuration with its fields.
absl::StatusOr<PlannedAdapters> PlanAdapterForm(TrainConfig config, MemoryRung form, const PrepareRun& prepare) {
  for (const auto& [name, value] : form.fields) RETURN_IF_ERROR(SetField(&config, *FindField(name), value));
  ASSIGN_OR_RETURN(const TrainingRun run, prepare(config));
  const SessionOptions& options = run.session_options;
  form.optimizer = options.optimizer;
  PlannedAdapters adapters;
  ASSIGN_OR_RETURN(adapters.plan, PlanRung(form, {run.data.models, *run.backend}, options, run.batch));
  ASSIGN_OR_RETURN(const PreparedModel prepared,
                   run.data.models->Prepare(MakePrepareOptions(options), run.batch.micro, true, false));
  for (const WeightDecision& w : prepared.weights)
    (w.trained ? adapters.trained : adapters.frozen) += w.type.elements();
  return adapters;
}

// Plans the forms of adapters that the configuration leaves open. The model may refuse one: products that are quantized
// in the file cannot be quantized again.
absl::StatusOr<std::vector<PlannedAdapters>> PlanAdapterForms(const TrainConfig& config, const TrainingRun& run,
                                                              const PrepareRun& prepare) {
  std::vector<PlannedAdapters> plans;
  for (const MemoryRung& form : ListAdapterForms(config, *run.data.models->model())) {
    auto plan = PlanAdapterForm(config, form, prepare);
    if (absl::IsInvalidArgument(plan.status())) {
      plans.push_back({.plan = {.rung = form}, .refused = std::string(plan.status().message())});
      continue;
    }
    RETURN_IF_ERROR(plan.status());
    plans.push_back(*std::move(plan));
  }
  return plans;
}

}  // namespace

absl::StatusOr<std::string> DescribeLadder(const TrainConfig& config, const TrainingRun& run,
                                           const PrepareRun& prepare) {
  const BudgetedModel model{run.data.models, *run.backend};
  ASSIGN_OR_RETURN(const std::vector<RungPlan> plans, PlanLadder(config, model, run.session_options, run.batch));
  ASSIGN_OR_RETURN(const std::vector<PlannedAdapters> adapters, PlanAdapterForms(config, run, prepare));
  return config.json ? WriteJson(ToJson(config, run, plans, adapters), 2) + "\n" : Page(run, plans, adapters);
}

namespace {

// Runs this program and returns what it wrote to standard output.
absl::StatusOr<std::string> RunSelf(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t child = 0;
  const int failed = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  char block[4096];
  for (ssize_t count = 1; failed == 0 && count > 0;) {
    count = read(ends[0], block, sizeof block);
    if (count > 0) text.append(block, static_cast<size_t>(count));
    if (count < 0 && errno == EINTR) count = 1;
  }
  close(ends[0]);
  int status = 1;
  if (failed == 0) waitpid(child, &status, 0);
  if (status != 0) return Invalid("`ladder`: a measurement failed");
  return text;
}

// The words of a `bench` of one rung.
absl::StatusOr<std::vector<std::string>> BenchWords(TrainConfig config, const RungPlan& plan, bool recompute) {
  config.ladder = false;
  config.steps_only = true;
  config.specified.insert("steps_only");
  std::vector<std::pair<std::string, std::string>> fields = plan.rung.fields;
  fields.emplace_back("gradient_checkpointing", recompute ? "budget" : "none");
  if (recompute) fields.emplace_back("memory_budget", StrCat(plan.least_budget));
  std::vector<std::string> words = {"onnxtrain", "bench", "--json"};
  for (const auto& [name, value] : fields) RETURN_IF_ERROR(SetField(&config, *FindField(name), value));
  for (const absl::string_view line : absl::StrSplit(ToFlags(config, kTaskBench), '\n', absl::SkipEmpty()))
    words.push_back(std::string(line));
  return words;
}

// Prints the results of rungs as they are measured.
class MeasuredLadder {
 public:
  explicit MeasuredLadder(const TrainConfig& config) : config_(config), terminal_(isatty(STDERR_FILENO) == 1) {}

  absl::Status BeginRung(const std::string& name) {
    HideProgress();
    rung_ = {{"rung", name}};
    const bool first = std::exchange(first_, false);
    if (config_.json) return Print(first ? "[\n" : ",");
    if (first) RETURN_IF_ERROR(Print(absl::StrFormat("  %-10s %11s %11s %12s\n", "", "planned", "measured", "update")));
    return Print(FieldsToFlags(StrCat("  ", name, "\n")));
  }

  absl::Status Add(const char* label, Json result) {
    HideProgress();
    const auto bytes = [&](const char* key) { return Bytes(result.at(key).get<int64_t>()); };
    const std::string row = absl::StrFormat("  %-10s %11s %11s %10.3f s\n", label, bytes("planned_peak_bytes"),
                                            bytes("process_peak_bytes"), result.at("median_seconds").get<double>());
    rung_[label] = std::move(result);
    return config_.json ? absl::OkStatus() : Print(row);
  }

  // Ends a rung, whose measurements may have failed: the document remains valid. Ends the line, for readers of lines.
  absl::Status EndRung() { return config_.json ? Print(WriteJson(rung_, 2) + "\n") : absl::OkStatus(); }

  absl::Status End() {
    HideProgress();
    return config_.json && !first_ ? Print("]\n") : absl::OkStatus();
  }

  // Says what is being done: in a line of the terminal that is overwritten. Elsewhere the rows say it, or lines beside
  // JSON.
  void ShowProgress(const std::string& text) {
    if (config_.quiet) return;
    if (terminal_) std::fputs(StrCat("\r\033[K", text).c_str(), stderr);
    if (!terminal_ && config_.json) LogInfo(config_, text);
  }

 private:
  void HideProgress() {
    if (terminal_ && !config_.quiet) std::fputs("\r\033[K", stderr);
  }

  const TrainConfig& config_;
  bool terminal_;
  bool first_ = true;
  Json rung_;
};

// Plans the rung of this index. Frees what the plan holds, since measurements follow. Sets the number of rungs.
absl::StatusOr<RungPlan> PlanRungAt(const TrainConfig& config, const std::shared_ptr<const OnnxModel>& model,
                                    size_t index, size_t* count) {
  ASSIGN_OR_RETURN(const TrainingRun run,
                   PrepareTraining(config, model, LoadBackend, {.samples = {.one_batch = true}, .plans = true}));
  const std::vector<MemoryRung> rungs = ListRungs(config, *run.backend, run.session_options, run.batch);
  *count = rungs.size();
  return PlanRung(rungs[index], {run.data.models, *run.backend}, run.session_options, run.batch);
}

absl::Status MeasureRung(const TrainConfig& config, const RungPlan& plan, const std::string& place,
                         MeasuredLadder* ladder) {
  for (const bool recompute : {false, true}) {
    if (plan.rung.offloads && !recompute) continue;  // that of a rung before it
    const char* label = plan.rung.offloads ? "offloaded" : recompute ? "recomputed" : "kept";
    ladder->ShowProgress(StrCat(place, ", ", label, ": measuring"));
    ASSIGN_OR_RETURN(std::vector<std::string> words, BenchWords(config, plan, recompute));
    ASSIGN_OR_RETURN(const std::string result, RunSelf(std::move(words)));
    RETURN_IF_ERROR(ladder->Add(label, Json::parse(result)));
  }
  return absl::OkStatus();
}

absl::Status MeasureRungs(const TrainConfig& config, MeasuredLadder* ladder) {
  ASSIGN_OR_RETURN(const auto model, LoadRunnableModel(config));
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t i = 0, count = 1; i < count; ++i) {
    ladder->ShowProgress(StrCat("rung ", i + 1, ": planning"));
    ASSIGN_OR_RETURN(const RungPlan plan, PlanRungAt(config, model, i, &count));
    if (plan.least_budget >= least) continue;  // saves no memory over the rungs before it
    least = plan.least_budget;
    RETURN_IF_ERROR(ladder->BeginRung(plan.rung.Name()));
    const absl::Status measured = MeasureRung(config, plan, StrCat("rung ", i + 1, " of ", count), ladder);
    RETURN_IF_ERROR(ladder->EndRung());
    RETURN_IF_ERROR(measured);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> MeasureLadder(const TrainConfig& config) {
  MeasuredLadder ladder(config);
  const absl::Status measured = MeasureRungs(config, &ladder);
  RETURN_IF_ERROR(ladder.End());
  RETURN_IF_ERROR(measured);
  return kDone;
}

}  // namespace onnxtrain::cli
