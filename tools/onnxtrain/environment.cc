#include "tools/onnxtrain/environment.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "frontend/base/cancellation.h"
#include "frontend/onnx/read/mapped_file.h"
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

// Preparations that have not ended by now after a signal are cut off: nothing of them is worth saving. A step of
// training is not.
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

// A terminal or a job manager may signal the process and its group: signals at the same time count once.
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

// Reading on would give other numbers, and returning repeats the fault. Several threads may read.
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

}  // namespace onnxtrain::cli
