// The main function of onnxtrain: early signal handling, the handler of uncaught exceptions, and RunProgram.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>

#include "frontend/base/log.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/environment.h"

namespace onnxtrain::cli {
namespace {

// Runs before the constructors of the libraries, so that a signal right after the start is handled like a later one.
void CatchEarlySignals(int, char** argv, char**) {
  if (IsTrainCommand(argv[1])) CatchSignals();
}
__attribute__((section(".preinit_array"), used)) void (*const kFirst)(int, char**, char**) = CatchEarlySignals;

// Ends the process with one line if an exception leaves a thread.
[[noreturn]] void OnTerminate() {
  std::string what = "an unexpected error";
  try {
    if (const auto error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    what = "out of memory";
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
  }
  std::fprintf(stderr, "onnxtrain: failed: %s\n", OneLine(what).c_str());
  std::_Exit(kFailed);
}

}  // namespace
}  // namespace onnxtrain::cli

int main(int argc, char** argv) {
  FLAGS_logtostderr = true;
  FLAGS_minloglevel = google::WARNING;
  google::InitGoogleLogging(argv[0]);
  std::set_terminate(onnxtrain::cli::OnTerminate);
  onnxtrain::cli::IgnoreBrokenPipes();
  onnxtrain::cli::ReportTruncatedFiles();
  return onnxtrain::cli::RunProgram({argv + 1, argv + argc});
}
