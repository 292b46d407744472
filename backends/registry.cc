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
// Name of the torch backend built with a CUDA libtorch, an optional second library.
constexpr std::string_view kTorchCuda = "torch_cuda";

std::filesystem::path GetLibraryPath(std::string_view name) {
  return LibraryFolder() / StrCat("libonnxtrain_backend_", name, ".so");
}

constexpr std::string_view kCommLibrary = "libonnxtrain_comm.so";

bool IsInstalled(std::string_view name) { return std::filesystem::exists(GetLibraryPath(name)); }

bool IsCuda(const BackendOptions& options) { return options.device.starts_with("cuda"); }

// Returns the torch library to load. A process can load only one libtorch, because they share symbols that must be
// unique, so the first choice is kept.
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
  if (!std::filesystem::exists(path))
    return absl::UnavailableError(StrCat(what, ": ", path.filename().string(), " is not part of this installation in ",
                                         path.parent_path().string(), "; a build from source has it"));
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
