// onnx_conformance: runs folders of ONNX backend cases, or of ONNX's light models (run_case.h).
//
// One line for each case that fails or is not supported; the last line is "N passed, N failed, N unsupported".
// Exit code 0 unless a case failed (1) or there is nothing to run (2).
#include <gflags/gflags.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "backends/registry.h"
#include "frontend/base/status.h"
#include "tools/onnx_conformance/run_case.h"

DEFINE_string(cases, "", "folders of cases, separated by commas");
DEFINE_string(backend, "cpu", "cpu, torch, or host: the slow evaluation that the importer folds with");
DEFINE_string(device, "cpu", "cpu or cuda:N");
DEFINE_string(filter, "", "run only the cases whose name contains this");
DEFINE_bool(verbose, false, "a line for each passed case as well");

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> ChosenCases() {
  std::vector<fs::path> chosen;
  for (const std::string& folder : std::vector<std::string>(absl::StrSplit(FLAGS_cases, ',', absl::SkipEmpty()))) {
    const auto cases = FindCases(folder);
    if (!cases.ok()) std::fprintf(stderr, "%s\n", std::string(cases.status().message()).c_str());
    for (const fs::path& path : cases.ok() ? *cases : std::vector<fs::path>()) {
      if (path.stem().string().find(FLAGS_filter) != std::string::npos) chosen.push_back(path);
    }
  }
  return chosen;
}

int Main() {
  std::unique_ptr<Backend> backend;
  if (FLAGS_backend != "host") {
    auto created = CreateBackend(FLAGS_backend, {.device = FLAGS_device});
    if (!created.ok()) {
      std::fprintf(stderr, "%s\n", std::string(created.status().message()).c_str());
      return 2;
    }
    backend = *std::move(created);
  }
  int passed = 0, failed = 0, unsupported = 0;
  for (const fs::path& folder : ChosenCases()) {
    const absl::Status status = RunCase(folder, backend.get());
    int& count = status.ok() ? passed : absl::IsUnimplemented(status) ? unsupported : failed;
    ++count;
    const char* verdict = status.ok() ? "passed" : &count == &failed ? "failed" : "unsupported";
    if (!status.ok() || FLAGS_verbose) {
      std::string message(ToStd(status.message()));
      std::replace(message.begin(), message.end(), '\n', ' ');
      std::printf("%s %s: %s\n", verdict, folder.filename().c_str(), message.c_str());
      std::fflush(stdout);
    }
  }
  std::printf("%d passed, %d failed, %d unsupported\n", passed, failed, unsupported);
  return failed > 0 ? 1 : passed + unsupported == 0 ? 2 : 0;
}

}  // namespace
}  // namespace onnxtrain

int main(int argc, char** argv) {
  gflags::SetUsageMessage("onnx_conformance --cases DIR --backend cpu|torch|host");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return onnxtrain::Main();
}
