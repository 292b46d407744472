#include "optim/record/telemetry/event_file.h"

#include <fcntl.h>
#include <isa-l/crc.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "frontend/base/status.h"
#include "optim/record/telemetry/wire.h"

namespace onnxtrain {
namespace {

uint32_t MaskedCrc(std::string bytes) {
  auto* data = reinterpret_cast<unsigned char*>(bytes.data());
  const uint32_t crc = ~crc32_iscsi(data, static_cast<int>(bytes.size()), ~uint32_t{0});
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string Record(const std::string& data) {
  const std::string length = wire::Raw(static_cast<uint64_t>(data.size()));
  return length + wire::Raw(MaskedCrc(length)) + data + wire::Raw(MaskedCrc(data));
}

std::string EventPrefix(double wall_time, int64_t step) { return wire::Double(1, wall_time) + wire::Integer(2, step); }

std::string SummaryValue(const std::string& tag, double value) {
  return wire::Sub(1, wire::Sub(1, tag) + wire::Float(2, static_cast<float>(value)));
}

double WallTime() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string FileName() {
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  return StrCat("events.out.tfevents.", static_cast<int64_t>(WallTime()), ".", host, ".", getpid());
}

void AddGpus(const std::vector<GpuReading>& gpus, Scalars* scalars) {
  for (size_t i = 0; i < gpus.size(); ++i) {
    const std::string name = StrCat("gpu", i, "/");
    scalars->insert(scalars->end(), {{name + "utilization(%)", 100 * gpus[i].utilization},
                                     {name + "memory_mib", static_cast<double>(gpus[i].memory_bytes) / (1 << 20)},
                                     {name + "power_w", gpus[i].watts},
                                     {name + "temperature_c", gpus[i].celsius}});
  }
}

Scalars StepScalars(const TrainEvent& e, bool has_accuracy) {
  const StepReport& r = e.report;
  Scalars scalars = {{"train/grad_norm", r.grad_norm},
                     {"train/learning_rate", r.learning_rate},
                     {"train/skipped_steps", static_cast<double>(r.skipped)},
                     {"train/outliers", static_cast<double>(e.outliers.size())},
                     {"train/epoch", e.epoch},
                     {"throughput/samples_per_sec", e.samples_per_second},
                     {"time/data_loading(%)", 100 * e.data_wait},
                     {"memory/resident_mib", static_cast<double>(e.resources.resident_bytes) / (1 << 20)},
                     {"utilization/busy_cpus", e.resources.busy_cpus},
                     {"utilization/machine_busy_cpus", e.resources.machine_busy_cpus},
                     {"disk/read_mib_per_sec", e.resources.disk_read_rate / (1 << 20)},
                     {"disk/written_mib_per_sec", e.resources.disk_write_rate / (1 << 20)}};
  AddGpus(e.resources.gpus, &scalars);
  if (r.weight > 0) scalars.emplace_back("train/loss", r.loss);  // else every update was skipped
  if (has_accuracy && r.targets > 0) scalars.emplace_back("train/accuracy", r.correct / r.targets);
  if (r.loss_scale > 0) scalars.emplace_back("train/loss_scale", r.loss_scale);
  return scalars;
}

Scalars EvalScalars(const EvalMetrics& m) {
  Scalars scalars = {{"eval/loss", m.loss}};
  if (m.accuracy >= 0) scalars.emplace_back("eval/accuracy", m.accuracy);
  for (const auto& [name, value] : m.metrics) scalars.emplace_back("eval/" + name, value);
  return scalars;
}

}  // namespace

Scalars ScalarsOf(const TrainEvent& event, bool has_accuracy) {
  return event.kind == TrainEvent::Kind::kStep ? StepScalars(event, has_accuracy) : EvalScalars(event.eval);
}

std::string EventRecord(double wall_time, int64_t step, const Scalars& scalars) {
  std::string values;
  for (const auto& [tag, value] : scalars) {
    if (std::isfinite(value)) values += SummaryValue(tag, value);
  }
  return Record(EventPrefix(wall_time, step) + wire::Sub(5, values));
}

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Create(const std::string& folder, int64_t after_step) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string path = StrCat(folder, "/", FileName());
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return absl::UnavailableError(StrCat(path, ": ", std::strerror(errno)));
  std::unique_ptr<EventFile> file(new EventFile(path, fd));
  file->Append(Record(EventPrefix(WallTime(), 0) + wire::Sub(3, "brain.Event:2")));
  // A session log with status START.
  if (after_step > 0) file->Append(Record(EventPrefix(WallTime(), after_step + 1) + wire::Sub(7, wire::Integer(1, 1))));
  RETURN_IF_ERROR(file->status());
  return file;
}

EventFile::~EventFile() { close(fd_); }

void EventFile::Append(std::string_view bytes) {
  while (status_.ok() && !bytes.empty()) {
    const ssize_t n = write(fd_, bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(n);
    } else if (errno != EINTR) {
      status_ = absl::UnavailableError(StrCat(path_, ": ", std::strerror(errno)));
    }
  }
}

void EventFile::Write(int64_t step, const Scalars& scalars) { Append(EventRecord(WallTime(), step, scalars)); }

void EventFile::Write(int64_t step, const std::string& tag, const Histogram& histogram) {
  if (histogram.count() == 0) return;
  const std::string value = wire::Sub(1, wire::Sub(1, tag) + wire::Sub(5, histogram.Proto()));
  Append(Record(EventPrefix(WallTime(), step) + wire::Sub(5, value)));
}

void EventFile::WriteGraph(const std::string& graph_def) {
  Append(Record(EventPrefix(WallTime(), 0) + wire::Sub(4, graph_def)));
}

}  // namespace onnxtrain
