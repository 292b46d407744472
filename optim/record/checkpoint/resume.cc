#include "optim/record/checkpoint/resume.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/str_join.h"
#include "frontend/base/sha256.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/text/pair_rows.h"
#include "frontend/onnx/read/file.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFingerprintSamples = 64, kFingerprintBytes = int64_t{8} << 20;

std::string Shown(const std::vector<std::string>& texts) { return texts.empty() ? "unset" : absl::StrJoin(texts, " "); }

absl::StatusOr<StoredCheckpoint> OpenAny(const std::string& path, std::vector<std::string>* skipped) {
  std::error_code ignored;
  if (fs::exists(path + "/MANIFEST.json", ignored)) return OpenCheckpoint(path);
  const std::string inner = StrCat(path, "/", kCheckpointsFolder);
  return OpenNewestCheckpoint(fs::is_directory(inner, ignored) ? inner : path, skipped);
}

// Notes a limit (epochs or max_steps) that is kept from the checkpoint and may end the run before the one given now.
void NoteOtherLimit(const TrainConfig& given, const TrainConfig& merged, std::vector<std::string>* notes) {
  for (const auto& [limit, other] : {std::pair("epochs", "max_steps"), {"max_steps", "epochs"}}) {
    if (!given.specified.contains(limit) || given.specified.contains(other)) continue;
    for (const std::string& value : FieldTexts(merged, *FindField(other)))
      notes->push_back(StrCat("`", other, "` ", value, ": was given when the run began, and holds too"));
  }
}

void CopyField(const ConfigField& field, const TrainConfig& from, TrainConfig* to) {
  std::visit([&](auto member) { to->*member = from.*member; }, field.member);
  if (from.specified.contains(field.name)) to->specified.insert(field.name);
}

absl::Status MergeField(const ConfigField& field, const TrainConfig& given, TrainConfig* merged,
                        std::vector<std::string>* notes) {
  if (field.traits.decides) {
    if (IsSpecified(given, field.name))
      notes->push_back(StrCat("`", field.name, "`: the run keeps what was chosen when it began"));
    return absl::OkStatus();
  }
  if (field.traits.transient) CopyField(field, given, merged);
  if (field.traits.transient || !given.specified.contains(field.name)) return absl::OkStatus();
  const std::string now = Shown(FieldTexts(given, field)), then = Shown(FieldTexts(*merged, field));
  if (now == then) return absl::OkStatus();
  const std::string change = StrCat("`", field.name, "`: ", then, " → ", now);
  if (field.traits.on_resume == OnResume::kFixed) {
    if (!given.resume_force) return Invalid(change, ": would make it another run (`resume_force` keeps the old value)");
    notes->push_back(StrCat(change, ": ignored, the run keeps the old value"));
    return absl::OkStatus();
  }
  if (field.traits.on_resume == OnResume::kChanges) notes->push_back(StrCat(change, ": from here on"));
  CopyField(field, given, merged);
  return absl::OkStatus();
}

void HashText(std::string_view text, Sha256* hash) { hash->Update(std::as_bytes(std::span(text.data(), text.size()))); }

// Returns the indices of evenly spaced samples, including the first and the last.
std::vector<int64_t> Probes(int64_t samples, int64_t sample_bytes) {
  const int64_t affordable = kFingerprintBytes / std::max<int64_t>(1, sample_bytes);
  const int64_t count = std::min(samples, std::max(kFingerprintSamples, affordable));
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(count == 1 ? 0 : i * (samples - 1) / (count - 1));
  return rows;
}

// Hashes the probed samples in batches, to bound the memory.
absl::Status HashSamples(const TrainData& data, Sha256* hash) {
  int64_t bytes = 0;
  for (const FeedSpec& spec : data.specs) bytes += static_cast<int64_t>(spec.sample.bytes());
  const std::vector<int64_t> rows = Probes(data.dataset->size(), bytes);
  const LoaderOptions options{.batch_size = std::min(kFingerprintSamples, std::ssize(rows)), .num_workers = 0};
  ASSIGN_OR_RETURN(auto loader, Loader::Create(SubsetDataset(data.dataset, rows), data.specs, options));
  while (true) {
    ASSIGN_OR_RETURN(const Batch* batch, loader->Next());
    if (batch == nullptr) return absl::OkStatus();
    for (const HostTensor& tensor : batch->tensors) hash->Update(tensor.bytes());
    for (const auto& tensors : batch->further) {
      for (const HostTensor& tensor : tensors) hash->Update(tensor.bytes());
    }
  }
}

absl::Status Ignore(const std::string& problem, bool force, std::vector<std::string>* notes) {
  if (!force) return Invalid(problem, " (`resume_force` resumes nevertheless)");
  notes->push_back(problem + ": ignored");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ResumePoint> OpenResumePoint(const std::string& path) {
  ResumePoint point;
  ASSIGN_OR_RETURN(point.checkpoint, OpenAny(path, &point.skipped));
  auto state = ParseRunState(point.checkpoint.state);
  if (!state.ok()) return Annotate(state.status(), point.checkpoint.path + "/state.json: ");
  point.state = *std::move(state);
  return point;
}

absl::StatusOr<TrainConfig> MergeConfig(const TrainConfig& given, const RunState& saved,
                                        std::vector<std::string>* notes) {
  TrainConfig merged = saved.config;
  for (const ConfigField& field : ConfigFields()) {
    if ((field.tasks & kTaskTrain) != 0) RETURN_IF_ERROR(MergeField(field, given, &merged, notes));
  }
  NoteOtherLimit(given, merged, notes);
  merged.allow_lossy_memory = false;  // the checkpoint decides how moments and weights are stored
  merged.specified.erase("allow_lossy_memory");
  const bool in_samples = merged.max_tokens_per_batch == 0;
  if (saved.session.oom_retries > 0 && in_samples && !given.specified.contains("micro_batch_size")) {
    merged.micro_batch_size = saved.session.micro_batch;
    merged.gradient_accumulation_steps = 0;
    merged.specified.erase("gradient_accumulation_steps");
  }
  return merged;
}

std::string DataFingerprint(const TrainData& given) {
  TrainData data = given;
  // The log-probabilities of a reference depend on the number of threads.
  std::erase_if(data.specs,
                [&](const FeedSpec& spec) { return data.dataset->columns()[spec.columns[0]].name == kReferenceLabel; });
  Sha256 hash;
  HashText(StrCat(data.dataset->size()), &hash);
  for (const FeedSpec& spec : data.specs) HashText(StrCat(spec.feed, " ", ToString(spec.sample), "\n"), &hash);
  const absl::Status hashed = HashSamples(data, &hash);
  if (!hashed.ok()) HashText(ToStd(hashed.message()), &hash);
  return hash.Hex();
}

absl::Status CheckSameModel(const RunState& saved, const std::string& model_sha256, bool force,
                            std::vector<std::string>* notes) {
  if (saved.model_sha256 == model_sha256) return absl::OkStatus();
  return Ignore("`model`: is not the file that the checkpoint was trained from", force, notes);
}

std::string FindExternalDataDigest(const std::string& model) {
  constexpr int64_t kBlocks = 64, kBlockBytes = int64_t{64} << 10;
  Sha256 hash;
  bool found = false;
  const std::vector<std::string> files = ListModelFiles(model);
  for (const std::string& path : std::set(files.begin(), files.end())) {
    std::error_code error;
    const auto size = static_cast<int64_t>(fs::file_size(path, error));
    std::ifstream file(path, std::ios::binary);
    if (path == model || error || !file) continue;
    found = true;
    HashText(StrCat(size, "\n"), &hash);
    std::string block;
    for (const int64_t i : Probes((size + kBlockBytes - 1) / kBlockBytes, kFingerprintBytes / kBlocks)) {
      block.resize(static_cast<size_t>(std::min(kBlockBytes, size - i * kBlockBytes)));
      file.seekg(i * kBlockBytes);
      file.read(block.data(), std::ssize(block));
      HashText(block, &hash);
    }
  }
  return found ? hash.Hex() : "";
}

absl::Status CheckSameExternalData(const RunState& saved, const std::string& external_data, bool force,
                                   std::vector<std::string>* notes) {
  if (saved.external_data.empty() || saved.external_data == external_data) return absl::OkStatus();
  return Ignore("`model`: its external data is not what the checkpoint was trained from", force, notes);
}

absl::Status CheckSameData(const RunState& saved, const std::string& data_fingerprint, bool force,
                           std::vector<std::string>* notes) {
  if (saved.data_fingerprint == data_fingerprint) return absl::OkStatus();
  return Ignore("`data`: its samples are not those that the checkpoint was trained on", force, notes);
}

namespace {

// Restores one tensor at a time, since the memory plan has no room for a second copy of the state.
absl::Status RestoreTensors(const ResumePoint& point, Session* session) {
  if (session->divides_moments()) return Invalid("the moments are divided among the ranks already");
  ASSIGN_OR_RETURN(const std::vector<StateTensor> state, session->State());
  std::map<std::string, const Region*> missing;
  for (const StateTensor& tensor : state) missing.emplace(tensor.name, &tensor.region);
  RETURN_IF_ERROR(VisitTensors(point.checkpoint, [&](const std::string& name, const HostTensor& value) -> absl::Status {
    const auto found = missing.find(name);
    if (found == missing.end()) return Invalid("tensor '", Printable(name), "' is not one of the run");
    if (!(found->second->type == value.type()))
      return Invalid("tensor '", Printable(name), "' is ", ToString(value.type()), ", the run has ",
                     ToString(found->second->type));
    return WriteRegion(*missing.extract(found).mapped(), value);
  }));
  if (!missing.empty()) return Invalid("holds no tensor '", missing.begin()->first, "'");
  return session->RestoreCounters(point.state.session);
}

}  // namespace

absl::Status RestoreSession(const ResumePoint& point, Session* session) {
  if (!session->holds_partial_weights()) return Annotate(RestoreTensors(point, session), point.checkpoint.path + ": ");
  std::map<std::string, HostTensor> tensors;
  for (auto* read : {ReadModelTensors, ReadOptimizerTensors}) {
    ASSIGN_OR_RETURN(NamedArrays arrays, read(point.checkpoint));
    for (auto& [name, value] : arrays) tensors.emplace(name, std::move(value));
  }
  return Annotate(session->Restore(tensors, point.state.session), point.checkpoint.path + ": ");
}

absl::Status CheckUnit(const ResumePoint& point) {
  if (!point.state.config.scale_targets) return absl::OkStatus();
  return Invalid(point.checkpoint.path,
                 ": its run scaled the targets, so its weights predict in another unit; resume it "
                 "(`resume`), which writes a model in the original one");
}

absl::StatusOr<std::map<std::string, HostTensor>> ReadWeights(const StoredCheckpoint& checkpoint, bool average) {
  ASSIGN_OR_RETURN(NamedArrays arrays, ReadModelTensors(checkpoint));
  std::map<std::string, HostTensor> weights, averages;
  const std::string prefix = MomentName(kAverage, "");
  for (auto& [name, value] : arrays) {
    const bool is_average = name.starts_with(prefix);
    if (value.dtype() == DType::kBFloat16) value = value.CastTo(DType::kFloat32);
    (is_average ? averages : weights).emplace(is_average ? name.substr(prefix.size()) : name, std::move(value));
  }
  if (!average) return weights;
  for (auto& [name, value] : averages) weights[name] = std::move(value);
  return weights;
}

}  // namespace onnxtrain
