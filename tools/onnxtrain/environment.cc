#include "tools/onnxtrain/environment.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "frontend/base/cancellation.h"
#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/onnx/read/file.h"
#include "tools/onnxtrain/commands/command.h"

namespace onnxtrain::cli {
namespace {

bool HasAvx512() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
#else
  return false;
#endif
}

std::atomic<bool> stop_asked{false}, save_asked{false};
constexpr int kStops[] = {SIGINT, SIGTERM, SIGHUP};

std::atomic<int64_t> asked_at{0};  // milliseconds

int64_t Milliseconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000} + now.tv_nsec / 1000000;
}

// Time after a signal to stop at which the preparation of a model is aborted; a training step is never aborted.
constexpr unsigned kGraceSeconds = 8;

extern "C" void OnGraceOver(int) {
  if (!IsPreparing()) {
    alarm(1);
    return;
  }
  constexpr char kMessage[] = "onnxtrain: stopped by a signal while preparing the model\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(kStopped);
}

// Handles signals to stop. Simultaneous ones count once: a job manager may signal both the process and its group.
extern "C" void OnStop(int number) {
  constexpr int64_t kSameSignal = 300;
  if (!stop_asked.exchange(true)) {
    asked_at.store(Milliseconds());
    alarm(kGraceSeconds);
  } else if (Milliseconds() - asked_at.load() > kSameSignal) {
    signal(number, SIG_DFL);
    raise(number);
  }
}

std::atomic<bool> truncation_reported{false};

// Ends the process, since returning would repeat the fault. Several threads may fault at once.
extern "C" void OnBusError(int number, siginfo_t* info, void*) {
  if (!IsInMappedFile(info->si_addr)) {
    signal(number, SIG_DFL);
    return;
  }
  while (truncation_reported.exchange(true)) pause();
  constexpr char kMessage[] =
      "onnxtrain: error: the model file, or its external data, was truncated while it was read\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(kBadInput);
}

extern "C" void OnSave(int) { save_asked.store(true); }

// Kernels that oneDNN generates for float32 products keep a large workspace on the heap and point the stack register
// there: a handler on the stack of the interrupted thread would write over what lies below. Linux delivers a
// process-directed signal to the main thread unless that blocks it (signal(7)), so this thread alone needs the stack.
void GiveHandlersAStack() {
  alignas(64) static std::array<std::byte, 64 * 1024> memory;
  stack_t stack = {};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  sigaltstack(&stack, nullptr);
}

void Catch(int number, void (*handler)(int)) {
  struct sigaction before = {};
  const bool may_be_ignored = number == SIGINT || number == SIGHUP;
  if (may_be_ignored && sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) return;
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigaction(number, &action, nullptr);
}

}  // namespace

void SetEnvironment(int threads) {
  const std::string count = std::to_string(threads);
  setenv("OMP_NUM_THREADS", count.c_str(), 1);  // --threads takes precedence over the environment
  setenv("OMP_DYNAMIC", "false", 1);            // the split of reductions must not depend on the load of the machine
  setenv("OPENBLAS_NUM_THREADS", count.c_str(), 0);
  // A waiting thread spins for about a tenth of a millisecond, then sleeps: waking one takes as long, and a small
  // model's step has a hundred parallel loops; but it must not keep a CPU from OpenBLAS's own pool or from the loader.
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) setenv("GOMP_SPINCOUNT", "20000", 0);
  setenv("OMP_WAIT_POLICY", "PASSIVE", 0);
  if (HasAvx512()) setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
}

void IgnoreBrokenPipes() { signal(SIGPIPE, SIG_IGN); }

void ReportTruncatedFiles() {
  struct sigaction action = {};
  action.sa_sigaction = OnBusError;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

SignalFlags CatchSignals() {
  GiveHandlersAStack();
  for (int number : kStops) Catch(number, OnStop);
  Catch(SIGUSR1, OnSave);
  Catch(SIGALRM, OnGraceOver);
  SetCancelFlag(&stop_asked);
  return {&stop_asked, &save_asked};
}

namespace {

// Writes to a log. Ignores errors, which must not end the training.
void WriteTo(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno != EINTR) return;
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
  }
}

// Copies stderr to the log, and on rank 0 to the original stderr.
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

// Names of the environment variables of a launcher.
struct Launcher {
  const char *rank, *size, *local_rank, *local_size;
  bool binds;  // the launcher binds processes to CPUs
};
constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", false},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", true},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", true},
};

constexpr int kDefaultPort = 29500;  // torchrun's

// Returns the first host of a list such as "node[01-04,07],other".
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
  // torchrun itself listens on the port, with an incompatible version of the protocol.
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
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", 0);  // errors of c10d are returned as statuses
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
