#include "backends/torch/fuse/gpu_compiler.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "backends/torch/find_symbol.h"
#include "frontend/base/files.h"
#include "frontend/base/log.h"
#include "frontend/base/machine.h"
#include "frontend/base/sha256.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"

namespace onnxtrain::aten {
namespace {

constexpr int64_t kMostBytes = 64 << 20;  // maximum size of a cached file
constexpr size_t kDigestBytes = 64;

std::string Digest(std::string_view bytes) { return Sha256Hex(std::as_bytes(std::span(bytes))); }

}  // namespace

std::string CubinCache::DefaultFolder() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (cache != nullptr && *cache == '/') return StrCat(cache, "/onnxtrain/kernels");
  return home != nullptr && *home == '/' ? StrCat(home, "/.cache/onnxtrain/kernels") : "";
}

std::string CubinCache::GetPath(const std::string& key) const { return StrCat(folder_, "/", key, ".cubin"); }

std::optional<std::string> CubinCache::Find(const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  const auto file = ReadTextFile(GetPath(key), kMostBytes);
  if (!file.ok() || file->size() < kDigestBytes) return std::nullopt;
  const std::string bytes = file->substr(kDigestBytes);
  return file->compare(0, kDigestBytes, Digest(bytes)) == 0 ? std::optional(bytes) : std::nullopt;
}

void CubinCache::Store(const std::string& key, const std::string& bytes) const {
  if (folder_.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  WriteTextFile(GetPath(key), Digest(bytes) + bytes).IgnoreError();
}

namespace {

// Functions of libcuda.so.1, whose interface has not changed since CUDA 4. They return 0 on success.
struct DriverApi {
  int (*load)(void** module, const void* image);
  int (*find)(void** function, void* module, const char* name);
  int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                unsigned block_z, unsigned shared_bytes, void* stream, void** arguments, void** extra);
  int (*error)(int code, const char** text);
  int (*get_context)(void** context);
  int (*set_context)(void* context);
};

class CudaDriver : public GpuDriver {
 public:
  CudaDriver(const DriverApi& api, std::function<void*()> current_stream)
      : api_(api), current_stream_(std::move(current_stream)) {}

  absl::StatusOr<void*> LoadModule(const std::string& module) override {
    void* loaded = nullptr;
    RETURN_IF_ERROR(Check(api_.get_context(&context_), "asking for the context"));
    RETURN_IF_ERROR(Check(api_.load(&loaded, module.data()), "loading a generated kernel"));
    return loaded;
  }

  absl::StatusOr<void*> FindFunction(void* module, const std::string& name) override {
    void* function = nullptr;
    RETURN_IF_ERROR(Check(api_.find(&function, module, name.c_str()), name));
    return function;
  }

  absl::Status Launch(void* function, unsigned blocks, unsigned threads, std::span<void* const> argument) override {
    RETURN_IF_ERROR(EnterContext());
    void* arguments[] = {const_cast<void**>(argument.data())};
    return Check(api_.launch(function, blocks, 1, 1, threads, 1, 1, 0, current_stream_(), arguments, nullptr),
                 "starting a generated kernel");
  }

 private:
  // Makes the context current on a thread that has none because it has not called the CUDA runtime yet.
  absl::Status EnterContext() {
    void* current = nullptr;
    RETURN_IF_ERROR(Check(api_.get_context(&current), "asking for the context"));
    return current == context_ ? absl::OkStatus() : Check(api_.set_context(context_), "entering the context");
  }

  absl::Status Check(int code, std::string_view what) const {
    if (code == 0) return absl::OkStatus();
    const char* text = nullptr;
    api_.error(code, &text);
    constexpr int kOutOfMemory = 2;
    const std::string message = StrCat(what, ": ", text == nullptr ? "unknown error" : text);
    return code == kOutOfMemory ? absl::ResourceExhaustedError(message) : absl::InternalError(message);
  }

  const DriverApi api_;
  const std::function<void*()> current_stream_;
  void* context_ = nullptr;  // context in which modules are loaded
};

}  // namespace

absl::StatusOr<std::unique_ptr<GpuDriver>> LoadGpuDriver(std::function<void*()> current_stream) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // never closed
  if (library == nullptr) return absl::UnavailableError("there is no NVIDIA driver (libcuda.so.1)");
  DriverApi api{};
  const bool complete =
      FindSymbol(library, "cuModuleLoadData", &api.load) && FindSymbol(library, "cuModuleGetFunction", &api.find) &&
      FindSymbol(library, "cuLaunchKernel", &api.launch) && FindSymbol(library, "cuGetErrorString", &api.error) &&
      FindSymbol(library, "cuCtxGetCurrent", &api.get_context) &&
      FindSymbol(library, "cuCtxSetCurrent", &api.set_context);
  if (!complete) return absl::UnavailableError("libcuda.so.1 lacks a function");
  return std::make_unique<CudaDriver>(api, std::move(current_stream));
}

namespace {

// Functions of NVRTC, whose interface is the same in versions 11.1 to 13. They return 0 on success.
struct NvrtcApi {
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

bool FindAll(void* library, bool ptx, NvrtcApi* api) {
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
  NvrtcCompiler(const NvrtcApi& api, int architecture, bool ptx)
      : api_(api), target_(StrCat(ptx ? "compute_" : "sm_", architecture)) {}

  std::string version() const override {
    int major = 0, minor = 0;
    api_.version(&major, &minor);
    return StrCat("nvrtc ", major, ".", minor, " ", target_);
  }

  absl::StatusOr<std::string> Compile(const std::string& source) const override {
    NvrtcApi::Program program = nullptr;
    if (api_.create(&program, source.c_str(), "fused.cu", 0, nullptr, nullptr) != 0)
      return absl::InternalError("NVRTC takes no program");
    absl::StatusOr<std::string> result = CompileProgram(program);
    api_.destroy(&program);
    return result;
  }

 private:
  absl::StatusOr<std::string> CompileProgram(NvrtcApi::Program program) const {
    const std::string target = StrCat("-arch=", target_);
    // Multiplications and additions are not contracted, as between kernels of single operators, so that a recomputed
    // value has the same bits.
    const char* options[] = {target.c_str(), "-std=c++17", "-fmad=false"};
    if (api_.compile(program, static_cast<int>(std::size(options)), options) != 0)
      return absl::InternalError(StrCat("NVRTC: ", Read(program, api_.log_size, api_.log)));
    std::string module = Read(program, api_.result_size, api_.result);
    if (module.empty()) return absl::InternalError("NVRTC compiles nothing for this architecture");
    return module;
  }

  static std::string Read(NvrtcApi::Program program, int (*get_size)(NvrtcApi::Program, size_t*),
                          int (*get)(NvrtcApi::Program, char*)) {
    size_t size = 0;
    if (get_size(program, &size) != 0) return "";
    std::string bytes(size, '\0');
    return get(program, bytes.data()) == 0 ? bytes : "";
  }

  const NvrtcApi api_;
  const std::string target_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SourceCompiler>> LoadNvrtc(int architecture, std::span<const std::string> folders,
                                                          bool ptx) {
  void* library = OpenLibrary(folders);  // never closed
  if (library == nullptr) return absl::UnavailableError("libnvrtc.so.13 or .12 is not installed");
  NvrtcApi api{};
  if (!FindAll(library, ptx, &api)) return absl::UnavailableError("libnvrtc.so lacks a function");
  return std::make_unique<NvrtcCompiler>(api, architecture, ptx);
}

namespace {

struct PreparedLaunch {
  void* function;
  unsigned blocks, threads;
};

class GpuKernel : public CompiledKernel {
 public:
  GpuKernel(GpuDriver* driver, std::vector<PreparedLaunch> launches)
      : driver_(driver), launches_(std::move(launches)) {}

  absl::Status Launch(std::span<void* const> pointers, int64_t blocks) override {
    for (const PreparedLaunch& launch : launches_) {
      const unsigned count = blocks == 0 ? launch.blocks : static_cast<unsigned>(blocks);
      RETURN_IF_ERROR(driver_->Launch(launch.function, count, launch.threads, pointers));
    }
    return absl::OkStatus();
  }

 private:
  GpuDriver* driver_;
  std::vector<PreparedLaunch> launches_;
};

using Modules = std::map<std::string, absl::StatusOr<std::string>>;  // by key

Modules CompileByThreads(const SourceCompiler& compiler, const std::map<std::string, std::string>& sources) {
  Modules modules;
  std::mutex mutex;
  auto next = sources.begin();
  const auto work = [&] {
    std::unique_lock lock(mutex);
    while (next != sources.end()) {
      const auto& [key, source] = *next++;
      lock.unlock();
      absl::StatusOr<std::string> module = compiler.Compile(source);
      lock.lock();
      modules.emplace(key, std::move(module));
    }
  };
  std::vector<std::jthread> threads(std::min<size_t>(CpuCount(), sources.size()));
  for (std::jthread& thread : threads) thread = std::jthread(work);
  threads.clear();  // joins
  return modules;
}

class GpuCompiler : public KernelCompiler {
 public:
  GpuCompiler(std::unique_ptr<SourceCompiler> compiler, CubinCache cache, std::unique_ptr<GpuDriver> driver)
      : compiler_(std::move(compiler)), cache_(std::move(cache)), driver_(std::move(driver)) {}

  absl::StatusOr<std::shared_ptr<CompiledKernel>> Compile(const GeneratedKernel& kernel) override {
    std::shared_ptr<CompiledKernel>& known = kernels_[kernel.source];
    if (known == nullptr) {
      ASSIGN_OR_RETURN(known, Load(kernel));
    }
    return known;
  }

  absl::Status CompileAll(std::span<const GeneratedKernel> kernels) override {
    std::map<std::string, std::string> missing;  // sources by key
    for (const GeneratedKernel& kernel : kernels) {
      const std::string key = GetKey(kernel.source);
      if (!kernels_.contains(kernel.source) && !modules_.contains(key) && !cache_.Find(key))
        missing.emplace(key, kernel.source);
    }
    for (auto& [key, module] : CompileByThreads(*compiler_, missing)) {
      if (!module.ok()) continue;
      cache_.Store(key, *module);
      modules_.emplace(key, *std::move(module));
    }
    return absl::OkStatus();
  }

 private:
  std::string GetKey(const std::string& source) const {
    const std::string text = StrCat(compiler_->version(), "\n", source);
    return Sha256Hex(std::as_bytes(std::span<const char>(text)));
  }

  absl::StatusOr<std::shared_ptr<CompiledKernel>> Load(const GeneratedKernel& kernel) {
    ASSIGN_OR_RETURN(void* module, LoadModule(kernel.source));
    std::vector<PreparedLaunch> launches;
    for (const KernelLaunch& launch : kernel.launches) {
      if (launch.blocks > std::numeric_limits<int32_t>::max())
        return absl::UnimplementedError("a kernel of more than 2^31 blocks");
      ASSIGN_OR_RETURN(void* function, driver_->FindFunction(module, launch.function));
      launches.push_back({function, static_cast<unsigned>(launch.blocks), static_cast<unsigned>(launch.threads)});
    }
    return std::make_shared<GpuKernel>(driver_.get(), std::move(launches));
  }

  // Loads the module of a source. Compiles it again if the driver refuses the cached one.
  absl::StatusOr<void*> LoadModule(const std::string& source) {
    const std::string key = GetKey(source);
    if (auto known = modules_.extract(key)) return driver_->LoadModule(known.mapped());
    if (const auto cached = cache_.Find(key)) {
      if (auto module = driver_->LoadModule(*cached); module.ok()) return module;
    }
    ASSIGN_OR_RETURN(const std::string module, compiler_->Compile(source));
    cache_.Store(key, module);
    return driver_->LoadModule(module);
  }

  const std::unique_ptr<SourceCompiler> compiler_;
  const CubinCache cache_;
  const std::unique_ptr<GpuDriver> driver_;
  std::map<std::string, std::shared_ptr<CompiledKernel>> kernels_;  // by source
  std::map<std::string, std::string> modules_;                      // by key; compiled by CompileAll and not yet loaded
};

}  // namespace

std::unique_ptr<KernelCompiler> MakeGpuCompiler(std::unique_ptr<SourceCompiler> compiler, CubinCache cache,
                                                std::unique_ptr<GpuDriver> driver) {
  return std::make_unique<GpuCompiler>(std::move(compiler), std::move(cache), std::move(driver));
}

absl::StatusOr<std::unique_ptr<KernelCompiler>> LoadGpuCompiler(int architecture, std::span<const std::string> folders,
                                                                std::function<void*()> current_stream) {
  ASSIGN_OR_RETURN(auto driver, LoadGpuDriver(std::move(current_stream)));
  ASSIGN_OR_RETURN(auto compiler, LoadNvrtc(architecture, folders));
  RETURN_IF_ERROR(compiler->Compile("extern \"C\" __global__ void probe() {}").status());
  return MakeGpuCompiler(std::move(compiler), CubinCache(CubinCache::DefaultFolder()), std::move(driver));
}

KernelCompiler* ReleaseOrWarn(absl::StatusOr<std::unique_ptr<KernelCompiler>> compiler) {
  if (compiler.ok()) return compiler->release();
  LOG(WARNING) << "operators are not fused on the GPU: " << compiler.status().message();
  return nullptr;
}

}  // namespace onnxtrain::aten
