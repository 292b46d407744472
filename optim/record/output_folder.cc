#include "optim/record/output_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <thread>

#include "frontend/base/status.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/data/sources/source.h"
#include "frontend/onnx/read/file.h"
#include "optim/plan/folders.h"
#include "optim/record/checkpoint/checkpoint_folder.h"
#include "optim/record/checkpoint/resume.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

// The files that a run writes.
constexpr const char* kRunFiles[] = {"model.onnx",      "model.synthetic.onnx", "model.unfinished.onnx",
                                     "preprocess.json", "summary.json",         "metrics.jsonl",
                                     "config.flags",    "report.html",          kRateTestFile};

std::string RunFileIn(const fs::path& folder) {
  std::error_code ignored;
  for (const char* name : kRunFiles) {
    if (fs::exists(fs::symlink_status(folder / name, ignored))) return name;
  }
  return ListCheckpoints(folder / kCheckpointsFolder).empty() ? "" : kCheckpointsFolder;
}

// IsLocked of another process holds the lock for an instant.
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

// Checkpoints and links to them, and the folder if nothing else is in it.
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

// The files of a tokenizer, and the folder if nothing else is in it.
absl::Status RemoveTokenizer(const std::string& folder) {
  std::error_code error;
  for (const char* name :
       {"tokenizer.json", "vocab.txt", "tokenizer_config.json", "vocab.json", "merges.txt", "tokenizer.model"}) {
    if (!error) fs::remove(StrCat(folder, "/", name), error);
  }
  if (error) return Invalid(folder, ": ", error.message());
  fs::remove(folder, error);
  return absl::OkStatus();
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
  std::vector<std::string> inputs = {config.class_map, config.tokenizer};
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

}  // namespace onnxtrain
