#include "tools/onnxtrain/ranks.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"

namespace onnxtrain::cli {
namespace {

// A log that cannot be written ends no training.
void WriteTo(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno != EINTR) return;
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
  }
}

// The other end of stderr.
struct Tee {
  bool prints = false;
  int file = -1;

  void Write(std::string_view text) const {
    WriteTo(file, text);
    if (prints) WriteTo(STDERR_FILENO, text);
  }
};

Tee tee;

ssize_t WriteToTee(void* tee, const char* text, size_t size) {
  static_cast<const Tee*>(tee)->Write({text, size});
  return static_cast<ssize_t>(size);
}

}  // namespace

absl::Status LogToFile(const Rank& rank, const TrainConfig& given, const std::string& folder) {
  const std::string path = StrCat(folder, "/rank-", rank.rank, ".log");
  const int replaces = given.overwrite && given.resume.empty() ? O_TRUNC : 0;
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | replaces, 0666);
  if (fd < 0) return Invalid(path, ": ", std::strerror(errno));
  tee = {.prints = rank.rank == 0, .file = fd};
  FILE* stream = fopencookie(&tee, "w", {.read = nullptr, .write = WriteToTee, .seek = nullptr, .close = nullptr});
  if (stream == nullptr) return Invalid(path, ": ", std::strerror(errno));
  std::setvbuf(stream, nullptr, _IOLBF, BUFSIZ);
  stderr = stream;
  return absl::OkStatus();
}

void LogAsRank(const Rank& rank, const std::string& line, bool prints) {
  if (tee.file >= 0) std::fputs((line + "\n").c_str(), stderr);
  if (prints) WriteTo(STDERR_FILENO, StrCat("[rank ", rank.rank, "] ", line, "\n"));
}

namespace {

std::string Get(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? text : "";
}

absl::StatusOr<int> GetNumber(const char* name, int otherwise) {
  const std::string text = Get(name);
  if (text.empty()) return otherwise;
  const auto number = ParseInt(text);
  if (!number.ok() || *number < 0 || *number > 1'000'000) return Invalid(name, "=", text, ": expected a number");
  return static_cast<int>(*number);
}

// The variables of a launcher.
struct Launcher {
  const char *rank, *size, *local_rank, *local_size;
  bool binds;  // processes to CPUs
};
constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", false},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", true},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", true},
};

constexpr int kDefaultPort = 29500;  // torchrun's

// The first host of "node[01-04,07],other".
std::string FirstHost(std::string_view nodes) {
  const size_t bracket = nodes.find('['), end = nodes.find_first_of("[,");
  std::string host(nodes.substr(0, end));
  if (bracket == end && bracket != nodes.npos) {
    nodes.remove_prefix(bracket + 1);
    host += nodes.substr(0, nodes.find_first_of(",-]"));
  }
  return host;
}

absl::Status FindMeetingPoint(Rank* rank) {
  rank->file = Get(kMeetingFile);
  rank->collected = !rank->file.empty();
  rank->host = Get("MASTER_ADDR");
  if (rank->host.empty()) rank->host = FirstHost(Get("SLURM_STEP_NODELIST"));
  if (rank->host.empty() && rank->local_size == rank->size) rank->host = "127.0.0.1";
  if (rank->host.empty() && rank->file.empty()) return Invalid("MASTER_ADDR is not set: where is rank 0?");
  ASSIGN_OR_RETURN(const int job, GetNumber("SLURM_JOB_ID", 0));
  ASSIGN_OR_RETURN(rank->port, GetNumber("MASTER_PORT", kDefaultPort + job % 10'000));
  // torchrun listens on the port itself, and talks another version of the protocol.
  if (Get("TORCHELASTIC_USE_AGENT_STORE") == "True") rank->port += rank->port < 65'535 ? 1 : -1;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Rank> ReadRank() {
  const auto launcher = std::ranges::find_if(kLaunchers, [](const Launcher& l) { return !Get(l.size).empty(); });
  Rank rank;
  if (launcher == std::end(kLaunchers)) return rank;
  ASSIGN_OR_RETURN(rank.size, GetNumber(launcher->size, 1));
  ASSIGN_OR_RETURN(rank.rank, GetNumber(launcher->rank, 0));
  if (rank.rank >= rank.size)
    return Invalid(launcher->rank, "=", rank.rank, " is not below ", launcher->size, "=", rank.size);
  if (rank.alone()) return rank;
  ASSIGN_OR_RETURN(rank.local_rank, GetNumber(launcher->local_rank, 0));
  ASSIGN_OR_RETURN(rank.local_size, GetNumber(launcher->local_size, 1));
  rank.divides = !launcher->binds && Get("OMP_NUM_THREADS").empty();
  RETURN_IF_ERROR(FindMeetingPoint(&rank));
  return rank;
}

void DivideMachine(const Rank& rank) {
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", 0);  // c10d's errors become ours
  ShareMemory(rank.local_size);
  cpu_set_t all, own;
  if (!rank.divides || sched_getaffinity(0, sizeof all, &all) != 0) return;
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &all)) cpus.push_back(cpu);
  }
  const int count = static_cast<int>(cpus.size()), width = std::max(1, count / rank.local_size);
  const int first = std::min(count - width, count * (rank.local_rank % rank.local_size) / rank.local_size);
  CPU_ZERO(&own);
  for (int i = first; i < first + width; ++i) CPU_SET(cpus[i], &own);
  sched_setaffinity(0, sizeof own, &own);
}

void LimitThreads(int threads) { setenv("OMP_THREAD_LIMIT", std::to_string(threads).c_str(), 1); }

}  // namespace onnxtrain::cli
