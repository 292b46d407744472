#include "optim/record/telemetry/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include <isa-l/crc.h>
#include "frontend/base/status.h"
#include "frontend/base/strings.h"

namespace onnxtrain {
namespace {

constexpr int kShift = 20;  // keeps three of float32's 23 mantissa bits

// Returns the least magnitude of a bucket.
double LowerEdge(int bucket) { return std::bit_cast<float>(static_cast<uint32_t>(bucket) << kShift); }

}  // namespace

void Histogram::AddOne(float value) {
  if (!std::isfinite(value)) return;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  ++(std::signbit(value) ? negative_ : positive_)[(bits & 0x7fffffff) >> kShift];
  ++count_;
  const double v = value;
  min_ = std::min(min_, v);
  max_ = std::max(max_, v);
  sum_ += v;
  sum_squares_ += v * v;
}

void Histogram::Add(const HostTensor& tensor) {
  for (int64_t i = 0; i < tensor.size(); ++i) AddOne(static_cast<float>(tensor.At(i)));
}

void Histogram::Append(double from, double limit, int64_t count, double* last, std::string* limits,
                       std::string* counts) {
  if (count == 0) return;
  if (from > *last) *limits += wire::Raw(from), *counts += wire::Raw(0.0);
  *limits += wire::Raw(limit);
  *counts += wire::Raw(static_cast<double>(count));
  *last = limit;
}

std::string Histogram::Proto() const {
  std::string limits, counts;
  double last = -std::numeric_limits<double>::infinity();
  const auto edge = [](int bucket) {
    return bucket < kBuckets ? LowerEdge(bucket) : double{std::numeric_limits<float>::max()};
  };
  for (int b = kBuckets; b-- > 0;) Append(-edge(b + 1), -edge(b), negative_[b], &last, &limits, &counts);
  for (int b = 0; b < kBuckets; ++b) Append(edge(b), edge(b + 1), positive_[b], &last, &limits, &counts);
  return wire::Double(1, min_) + wire::Double(2, max_) + wire::Double(3, static_cast<double>(count_)) +
         wire::Double(4, sum_) + wire::Double(5, sum_squares_) + wire::Sub(6, limits) + wire::Sub(7, counts);
}

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
  if (r.weight > 0) scalars.emplace_back("train/loss", r.loss);  // weight 0: every update was skipped
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

namespace {

// Returns a TensorShapeProto; free extents are -1.
std::string ShapeProto(const Shape& shape) {
  std::string proto;
  for (const int64_t extent : shape) proto += wire::Sub(2, wire::Integer(1, extent));
  return proto;
}

// Returns the attribute "_output_shapes" with one shape.
std::string ShapeAttribute(const Shape& shape) {
  return wire::Sub(5, wire::Sub(1, "_output_shapes") + wire::Sub(2, wire::Sub(1, wire::Sub(7, ShapeProto(shape)))));
}

class Writer {
 public:
  // Adds a node whose outputs are these values; `attributes`: encoded.
  void Add(const std::string& name, const std::string& op, const std::vector<std::string>& inputs,
           const std::vector<std::string>& outputs, const std::string& attributes = "") {
    const std::string unique = Unique(name);
    std::string node = wire::Sub(1, unique) + wire::Sub(2, op);
    for (const std::string& input : inputs) {
      const auto made = made_by_.find(input);
      if (made != made_by_.end()) node += wire::Sub(3, made->second);
    }
    graph_ += wire::Sub(1, node + attributes);
    for (size_t i = 0; i < outputs.size(); ++i) made_by_[outputs[i]] = i == 0 ? unique : StrCat(unique, ":", i);
  }

  std::string Finish() const {
    constexpr int64_t kProducer = 22;  // a version of GraphDef that viewers know
    return graph_ + wire::Sub(4, wire::Integer(1, kProducer));
  }

 private:
  std::string Unique(std::string name) {
    if (name.find('/') == std::string::npos) std::ranges::replace(name, '.', '/');
    std::ranges::replace(name, ':', '_');  // separates a node from the number of its output
    name.erase(0, name.find_first_not_of('/'));
    if (name.empty()) name = "node";
    std::string unique = name;
    for (int copy = 1; !names_.insert(unique).second; ++copy) unique = StrCat(name, "_", copy);
    return unique;
  }

  std::set<std::string> names_;
  std::map<std::string, std::string> made_by_;  // value → "node" or "node:output"
  std::string graph_;
};

}  // namespace

std::string GraphDef(const OnnxModel& model) {
  Writer writer;
  for (const OnnxModel::Input& input : model.inputs())
    writer.Add(StrCat("input/", input.name), "Placeholder", {}, {input.name}, ShapeAttribute(input.dims));
  const std::vector<OnnxModel::Node> nodes = model.nodes();
  std::set<std::string> read;
  for (const OnnxModel::Node& node : nodes) read.insert(node.inputs.begin(), node.inputs.end());
  for (const std::string& name : model.InitializerNames()) {
    const HostTensor* weight = read.contains(name) ? model.Initializer(name) : nullptr;
    if (weight != nullptr) writer.Add(name, "Parameter", {}, {name}, ShapeAttribute(weight->shape()));
  }
  for (const OnnxModel::Node& node : nodes) writer.Add(node.source, node.op, node.inputs, node.outputs);
  for (const std::string& output : model.outputs()) writer.Add(StrCat("output/", output), "Output", {output}, {});
  return writer.Finish();
}

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
