#include "optim/record/telemetry/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/json.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::ordered_json;

void AddGpus(const std::vector<GpuReading>& gpus, Json* line) {
  for (size_t i = 0; i < gpus.size(); ++i) {
    const std::string name = StrCat("gpu", i, "_");
    (*line)[name + "utilization"] = gpus[i].utilization;
    (*line)[name + "memory_bytes"] = gpus[i].memory_bytes;
    (*line)[name + "watts"] = gpus[i].watts;
    (*line)[name + "celsius"] = gpus[i].celsius;
  }
}

// Adds the outlier of kind `of` that is farthest above its median.
void AddOutlier(const std::vector<Outlier>& outliers, Outlier::Of of, const std::string& name, Json* line) {
  const Outlier* farthest = nullptr;
  for (const Outlier& o : outliers) {
    if (o.of == of && (farthest == nullptr || o.value - o.median > farthest->value - farthest->median)) farthest = &o;
  }
  if (farthest == nullptr) return;
  (*line)[name + "_outlier"] = farthest->value;
  (*line)[name + "_outlier_step"] = farthest->step;
}

// Returns the line of a step. NaN and infinities, which JSON lacks, become null.
Json StepLine(const TrainEvent& e, bool has_accuracy) {
  Json line = {{"event", "step"}, {"step", e.step}, {"epoch", e.epoch}, {"loss", nullptr}};
  if (e.report.weight > 0) line["loss"] = e.report.loss;  // otherwise every update was skipped
  if (has_accuracy) line["accuracy"] = e.report.targets > 0 ? Json(e.report.correct / e.report.targets) : Json();
  line["lr"] = e.report.learning_rate;
  line["grad_norm"] = e.report.grad_norm;
  line["skipped"] = e.report.skipped;
  if (e.report.loss_scale > 0) line["loss_scale"] = e.report.loss_scale;
  line["samples_per_second"] = e.samples_per_second;
  line["data_wait"] = e.data_wait;
  line["busy_cpus"] = e.resources.busy_cpus;
  line["resident_bytes"] = e.resources.resident_bytes;
  line["machine_busy_cpus"] = e.resources.machine_busy_cpus;
  line["disk_read_rate"] = e.resources.disk_read_rate;
  line["disk_write_rate"] = e.resources.disk_write_rate;
  AddGpus(e.resources.gpus, &line);
  if (!e.outliers.empty()) line["outliers"] = e.outliers.size();
  AddOutlier(e.outliers, Outlier::Of::kLoss, "loss", &line);
  AddOutlier(e.outliers, Outlier::Of::kGradNorm, "grad_norm", &line);
  line["seconds"] = e.seconds;
  return line;
}

Json EvalLine(const TrainEvent& e) {
  Json line = {{"event", "eval"}, {"step", e.step}, {"epoch", e.epoch}, {"eval_loss", e.eval.loss}};
  if (e.eval.accuracy >= 0) line["eval_accuracy"] = e.eval.accuracy;
  for (const auto& [name, value] : e.eval.metrics) line["eval_" + name] = value;
  line["eval_samples"] = e.eval.samples;
  line["seconds"] = e.seconds;
  return line;
}

// Returns true if the run wrote this line before it reached `position`.
bool IsUpTo(const LoopPosition& position, const Json& line) {
  if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) return false;
  const bool eval = line.value("event", "") == "eval";
  return line["step"].get<int64_t>() <= (eval ? position.evaluated_step : position.logged_step);
}

absl::Status WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::UnavailableError(std::strerror(errno));
    text.remove_prefix(n);
  }
  return absl::OkStatus();
}

}  // namespace

std::string ToJsonLine(const TrainEvent& event, bool has_accuracy) {
  return WriteJson(event.kind == TrainEvent::Kind::kStep ? StepLine(event, has_accuracy) : EvalLine(event));
}

absl::StatusOr<std::unique_ptr<MetricsFile>> MetricsFile::Open(const std::string& path, int flags, bool has_accuracy) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
  if (fd < 0) return absl::UnavailableError(StrCat(path, ": ", std::strerror(errno)));
  return std::unique_ptr<MetricsFile>(new MetricsFile(path, fd, has_accuracy));
}

absl::StatusOr<std::unique_ptr<MetricsFile>> MetricsFile::Create(const std::string& path, bool has_accuracy) {
  return Open(path, O_TRUNC, has_accuracy);
}

absl::StatusOr<std::unique_ptr<MetricsFile>> MetricsFile::Continue(const std::string& path, bool has_accuracy,
                                                                   const LoopPosition& position) {
  std::ifstream file(path);
  std::string kept;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    if (IsUpTo(position, ParseJson<Json>(line))) kept += line + "\n";
  }
  RETURN_IF_ERROR(WriteTextFile(path, kept));
  return Open(path, O_APPEND, has_accuracy);
}

MetricsFile::~MetricsFile() { close(fd_); }

void MetricsFile::Write(const TrainEvent& event) {
  if (!status_.ok()) return;
  status_ = Annotate(WriteAll(fd_, ToJsonLine(event, has_accuracy_) + "\n"), path_ + ": ");
}

}  // namespace onnxtrain
