#include "optim/record/checkpoint/state_bytes.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <span>

#include "frontend/base/status.h"
#include "frontend/data/sources/safetensors.h"
#include "optim/record/checkpoint/file_writer.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {
namespace {

constexpr std::string_view kMagic = "ONXTRST1";
constexpr size_t kBegin = 16;  // of what the checksum is of
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
