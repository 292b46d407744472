// onnxtrain launch --nproc N -- FLAGS: trains with several processes on this machine.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/environment.h"

namespace onnxtrain::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Time between the failure of a rank and killing the remaining ones: rank 0 needs it to write the model.
constexpr std::chrono::seconds kGrace{30}, kGraceOfOthers{4};
constexpr int kPollMilliseconds = 50;
constexpr int kMostRanks = 1024;
constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

volatile sig_atomic_t pending_signals[NSIG];

extern "C" void NoteSignal(int number) { pending_signals[number] = 1; }

struct LaunchPlan {
  int ranks = 0;
  std::vector<std::string> words;  // command line of each rank
};

absl::StatusOr<LaunchPlan> ParseLaunch(const std::vector<std::string>& words) {
  LaunchPlan plan;
  for (size_t i = 1; i < words.size(); ++i) {
    std::string value;
    if (words[i] == "--") {
      plan.words.assign(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
      break;
    }
    if (words[i].starts_with("--nproc=")) {
      value = words[i].substr(8);
    } else if (words[i] == "--nproc" && i + 1 < words.size()) {
      value = words[++i];
    } else {
      return Invalid("launch: '", words[i], "': expected --nproc N, then -- and the flags of train");
    }
    const auto number = ParseInt(value);
    if (!number.ok() || *number < 1 || *number > kMostRanks)
      return Invalid("--nproc ", value, ": expected a number from 1 to ", kMostRanks);
    plan.ranks = static_cast<int>(*number);
  }
  if (plan.ranks == 0) return Invalid("launch: how many ranks? (--nproc N)");
  if (plan.words.empty()) return Invalid("launch: the flags of train are missing (behind --)");
  if (!plan.words[0].starts_with("-") && plan.words[0] != "train")
    return Invalid("launch: '", plan.words[0], "' is not distributed: only train is");
  return plan;
}

// A private temporary folder for the rendezvous file of the ranks.
class MeetingFolder {
 public:
  MeetingFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "onnxtrain-launch-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~MeetingFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  MeetingFolder(const MeetingFolder&) = delete;
  MeetingFolder& operator=(const MeetingFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Process {
  pid_t pid = -1;
  int errors = -1;              // pipe from its stderr; -1: shares stderr with this process
  std::string last_line, line;  // the last complete line of its stderr, and the incomplete one
  std::optional<int> status;    // set by waitpid
};

void SetRank(const LaunchPlan& plan, int rank, const std::string& file) {
  const std::pair<const char*, std::string> variables[] = {
      {"RANK", StrCat(rank)},       {"WORLD_SIZE", StrCat(plan.ranks)},       {"LOCAL_RANK", StrCat(rank)},
      {"MASTER_ADDR", "127.0.0.1"}, {"LOCAL_WORLD_SIZE", StrCat(plan.ranks)}, {kMeetingFile, file}};
  for (const auto& [name, value] : variables) setenv(name, value.c_str(), 1);
}

[[noreturn]] void RunRank(const LaunchPlan& plan, int rank, const std::string& file, pid_t launcher) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // ends the rank if the launcher is killed
  if (getppid() != launcher) std::_Exit(kStopped);
  SetRank(plan, rank, file);
  std::vector<char*> arguments = {const_cast<char*>("onnxtrain")};
  for (const std::string& word : plan.words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execv("/proc/self/exe", arguments.data());
  std::fprintf(stderr, "onnxtrain: launch: %s\n", std::strerror(errno));
  std::_Exit(kFailed);
}

// Starts a rank. Rank 0 prints directly; of the others, only the last line of stderr is kept for error messages.
absl::StatusOr<Process> StartRank(const LaunchPlan& plan, int rank, const std::string& file) {
  int ends[2] = {-1, -1};
  if (rank > 0 && pipe2(ends, O_CLOEXEC) != 0) return Invalid("launch: ", std::strerror(errno));
  const pid_t launcher = getpid(), pid = fork();
  if (pid < 0) return Invalid("launch: ", std::strerror(errno));
  if (pid == 0) {
    if (rank > 0) dup2(ends[1], STDERR_FILENO);
    RunRank(plan, rank, file, launcher);
  }
  if (rank > 0) close(ends[1]);
  return Process{.pid = pid, .errors = ends[0]};
}

void ReadErrors(Process* process) {
  char text[4096];
  const ssize_t size = read(process->errors, text, sizeof text);
  if (size <= 0) {
    close(process->errors);
    process->errors = -1;
    return;
  }
  for (const char c : std::string_view(text, static_cast<size_t>(size))) {
    if (c != '\n') {
      process->line += c;
    } else if (!process->line.empty()) {
      process->last_line = std::exchange(process->line, "");
    }
  }
}

bool HasFailed(const Process& process) {
  if (!process.status) return false;
  if (!WIFEXITED(*process.status)) return true;
  const int code = WEXITSTATUS(*process.status);
  return code != kDone && code != kStopped && code != kRequirement;
}

std::string DescribeEnd(const Process& process) {
  if (WIFSIGNALED(*process.status))
    return StrCat("was killed by signal ", WTERMSIG(*process.status), " (", strsignal(WTERMSIG(*process.status)), ")");
  return StrCat("ended with exit code ", WEXITSTATUS(*process.status));
}

class Launcher {
 public:
  absl::StatusOr<int> Run(const LaunchPlan& plan) {
    if (folder_.path().empty()) return Invalid("launch: no folder for temporary files can be made");
    for (const int number : kForwarded) signal(number, NoteSignal);
    for (int rank = 0; rank < plan.ranks; ++rank) {
      ASSIGN_OR_RETURN(processes_.emplace_back(), StartRank(plan, rank, folder_.path() + "/meeting"));
    }
    while (std::ranges::any_of(processes_, [](const Process& p) { return !p.status || p.errors >= 0; })) {
      WaitForNews();
      ForwardSignals();
      CollectEnded();
      if (failed_ && Clock::now() > deadline_) Signal(SIGKILL);
    }
    return Report();
  }

 private:
  void WaitForNews() {
    std::vector<pollfd> files;
    for (const Process& p : processes_) files.push_back({.fd = p.errors, .events = POLLIN, .revents = 0});
    if (poll(files.data(), files.size(), kPollMilliseconds) <= 0) return;
    for (size_t i = 0; i < files.size(); ++i) {
      if (files[i].revents != 0) ReadErrors(&processes_[i]);
    }
  }

  void ForwardSignals() {
    for (const int number : kForwarded) {
      if (pending_signals[number] == 0) continue;
      pending_signals[number] = 0;
      Signal(number);
    }
  }

  void Signal(int number) const {
    for (const Process& p : processes_) {
      if (!p.status) kill(p.pid, number);
    }
  }

  void CollectEnded() {
    for (Process& p : processes_) {
      int status = 0;
      if (p.status || waitpid(p.pid, &status, WNOHANG) != p.pid) continue;
      p.status = status;
      if (failed_ && &p == processes_.data()) deadline_ = std::min(deadline_, Clock::now() + kGraceOfOthers);
      if (failed_ || !HasFailed(p)) continue;
      failed_ = &p - processes_.data();
      deadline_ = Clock::now() + (*failed_ == 0 ? kGraceOfOthers : kGrace);
    }
  }

  // Returns true if the rank ended silently with the exit code of rank 0: then rank 0 is the cause, although its end
  // may be noticed later.
  bool OnlyFollowed(const Process& rank) const {
    return WIFEXITED(*rank.status) && rank.last_line.empty() && *rank.status == *processes_[0].status;
  }

  int Report() const {
    if (!failed_) return WEXITSTATUS(*processes_[0].status);
    const std::ptrdiff_t rank = OnlyFollowed(processes_[*failed_]) ? 0 : *failed_;
    const Process& first = processes_[rank];
    std::fprintf(stderr, "onnxtrain: launch: rank %d %s%s%s\n", static_cast<int>(rank), DescribeEnd(first).c_str(),
                 first.last_line.empty() ? "" : ": ", first.last_line.c_str());
    return WIFEXITED(*first.status) ? WEXITSTATUS(*first.status) : static_cast<int>(kFailed);
  }

  MeetingFolder folder_;
  std::vector<Process> processes_;        // by rank
  std::optional<std::ptrdiff_t> failed_;  // the first rank that failed
  Clock::time_point deadline_;
};

}  // namespace

std::string LaunchHelp() {
  return "onnxtrain launch --nproc N -- FLAGS: trains one model with N processes (ranks) on this machine\n\n"
         "  --nproc N    Ranks to start; they divide the CPUs that this process may use\n"
         "  --           What follows are the flags of train, for every rank\n\n"
         "Each rank computes its share of every global batch (--batch-size); the trained model is that of one "
         "process.\n"
         "Rank 0 prints and writes the run; rank R logs to OUT/rank-R.log. Signals go to all ranks. When a rank dies,\n"
         "all end, and the exit code and the last line of the first one that failed are reported. On several machines\n"
         "start the ranks with torchrun --no-python, srun or mpirun: the same variables are read.\n";
}

absl::StatusOr<int> RunLaunch(const std::vector<std::string>& words) {
  ASSIGN_OR_RETURN(const LaunchPlan plan, ParseLaunch(words));
  return Launcher().Run(plan);
}

}  // namespace onnxtrain::cli
