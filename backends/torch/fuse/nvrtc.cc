#include "backends/torch/fuse/nvrtc.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "backends/torch/find_symbol.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"

namespace onnxtrain::aten {
namespace {

// The C interface of NVRTC, which versions 11.1 to 13 share. 0 is success.
struct Api {
  using Program = void*;
  int (*version)(int* major, int* minor);
  int (*create)(Program*, const char* source, const char* name, int headers, const char* const*, const char* const*);
  int (*compile)(Program, int options, const char* const*);
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
  int (*result_size)(Program, size_t*);
  int (*result)(Program, char*);
  int (*destroy)(Program*);
};

constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

void* OpenLibrary(std::span<const std::string> folders) {
  std::vector<std::string> prefixes = {""};
  for (const std::string& folder : folders) prefixes.push_back(folder + "/");
  if (const char* home = std::getenv("CUDA_HOME")) prefixes.push_back(StrCat(home, "/lib64/"));
  prefixes.emplace_back("/usr/local/cuda/lib64/");
  for (const std::string& prefix : prefixes) {
    for (const char* name : kNames) {
      if (void* library = dlopen((prefix + name).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    }
  }
  return nullptr;
}

bool FindAll(void* library, bool ptx, Api* api) {
  return FindSymbol(library, "nvrtcVersion", &api->version) &&
         FindSymbol(library, "nvrtcCreateProgram", &api->create) &&
         FindSymbol(library, "nvrtcCompileProgram", &api->compile) &&
         FindSymbol(library, "nvrtcGetProgramLogSize", &api->log_size) &&
         FindSymbol(library, "nvrtcGetProgramLog", &api->log) &&
         FindSymbol(library, ptx ? "nvrtcGetPTXSize" : "nvrtcGetCUBINSize", &api->result_size) &&
         FindSymbol(library, ptx ? "nvrtcGetPTX" : "nvrtcGetCUBIN", &api->result) &&
         FindSymbol(library, "nvrtcDestroyProgram", &api->destroy);
}

class NvrtcCompiler : public SourceCompiler {
 public:
  NvrtcCompiler(const Api& api, int architecture, bool ptx)
      : api_(api), target_(StrCat(ptx ? "compute_" : "sm_", architecture)) {}

  std::string version() const override {
    int major = 0, minor = 0;
    api_.version(&major, &minor);
    return StrCat("nvrtc ", major, ".", minor, " ", target_);
  }

  absl::StatusOr<std::string> Compile(const std::string& source) const override {
    Api::Program program = nullptr;
    if (api_.create(&program, source.c_str(), "fused.cu", 0, nullptr, nullptr) != 0)
      return absl::InternalError("NVRTC takes no program");
    absl::StatusOr<std::string> result = CompileProgram(program);
    api_.destroy(&program);
    return result;
  }

 private:
  absl::StatusOr<std::string> CompileProgram(Api::Program program) const {
    const std::string target = StrCat("-arch=", target_);
    // Products and sums stay apart, as between kernels of single operators: recomputing a value gives the same bits.
    const char* options[] = {target.c_str(), "-std=c++17", "-fmad=false"};
    if (api_.compile(program, static_cast<int>(std::size(options)), options) != 0)
      return absl::InternalError(StrCat("NVRTC: ", Read(program, api_.log_size, api_.log)));
    std::string module = Read(program, api_.result_size, api_.result);
    if (module.empty()) return absl::InternalError("NVRTC compiles nothing for this architecture");
    return module;
  }

  static std::string Read(Api::Program program, int (*get_size)(Api::Program, size_t*),
                          int (*get)(Api::Program, char*)) {
    size_t size = 0;
    if (get_size(program, &size) != 0) return "";
    std::string bytes(size, '\0');
    return get(program, bytes.data()) == 0 ? bytes : "";
  }

  const Api api_;
  const std::string target_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SourceCompiler>> LoadNvrtc(int architecture, std::span<const std::string> folders,
                                                          bool ptx) {
  void* library = OpenLibrary(folders);  // never closed
  if (library == nullptr) return absl::UnavailableError("libnvrtc.so.13 or .12 is not installed");
  Api api{};
  if (!FindAll(library, ptx, &api)) return absl::UnavailableError("libnvrtc.so lacks a function");
  return std::make_unique<NvrtcCompiler>(api, architecture, ptx);
}

}  // namespace onnxtrain::aten
