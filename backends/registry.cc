#include "backends/registry.h"

#include <dlfcn.h>

#include <filesystem>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

constexpr std::string_view kKnown[] = {"cpu", "torch"};

std::filesystem::path CoreFolder() {
  Dl_info info;
  return dladdr(reinterpret_cast<void*>(&CoreFolder), &info) != 0 ? std::filesystem::path(info.dli_fname).parent_path()
                                                                  : std::filesystem::path(".");
}

std::filesystem::path GetLibraryPath(std::string_view name) {
  return CoreFolder() / StrCat("libonnxtrain_backend_", name, ".so");
}

absl::StatusOr<CreateBackendFn> Load(std::string_view name) {
  const std::filesystem::path path = GetLibraryPath(name);
  // Never closed: libtorch and OpenMP runtimes do not survive being unloaded.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::UnavailableError(StrCat("backend ", name, ": ", dlerror()));
  void* symbol = dlsym(library, "onnxtrain_create_backend");
  if (symbol == nullptr) return absl::UnavailableError(StrCat("backend ", name, ": ", path.string(), " is no backend"));
  return reinterpret_cast<CreateBackendFn>(symbol);
}

}  // namespace

std::vector<std::string> BackendNames() {
  std::vector<std::string> names;
  for (std::string_view name : kKnown) {
    if (std::filesystem::exists(GetLibraryPath(name))) names.emplace_back(name);
  }
  return names;
}

bool MayHaveGpu() { return std::filesystem::exists("/dev/nvidia0"); }

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(std::string_view name, const BackendOptions& options) {
  if (name == "auto") {
    const bool cuda_wanted = options.device.starts_with("cuda") || MayHaveGpu();
    if (cuda_wanted) {
      BackendOptions cuda = options;
      if (!cuda.device.starts_with("cuda")) cuda.device = "cuda:0";
      auto backend = CreateBackend("torch", cuda);
      if (backend.ok() || options.device.starts_with("cuda")) return backend;
    }
    return CreateBackend("cpu", options);
  }
  ASSIGN_OR_RETURN(CreateBackendFn create, Load(name));
  absl::Status status;
  std::unique_ptr<Backend> backend(create(options, &status));
  if (!status.ok()) return status;
  return backend;
}

}  // namespace onnxtrain
