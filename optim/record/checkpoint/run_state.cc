#include "optim/record/checkpoint/resume.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <span>

#include <nlohmann/json.hpp>
#include "frontend/base/status.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/sources/safetensors.h"
#include "optim/record/checkpoint/file_writer.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::ordered_json;

// VisitMembers lists the members of each struct once, for both writing and reading.
template <typename V>
void VisitMembers(V& visit, auto& e, const EvalMetrics*) {
  visit("loss", e.loss);
  visit("accuracy", e.accuracy);
  visit("samples", e.samples);
  visit("metrics", e.metrics);
}

template <typename V>
void VisitMembers(V& visit, auto& r, const TrainResult*) {
  visit("stop_reason", r.stop_reason);
  visit("steps", r.steps);
  visit("samples", r.samples);
  visit("skipped_steps", r.skipped_steps);
  visit("oom_retries", r.oom_retries);
  visit("seconds", r.seconds);
  visit("final_loss", r.final_loss);
  visit("eval_before", r.eval_before);
  visit("eval", r.eval);
  visit("compile_seconds", r.compile_seconds);
  visit("data_seconds", r.data_seconds);
  visit("compute_seconds", r.compute_seconds);
  visit("eval_seconds", r.eval_seconds);
  visit("checkpoint_seconds", r.checkpoint_seconds);
}

template <typename V>
void VisitMembers(V& visit, auto& b, const BestEvaluation*) {
  visit("step", b.step);
  visit("metric", b.metric);
  visit("worse_since", b.worse_since);
}

template <typename V>
void VisitMembers(V& visit, auto& p, const Plateau::State*) {
  visit("factor", p.factor);
  visit("best", p.best);
  visit("bad", p.bad);
  visit("cooling", p.cooling);
}

template <typename V>
void VisitMembers(V& visit, auto& w, const OutlierWindow*) {
  visit("values", w.values);
  visit("count", w.count);
  visit("median", w.median);
  visit("limit", w.limit);
}

template <typename V>
void VisitMembers(V& visit, auto& o, const Outlier*) {
  visit("of", o.of);
  visit("step", o.step);
  visit("value", o.value);
  visit("median", o.median);
}

template <typename V>
void VisitMembers(V& visit, auto& p, const LoopPosition*) {
  visit("result", p.result);
  visit("logged_step", p.logged_step);
  visit("logged_samples", p.logged_samples);
  visit("logged_seconds", p.logged_seconds);
  visit("evaluated_step", p.evaluated_step);
  visit("best", p.best);
  visit("plateau", p.plateau);
  visit("losses", p.losses);
  visit("grad_norms", p.grad_norms);
  visit("outliers", p.outliers);
}

template <typename V>
void VisitMembers(V& visit, auto& c, const SessionCounters*) {
  visit("attempted", c.attempted);
  visit("reported_attempts", c.reported_attempts);
  visit("reported_skips", c.reported_skips);
  visit("skipped_in_a_row", c.skipped_in_a_row);
  visit("micro_batch", c.micro_batch);
  visit("oom_retries", c.oom_retries);
}

template <typename V>
void VisitMembers(V& visit, auto& s, const RunState*) {
  visit("version", s.version);
  visit("cpu", s.cpu);
  visit("finished", s.finished);
  visit("model_sha256", s.model_sha256);
  visit("data_fingerprint", s.data_fingerprint);
  visit("samples_per_second", s.samples_per_second);
  visit("position", s.position);
  visit("session", s.session);
}

using NamedNumbers = std::vector<std::pair<std::string, double>>;

class Writer {
 public:
  template <typename T>
  void operator()(const char* name, const T& value) {
    json[name] = Write(value);
  }
  Json json = Json::object();

 private:
  static Json Write(double value) { return std::isfinite(value) ? Json(value) : Json(); }
  static Json Write(int64_t value) { return value; }
  static Json Write(bool value) { return value; }
  static Json Write(const std::string& value) { return value; }
  static Json Write(const NamedNumbers& values) {
    Json list = Json::array();
    for (const auto& [name, value] : values) list.push_back({name, Write(value)});
    return list;
  }
  static Json Write(Outlier::Of value) { return static_cast<int>(value); }
  template <typename T>
  static Json Write(const std::vector<T>& values) {
    Json list = Json::array();
    for (const T& value : values) list.push_back(Write(value));
    return list;
  }
  template <typename T>
  static Json Write(const T& value) {
    Writer writer;
    VisitMembers(writer, value, &value);
    return std::move(writer.json);
  }
};

class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}
  template <typename T>
  void operator()(const char* name, T& value) {
    const bool found = json_.is_object() && json_.contains(name);
    if (status_.ok() && (!found || !Read(json_[name], &value)))
      status_ = Invalid("'", name, "' is missing or of another type");
  }
  const absl::Status& status() const { return status_; }

 private:
  static bool Read(const Json& json, double* value) {
    *value = json.is_number() ? json.get<double>() : std::numeric_limits<double>::quiet_NaN();
    return json.is_number() || json.is_null();
  }
  static bool Read(const Json& json, int64_t* value) {
    if (json.is_number_integer()) *value = json.get<int64_t>();
    return json.is_number_integer();
  }
  static bool Read(const Json& json, bool* value) {
    if (json.is_boolean()) *value = json.get<bool>();
    return json.is_boolean();
  }
  static bool Read(const Json& json, std::string* value) {
    if (json.is_string()) *value = json.get<std::string>();
    return json.is_string();
  }
  static bool Read(const Json& json, NamedNumbers* values) {
    for (const Json& pair : json) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string()) return false;
      double value = 0;
      if (!Read(pair[1], &value)) return false;
      values->emplace_back(pair[0].get<std::string>(), value);
    }
    return json.is_array();
  }
  static bool Read(const Json& json, Outlier::Of* value) {
    const bool known = json == static_cast<int>(Outlier::Of::kLoss) || json == static_cast<int>(Outlier::Of::kGradNorm);
    if (known) *value = static_cast<Outlier::Of>(json.get<int>());
    return known;
  }
  template <typename T>
  static bool Read(const Json& json, std::vector<T>* values) {
    for (const Json& value : json) {
      if (!Read(value, &values->emplace_back())) return false;
    }
    return json.is_array();
  }
  template <typename T>
  static bool Read(const Json& json, T* value) {
    Reader reader(json);
    VisitMembers(reader, *value, value);
    return reader.status().ok();
  }

  const Json& json_;
  absl::Status status_;
};

}  // namespace

std::string ToJson(const RunState& state) {
  Writer writer;
  VisitMembers(writer, state, &state);
  if (!state.external_data.empty()) writer.json["external_data"] = state.external_data;
  writer.json["config"] = Json::parse(ToJson(state.config));
  return WriteJson(writer.json, 2) + "\n";
}

absl::StatusOr<RunState> ParseRunState(std::string_view text) {
  const Json json = ParseJson<Json>(text);
  RunState state;
  Reader reader(json);
  VisitMembers(reader, state, &state);
  RETURN_IF_ERROR(reader.status());
  if (!json.contains("config")) return Invalid("'config' is missing");
  state.external_data = json.value("external_data", "");
  ASSIGN_OR_RETURN(state.config, FromJson(WriteJson(json["config"])));
  return state;
}

namespace {

constexpr std::string_view kMagic = "ONXTRST1";
constexpr size_t kBegin = 16;  // offset of the bytes that the checksum covers
constexpr char kCounters[] = "$session";

uint64_t ComputeCrc(std::string_view bytes) {
  return ExtendCrc64(0, std::as_bytes(std::span(bytes.data(), bytes.size())));
}

HostTensor PackCounters(const SessionCounters& c) {
  return HostTensor::FromInts(
      {c.attempted, c.reported_attempts, c.reported_skips, c.skipped_in_a_row, c.micro_batch, c.oom_retries});
}

absl::StatusOr<SessionCounters> UnpackCounters(const HostTensor& tensor) {
  if (tensor.type() != PackCounters({}).type()) return Invalid("tensor '", kCounters, "' is no counters of a session");
  const std::vector<int64_t> c = tensor.ToInts();
  return SessionCounters{c[0], c[1], c[2], c[3], c[4], c[5]};
}

absl::StatusOr<NamedArrays> ReadState(Session& session) {
  ASSIGN_OR_RETURN(const std::vector<StateTensor> state, session.State());
  NamedArrays tensors;
  for (const StateTensor& tensor : state) {
    ASSIGN_OR_RETURN(HostTensor value, ReadRegion(tensor.region));
    tensors.emplace_back(tensor.name, std::move(value));
  }
  tensors.emplace_back(kCounters, PackCounters(session.counters()));
  return tensors;
}

absl::StatusOr<NamedArrays> ParseTensors(std::string_view bytes) {
  size_t at = 0;
  const ReadFn read = [&](std::span<std::byte> to) -> absl::StatusOr<size_t> {
    const size_t count = std::min(to.size(), bytes.size() - at);
    std::memcpy(to.data(), bytes.data() + at, count);
    at += count;
    return count;
  };
  return ReadSafetensors(read, std::ssize(bytes));
}

absl::Status CheckWhole(std::string_view bytes) {
  if (bytes.size() < kBegin || !bytes.starts_with(kMagic)) return Invalid("is no saved state of a trainer");
  uint64_t crc = 0;
  std::memcpy(&crc, bytes.data() + kMagic.size(), sizeof(crc));
  return crc == ComputeCrc(bytes.substr(kBegin)) ? absl::OkStatus() : Invalid("is damaged: its checksum is wrong");
}

}  // namespace

absl::StatusOr<std::string> SaveSessionState(Session& session) {
  ASSIGN_OR_RETURN(const NamedArrays tensors, ReadState(session));
  std::vector<NamedType> types;
  for (const auto& [name, value] : tensors) types.push_back({name, value.type()});
  ASSIGN_OR_RETURN(const std::string header, SafetensorsHeader(types));
  std::string bytes = StrCat(kMagic, std::string(sizeof(uint64_t), '\0'), header);
  for (const auto& [name, value] : tensors)
    bytes.append(reinterpret_cast<const char*>(value.bytes().data()), value.bytes().size());
  const uint64_t crc = ComputeCrc(std::string_view(bytes).substr(kBegin));
  std::memcpy(bytes.data() + kMagic.size(), &crc, sizeof(crc));
  return bytes;
}

absl::StatusOr<double> LoadSessionState(std::string_view bytes, Session* session) {
  RETURN_IF_ERROR(CheckWhole(bytes));
  ASSIGN_OR_RETURN(NamedArrays arrays, ParseTensors(bytes.substr(kBegin)));
  std::map<std::string, HostTensor> tensors;
  for (auto& [name, value] : arrays) tensors.emplace(name, std::move(value));
  const auto counters = tensors.extract(kCounters);
  if (counters.empty()) return Invalid("holds no counters of a session");
  ASSIGN_OR_RETURN(const SessionCounters unpacked, UnpackCounters(counters.mapped()));
  RETURN_IF_ERROR(session->Restore(tensors, unpacked));
  return ReadPlateau(*session);
}

absl::StatusOr<double> ReadPlateau(Session& session) {
  ASSIGN_OR_RETURN(const std::vector<StateTensor> state, session.State());
  const auto plateau = std::ranges::find(state, device_scalar::kPlateau, &StateTensor::name);
  if (plateau == state.end()) return absl::InternalError("the state has no factor of the learning rate");
  ASSIGN_OR_RETURN(const HostTensor value, ReadRegion(plateau->region));
  return value.At(0);
}

}  // namespace onnxtrain
