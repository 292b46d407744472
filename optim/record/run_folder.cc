#include "optim/record/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/sources/source.h"
#include "frontend/data/text/load_tokenizer.h"
#include "frontend/onnx/read/file.h"
#include "optim/plan/folders.h"
#include "optim/plan/reference_scores.h"
#include "optim/record/adapter_files.h"
#include "optim/record/checkpoint/checkpoint_folder.h"
#include "optim/record/checkpoint/resume.h"
#include "optim/record/model_folder.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

// Names of all files that a run may write.
constexpr const char* kRunFiles[] = {"model.onnx",      "model.synthetic.onnx", "model.unfinished.onnx",
                                     "preprocess.json", "summary.json",         "metrics.jsonl",
                                     "config.flags",    "config.yaml",          "report.html",
                                     kRateTestFile,     kOrtAdapterFile,        kAdapterInputsFile,
                                     kSamplesFile,      kReferenceFile};

std::string RunFileIn(const fs::path& folder) {
  std::error_code ignored;
  for (const char* name : kRunFiles) {
    if (fs::exists(fs::symlink_status(folder / name, ignored))) return name;
  }
  return ListCheckpoints(folder / kCheckpointsFolder).empty() ? "" : kCheckpointsFolder;
}

// Retries briefly, since IsLocked in another process holds the lock for an instant.
bool TryLock(int fd) {
  constexpr int kTries = 10;
  constexpr auto kInstant = std::chrono::milliseconds(10);
  for (int i = 0; i < kTries; ++i) {
    if (i > 0) std::this_thread::sleep_for(kInstant);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK) return false;
  }
  errno = EWOULDBLOCK;
  return false;
}

absl::StatusOr<int> Lock(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Invalid("`out` ", path, ": ", std::strerror(errno));
  if (TryLock(fd)) return fd;
  const int error = errno;
  close(fd);
  if (error == EWOULDBLOCK) return Invalid("`out` ", path, ": another process is writing a run there");
  return Invalid("`out` ", path, ": cannot be locked: ", std::strerror(error));
}

// Removes checkpoints and the links to them, and the folder if it is empty then.
absl::Status RemoveCheckpoints(const std::string& folder) {
  std::error_code error;
  for (const int64_t step : ListCheckpoints(folder)) {
    if (!error) fs::remove_all(StrCat(folder, "/", CheckpointName(step)), error);
  }
  for (const char* link : {"latest", "best"}) {
    if (!error) fs::remove(StrCat(folder, "/", link), error);
  }
  if (error) return Invalid(folder, ": ", error.message());
  fs::remove(folder, error);
  return absl::OkStatus();
}

absl::Status RemoveEvents(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) files.push_back(entry.path());
  }
  error.clear();  // no such folder
  for (const fs::path& file : files) {
    if (!error) fs::remove(file, error);
  }
  if (error) return Invalid(folder, ": ", error.message());
  fs::remove(folder, error);  // if nothing else is in it
  return absl::OkStatus();
}

constexpr const char* kAdapterFiles[] = {"adapter_config.json", "adapter_model.safetensors"};
constexpr const char* kGenaiFiles[] = {"genai_config.json", kOrtAdapterFile, kAdapterInputsFile};

// Removes the files, and the folder if it is empty then.
absl::Status RemoveFiles(const std::string& folder, std::span<const char* const> names) {
  std::error_code error;
  for (const char* name : names) {
    if (!error) fs::remove(StrCat(folder, "/", name), error);
  }
  if (error) return Invalid(folder, ": ", error.message());
  fs::remove(folder, error);
  return absl::OkStatus();
}

absl::Status RemoveTokenizer(const std::string& folder) {
  std::vector<const char*> names;
  for (const auto& file : TokenizerFileNames()) names.push_back(file.name);
  return RemoveFiles(folder, names);
}

}  // namespace

std::string DefaultOutputFolder(const std::string& model_path) {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  char stamp[32];
  std::strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", &local);
  const std::string base = StrCat("runs/", fs::path(model_path).stem().string(), "-", stamp);
  std::string path = base;
  std::error_code ignored;
  for (int i = 2; fs::exists(path, ignored); ++i) path = StrCat(base, "-", i);
  return path;
}

bool IsLocked(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return locked;
}

std::vector<std::string> ListInputs(const TrainConfig& config, const std::string& target) {
  std::error_code ignored;
  const bool exists = fs::exists(target, ignored);
  std::vector<std::string> inputs = {config.class_map, config.tokenizer, SourcePath(config.sample_prompts)};
  if (!config.model.empty()) inputs.push_back(PreprocessPath(config.model));
  for (const std::string& path : {config.data, config.eval_data}) {
    if (!path.empty()) inputs.push_back(SourcePath(path));
  }
  for (const std::string& path : {config.model, config.weights}) {
    const std::vector<std::string> files = exists ? ListModelFiles(path) : std::vector{path};
    inputs.insert(inputs.end(), files.begin(), files.end());
  }
  return inputs;
}

absl::Status CheckNotInput(const std::string& target, const std::vector<std::string>& inputs) {
  std::error_code ignored;
  for (const std::string& input : inputs) {
    if (fs::equivalent(target, input, ignored)) return Invalid(target, ": would overwrite an input of this run");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<OutputFolder>> OutputFolder::Open(const std::string& path, OldRun old_run,
                                                                 const std::vector<std::string>& inputs) {
  std::error_code error;
  const bool made = fs::create_directories(path, error);
  if (error || !fs::is_directory(path)) {
    return Invalid("`out` ", path, ": ", error ? error.message() : std::string("not a folder"));
  }
  ASSIGN_OR_RETURN(const int fd, Lock(path));
  std::unique_ptr<OutputFolder> folder(new OutputFolder(path, fd, made));
  for (const char* name : kRunFiles) RETURN_IF_ERROR(CheckNotInput(folder->File(name), inputs));
  if (const std::string file = RunFileIn(path); !file.empty() && old_run == OldRun::kRefuse) {
    return Invalid("`out` ", path, ": holds a run already (", file,
                   "); choose another folder, or say `resume` auto or `overwrite`");
  }
  if (access(path.c_str(), W_OK) != 0) return Invalid("`out` ", path, ": ", std::strerror(errno));
  return folder;
}

absl::Status OutputFolder::RemoveOldRun() {
  for (const char* name : kRunFiles) {
    std::error_code error;
    fs::remove(File(name), error);
    if (error) return Invalid(File(name), ": ", error.message());
  }
  RETURN_IF_ERROR(RemoveEvents(File(kEventsFolder)));
  RETURN_IF_ERROR(RemoveTokenizer(File(kTokenizerFolder)));
  RETURN_IF_ERROR(RemoveFiles(File(kAdapterFolder), kAdapterFiles));
  RETURN_IF_ERROR(RemoveTokenizer(File(kGenaiFolder)));
  RETURN_IF_ERROR(RemoveFiles(File(kGenaiFolder), kGenaiFiles));
  RETURN_IF_ERROR(RemoveModelFolder(File(kModelFolder)));
  return RemoveCheckpoints(File(kCheckpointsFolder));
}

absl::StatusOr<std::string> OutputFolder::FindAgain() {
  const fs::path opened = StrCat("/proc/self/fd/", fd_);
  std::error_code error;
  if (fs::equivalent(opened, path_, error)) return std::string();
  const std::string before = path_, now = fs::read_symlink(opened, error).string();
  if (!error && fs::equivalent(opened, now, error)) {
    path_ = now;
    return StrCat("`out` ", before, ": was moved to ", now, " while it was written to");
  }
  fs::create_directories(path_, error);
  if (error) return Invalid("`out` ", path_, ": was removed, and cannot be made again: ", error.message());
  return StrCat("`out` ", path_, ": was removed while it was written to, with all that was in it");
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  if (made_) fs::remove(path_, ignored);  // removes an empty folder only
  close(fd_);
}

namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxSummaryBytes = int64_t{64} << 20;

void AddRow(const Json& row, RunRecord* record) {
  const bool eval = row.value("event", "") == "eval";
  auto& all = eval ? record->eval : record->train;
  const double step = row.value("step", 0.0);
  for (const auto& [key, value] : row.items()) {
    if (!value.is_number() || key == "step") continue;
    const std::string name = eval && key.starts_with("eval_") ? key.substr(5) : key;
    all[name].emplace_back(step, value.get<double>());
  }
}

absl::Status ReadRateTest(const std::string& path, RunRecord* record) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxSummaryBytes));
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("points") || !json["points"].is_array())
    return Invalid(path, ": not the result of a learning rate range test");
  RateTestRecord test{.lr = json.value("lr", Json()).is_number() ? json["lr"].get<double>() : 0,
                      .why = json.value("why", "")};
  for (const Json& point : json["points"]) {
    if (!point.is_array() || point.size() != 3 || !std::ranges::all_of(point, &Json::is_number)) continue;
    test.loss.emplace_back(point[0].get<double>(), point[1].get<double>());
    test.smooth.emplace_back(point[0].get<double>(), point[2].get<double>());
  }
  record->rate_test = std::move(test);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunRecord> ReadRun(const std::string& folder) {
  const std::string path = folder + "/metrics.jsonl";
  RunRecord record{.folder = folder, .running = IsLocked(folder)};
  std::ifstream file(path);
  if (!file && record.running) return record;  // the run is still preparing its data
  if (!file) return Invalid(folder, ": holds no run (there is no metrics.jsonl)");
  int64_t number = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    ++number;
    const Json row = ParseJson(line);
    if (!row.is_object() || !row.contains("step") || !row["step"].is_number())
      return Invalid(path, ": line ", number, ": not an event of a run");
    AddRow(row, &record);
  }
  RETURN_IF_ERROR(ReadRateTest(StrCat(folder, "/", kRateTestFile), &record));
  std::error_code ignored;
  if (!std::filesystem::exists(folder + "/summary.json", ignored)) return record;
  ASSIGN_OR_RETURN(record.summary, ReadTextFile(folder + "/summary.json", kMaxSummaryBytes));
  return record;
}

std::set<std::string> OtherMetrics(const std::vector<RunRecord>& runs) {
  std::set<std::string> names;
  for (const RunRecord& run : runs) {
    for (const auto& [name, series] : run.eval) names.insert(name);
  }
  for (const char* known : {"loss", "accuracy", "epoch", "seconds", "samples"}) names.erase(known);
  return names;
}

std::string RunName(const RunRecord& run) {
  const std::string name = std::filesystem::path(run.folder).lexically_normal().filename().string();
  return name.empty() ? run.folder : name;
}

const Series* FindSeries(const std::map<std::string, Series>& all, const std::string& name) {
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

}  // namespace onnxtrain
