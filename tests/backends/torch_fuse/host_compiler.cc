#include "host_compiler.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "tests/paths.h"

namespace onnxtrain::aten {
namespace {

using HostLaunch = void (*)(void* kernel, void* const* pointers, long blocks, unsigned threads);

class HostKernel : public CompiledKernel {
 public:
  HostKernel(void* library, std::vector<KernelLaunch> launches) : launches_(std::move(launches)) {
    launch_ = reinterpret_cast<HostLaunch>(dlsym(library, "onnxtrain_host_launch"));
    for (const KernelLaunch& launch : launches_) functions_.push_back(dlsym(library, launch.function.c_str()));
  }

  absl::Status Launch(std::span<void* const> pointers, int64_t blocks) override {
    for (size_t i = 0; i < launches_.size(); ++i) {
      if (functions_[i] == nullptr) return absl::InternalError(StrCat("no function ", launches_[i].function));
      launch_(functions_[i], pointers.data(), blocks == 0 ? launches_[i].blocks : blocks,
              static_cast<unsigned>(launches_[i].threads));
    }
    return absl::OkStatus();
  }

 private:
  std::vector<KernelLaunch> launches_;
  HostLaunch launch_;
  std::vector<void*> functions_;
};

absl::Status RunCompiler(const std::string& source, const std::string& library) {
  const std::string log = library + ".log";
  const std::string command = StrCat(ONNXTRAIN_CXX, " -std=c++17 -O0 -w -ffp-contract=off -fPIC -shared -o ", library,
                                     " ", source, " 2> ", log);
  if (std::system(command.c_str()) == 0) return absl::OkStatus();
  std::ifstream file(log);
  return absl::InternalError(StrCat(command, ": ", std::string(std::istreambuf_iterator<char>(file), {})));
}

// A new folder, removed with everything in it.
struct TemporaryFolder {
  TemporaryFolder() {
    path = (std::filesystem::temp_directory_path() / "onnxtrain_kernels_XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) path.clear();
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }

  std::string path;
};

}  // namespace

absl::Status HostCompiler::CompileAll(std::span<const GeneratedKernel> kernels) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/kernels.cc", library = folder.path + "/kernels.so";
  std::ofstream file(path);
  file << "#include \"" << RepoPath("tests/backends/torch_fuse/host_cuda.h") << "\"\n";
  std::map<std::string, const GeneratedKernel*> added;
  for (const GeneratedKernel& kernel : kernels) {
    if (kernels_.contains(kernel.source) || !added.emplace(kernel.source, &kernel).second) continue;
    file << "namespace in_" << kernel.launches[0].function << " {\n" << kernel.source << "}\n";
  }
  file.close();
  if (added.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(RunCompiler(path, library));
  void* loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) return absl::InternalError(dlerror());
  for (const auto& [source, kernel] : added) kernels_[source] = std::make_shared<HostKernel>(loaded, kernel->launches);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<CompiledKernel>> HostCompiler::Compile(const GeneratedKernel& kernel) {
  RETURN_IF_ERROR(CompileAll({&kernel, 1}));
  return kernels_.at(kernel.source);
}

}  // namespace onnxtrain::aten
