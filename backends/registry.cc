#include "backends/registry.h"

#include <filesystem>
#include <mutex>

#include "backends/collectives.h"
#include "backends/plugin/plugin_backend.h"
#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/plugin/library.h"

namespace onnxtrain {
namespace {

constexpr std::string_view kKnown[] = {"cpu", "torch"};
// The torch backend over a libtorch with CUDA, where one is installed beside the other.
constexpr std::string_view kTorchCuda = "torch_cuda";

std::filesystem::path GetLibraryPath(std::string_view name) {
  return LibraryFolder() / StrCat("libonnxtrain_backend_", name, ".so");
}

constexpr std::string_view kCommLibrary = "libonnxtrain_comm.so";

bool IsInstalled(std::string_view name) { return std::filesystem::exists(GetLibraryPath(name)); }

bool IsCuda(const BackendOptions& options) { return options.device.starts_with("cuda"); }

// Two libtorches share symbols that are unique in a process, so the first that is loaded stays the only one.
absl::StatusOr<std::string_view> ChooseLibtorch(const BackendOptions& options) {
  static std::mutex mutex;
  static std::string_view loaded;
  const std::lock_guard lock(mutex);
  const bool cuda = IsInstalled(kTorchCuda) && (IsCuda(options) || !IsInstalled("torch"));
  const std::string_view wanted = cuda ? kTorchCuda : "torch";
  if (loaded.empty()) loaded = wanted;
  if (loaded != wanted && IsCuda(options))
    return absl::UnavailableError(
        StrCat("device ", options.device, ": this process has loaded a libtorch without CUDA"));
  return loaded;
}

template <typename Function>
absl::StatusOr<Function> Load(const std::filesystem::path& path, const char* function, const std::string& what) {
  ASSIGN_OR_RETURN(void* symbol, FindSymbol(path.string(), function, what));
  if (symbol == nullptr) return absl::UnavailableError(StrCat(what, ": ", path.string(), " has no ", function));
  return reinterpret_cast<Function>(symbol);
}

}  // namespace

std::vector<std::string> BackendNames() {
  std::vector<std::string> names;
  for (std::string_view name : kKnown) {
    if (IsInstalled(name) || (name == "torch" && IsInstalled(kTorchCuda))) names.emplace_back(name);
  }
  return names;
}

bool IsPluginPath(std::string_view name) { return name.find('/') != name.npos || name.ends_with(".so"); }

bool MayHaveGpu() { return std::filesystem::exists("/dev/nvidia0"); }

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(std::string_view name, const BackendOptions& options) {
  if (name == "auto") {
    if (IsCuda(options) || MayHaveGpu()) {
      BackendOptions cuda = options;
      if (!IsCuda(options)) cuda.device = "cuda:0";
      auto backend = CreateBackend("torch", cuda);
      if (backend.ok() || IsCuda(options)) return backend;
    }
    return CreateBackend("cpu", options);
  }
  if (IsPluginPath(name)) {
    BackendOptions host = options;
    host.device = "cpu";
    ASSIGN_OR_RETURN(auto cpu, CreateBackend("cpu", host));
    return CreatePluginBackend(std::string(name), options, std::move(cpu));
  }
  if (name == "torch") {
    ASSIGN_OR_RETURN(name, ChooseLibtorch(options));
  }
  ASSIGN_OR_RETURN(const auto create,
                   Load<CreateBackendFn>(GetLibraryPath(name), "onnxtrain_create_backend", StrCat("backend ", name)));
  absl::Status status;
  std::unique_ptr<Backend> backend(create(options, &status));
  if (!status.ok()) return status;
  return backend;
}

absl::StatusOr<std::unique_ptr<Collectives>> CreateCollectives(const CollectivesOptions& options) {
  ASSIGN_OR_RETURN(const auto create, Load<CreateCollectivesFn>(LibraryFolder() / kCommLibrary,
                                                                "onnxtrain_create_collectives", "several ranks"));
  absl::Status status;
  std::unique_ptr<Collectives> ranks(create(options, &status));
  if (!status.ok()) return status;
  return ranks;
}

}  // namespace onnxtrain
