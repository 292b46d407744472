// The way of a generated kernel to a GPU, with a recording fake of the driver; and NVIDIA's compiler, where it is
// installed.
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "backends/torch/fuse/gpu_compiler.h"
#include "frontend/base/machine.h"
#include "frontend/base/strings.h"
#include "frontend/ops/builder.h"
#include "tests/ops/cases/cases.h"

namespace onnxtrain::aten {
namespace {

// What drivers were asked for.
struct Log {
  struct Launched {
    std::string function;
    unsigned blocks, threads;
    std::vector<void*> arguments;
  };
  std::vector<std::string> loaded;
  std::set<std::string> functions;
  std::vector<Launched> launched;
  std::string refused;
};

class FakeDriver : public GpuDriver {
 public:
  explicit FakeDriver(Log* log) : log_(*log) {}

  absl::StatusOr<void*> LoadModule(const std::string& module) override {
    log_.loaded.push_back(module);
    if (module == log_.refused) return absl::InvalidArgumentError("no module");
    return &log_;
  }
  absl::StatusOr<void*> FindFunction(void*, const std::string& name) override {
    return const_cast<std::string*>(&*log_.functions.insert(name).first);
  }
  absl::Status Launch(void* function, unsigned blocks, unsigned threads, std::span<void* const> arguments) override {
    log_.launched.push_back(
        {*static_cast<std::string*>(function), blocks, threads, {arguments.begin(), arguments.end()}});
    return absl::OkStatus();
  }

 private:
  Log& log_;
};

class FakeCompiler : public SourceCompiler {
 public:
  explicit FakeCompiler(std::atomic<int>* calls, std::string version = "1")
      : calls_(calls), version_(std::move(version)) {}
  std::string version() const override { return version_; }
  absl::StatusOr<std::string> Compile(const std::string& source) const override {
    ++*calls_;
    if (source.find("broken") != std::string::npos) return absl::InternalError("line 1: broken");
    return StrCat("cubin ", version_);
  }

 private:
  std::atomic<int>* calls_;
  std::string version_;
};

GeneratedKernel MakeKernel(std::string source) {
  return {.source = std::move(source),
          .launches = {{.function = "a", .blocks = 3, .threads = 64}, {.function = "a_columns", .threads = 256}}};
}

class GpuCompiler : public testing::Test {
 protected:
  GpuCompiler() { std::filesystem::remove_all(parent_); }
  ~GpuCompiler() override { std::filesystem::remove_all(parent_); }

  std::unique_ptr<KernelCompiler> Make(std::string version = "1") {
    return MakeGpuCompiler(std::make_unique<FakeCompiler>(&calls_, version), CubinCache(folder_),
                           std::make_unique<FakeDriver>(&driver_));
  }
  // Each overwritten by `text`.
  void OverwriteFiles(const std::string& text) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) std::ofstream(entry.path()) << text;
  }

  const std::string parent_ = StrCat(testing::TempDir(), "/onnxtrain_cubins_", getpid());
  const std::string folder_ = parent_ + "/kernels";
  std::atomic<int> calls_ = 0;
  Log driver_;
};

TEST_F(GpuCompiler, LaunchesInOrder) {
  const auto compiler = Make();
  const auto kernel = compiler->Compile(MakeKernel("s"));
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  int x = 0;
  void* pointers[] = {&x, nullptr};
  ASSERT_TRUE((*kernel)->Launch(pointers, /*blocks=*/0).ok());
  ASSERT_EQ(driver_.launched.size(), 2u);
  EXPECT_EQ(driver_.launched[0].function, "a");
  EXPECT_EQ(driver_.launched[0].blocks, 3u);
  EXPECT_EQ(driver_.launched[0].threads, 64u);
  EXPECT_EQ(driver_.launched[0].arguments, std::vector<void*>(pointers, pointers + 2));
  EXPECT_EQ(driver_.launched[1].function, "a_columns");
}

TEST_F(GpuCompiler, CompilesEqualSourcesOnce) {
  const auto compiler = Make();
  EXPECT_EQ(*compiler->Compile(MakeKernel("s")), *compiler->Compile(MakeKernel("s")));
  EXPECT_EQ(calls_, 1);
  EXPECT_TRUE(compiler->Compile(MakeKernel("t")).ok());
  EXPECT_EQ(calls_, 2);
}

TEST_F(GpuCompiler, CompilesAllBeforeTheyAreLoaded) {
  const std::vector<GeneratedKernel> kernels = {MakeKernel("s"), MakeKernel("t"), MakeKernel("s"),
                                                MakeKernel("broken")};
  for (const std::string& folder : {folder_, std::string()}) {  // also without a cache on disk
    const auto compiler = MakeGpuCompiler(std::make_unique<FakeCompiler>(&calls_), CubinCache(folder),
                                          std::make_unique<FakeDriver>(&driver_));
    calls_ = 0;
    EXPECT_TRUE(compiler->CompileAll(kernels).ok());
    EXPECT_EQ(calls_, 3);
    EXPECT_TRUE(compiler->CompileAll(std::span(kernels).first(3)).ok());
    EXPECT_TRUE(compiler->Compile(MakeKernel("s")).ok());
    EXPECT_TRUE(compiler->Compile(MakeKernel("t")).ok());
    EXPECT_EQ(calls_, 3);
    EXPECT_FALSE(compiler->Compile(MakeKernel("broken")).ok()) << "the error is that of Compile";
  }
}

// Waits until another thread compiles, too.
class MeetingCompiler : public SourceCompiler {
 public:
  std::string version() const override { return "1"; }
  absl::StatusOr<std::string> Compile(const std::string& source) const override {
    ++inside_;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (inside_ < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return inside_ < 2 ? absl::StatusOr<std::string>(absl::InternalError("alone")) : source;
  }

 private:
  mutable std::atomic<int> inside_ = 0;
};

TEST_F(GpuCompiler, CompilesByThreads) {
  if (CpuCount() < 2) GTEST_SKIP() << "one CPU";
  const auto compiler =
      MakeGpuCompiler(std::make_unique<MeetingCompiler>(), CubinCache(""), std::make_unique<FakeDriver>(&driver_));
  const std::vector<GeneratedKernel> kernels = {MakeKernel("s"), MakeKernel("t")};
  ASSERT_TRUE(compiler->CompileAll(kernels).ok());
  for (const GeneratedKernel& kernel : kernels) EXPECT_TRUE(compiler->Compile(kernel).ok());
  EXPECT_EQ(driver_.loaded, (std::vector<std::string>{"s", "t"}));
}

TEST_F(GpuCompiler, KeepsModulesOnDisk) {
  ASSERT_TRUE(Make()->Compile(MakeKernel("s")).ok());
  ASSERT_TRUE(Make()->Compile(MakeKernel("s")).ok());
  EXPECT_EQ(calls_, 1);
  ASSERT_TRUE(Make("2")->Compile(MakeKernel("s")).ok());  // of another compiler or architecture
  EXPECT_EQ(calls_, 2);
  EXPECT_EQ(driver_.loaded.back(), "cubin 2");
}

TEST_F(GpuCompiler, CompilesAgainWhereTheFileIsDamaged) {
  for (const std::string& damage : std::vector<std::string>{"", "cubin", StrCat(std::string(64, '0'), "cubin 1")}) {
    ASSERT_TRUE(Make()->Compile(MakeKernel("s")).ok());
    const int before = calls_;
    OverwriteFiles(damage);
    ASSERT_TRUE(Make()->Compile(MakeKernel("s")).ok());
    EXPECT_EQ(calls_, before + 1) << damage;
    EXPECT_EQ(driver_.loaded.back(), "cubin 1");
  }
}

// A driver older than the compiler that filled the cache, say.
TEST_F(GpuCompiler, CompilesAgainWhereTheDriverRefusesTheFile) {
  ASSERT_TRUE(Make()->Compile(MakeKernel("s")).ok());
  driver_.refused = "cubin 1";
  EXPECT_FALSE(Make()->Compile(MakeKernel("s")).ok());
  EXPECT_EQ(calls_, 2);
}

TEST_F(GpuCompiler, WorksWithoutAFolder) {
  std::ofstream(parent_) << "a file";
  EXPECT_TRUE(Make()->Compile(MakeKernel("s")).ok());
  const auto compiler =
      MakeGpuCompiler(std::make_unique<FakeCompiler>(&calls_), CubinCache(""), std::make_unique<FakeDriver>(&driver_));
  EXPECT_TRUE(compiler->Compile(MakeKernel("s")).ok());
}

TEST_F(GpuCompiler, ReportsTheCompilersMessage) {
  const auto kernel = Make()->Compile(MakeKernel("broken"));
  EXPECT_EQ(kernel.status().message(), "line 1: broken");
}

TEST_F(GpuCompiler, RefusesTooManyBlocks) {
  GeneratedKernel kernel = MakeKernel("s");
  kernel.launches[0].blocks = int64_t{1} << 31;
  EXPECT_FALSE(Make()->Compile(kernel).ok());
}

TEST(CubinCache, FollowsXdg) {
  setenv("XDG_CACHE_HOME", "/somewhere", 1);
  EXPECT_EQ(CubinCache::DefaultFolder(), "/somewhere/onnxtrain/kernels");
  setenv("XDG_CACHE_HOME", "relative", 1);  // to be ignored, by the specification
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(CubinCache::DefaultFolder(), "/home/me/.cache/onnxtrain/kernels");
}

// Every operator: float64 to PTX for an old architecture, float32 to machine code for a new one.
TEST(Nvrtc, CompilesEveryOperator) {
  for (const bool wide : {true, false}) {
    const auto compiler = LoadNvrtc(wide ? 75 : 90, {}, /*ptx=*/wide);
    if (!compiler.ok()) GTEST_SKIP() << "NOT RUN: " << compiler.status().message();
    std::set<std::string> compiled;
    for (const cases::Case& c : cases::AllCases()) {
      const auto kernel = GenerateKernel(cases::MakeGraph(c, wide), 64);
      if (!kernel.ok() || !compiled.insert(c.op).second) continue;
      const auto module = (*compiler)->Compile(kernel->source);
      ASSERT_TRUE(module.ok()) << c.name << ": " << module.status() << kernel->source;
      EXPECT_NE(module->find(kernel->launches[0].function), std::string::npos) << c.name;
    }
    EXPECT_GT(compiled.size(), 60u);
  }
}

// Conversions of half precision are instructions of the architecture.
TEST(Nvrtc, CompilesHalves) {
  for (const int architecture : {75, 90}) {
    const auto compiler = LoadNvrtc(architecture, {});
    if (!compiler.ok()) GTEST_SKIP() << "NOT RUN: " << compiler.status().message();
    for (const DType half : {DType::kBFloat16, DType::kFloat16}) {
      Graph body;
      Builder b(&body);
      const Val x = b.Input(InputKind::kFeed, "x", {half, {512, 768}}),
                s = b.Input(InputKind::kFeed, "s", {half, {768}});
      const Val key = b.Input(InputKind::kFeed, "key", {DType::kUInt32, {4}});
      const Val dropped = b.Op("Dropout", {x, key}, {{"ratio", 0.1}, {"stream", int64_t{1}}});
      const std::vector<Val> y = b.Ops("LayerNorm", {dropped + x, s, s}, {{"axis", int64_t{1}}});
      for (size_t i = 0; i < y.size(); ++i) body.AddOutput(StrCat("y", i), y[i].id());
      body.AddOutput("sum", ReduceSum(y[0], {0}).id());
      const auto kernel = GenerateKernel(body, 64);
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      EXPECT_NE(kernel->source.find(StrCat("Load<8, ", half == DType::kFloat16 ? "f16" : "bf16")), std::string::npos);
      const auto module = (*compiler)->Compile(kernel->source);
      EXPECT_TRUE(module.ok()) << module.status() << kernel->source;
    }
  }
}

}  // namespace
}  // namespace onnxtrain::aten
