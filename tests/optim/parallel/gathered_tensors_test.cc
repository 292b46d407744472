// What rank 0 gathers is in a file that has no name and takes no memory.
#include "optim/parallel/gathered_tensors.h"

#include <cstdio>

#include "backends/registry.h"
#include "frontend/onnx/read/file.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

constexpr int64_t kElements = 1 << 18;

// Of the mapping that holds these bytes.
size_t ResidentPages(std::span<const std::byte> bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  FILE* maps = std::fopen("/proc/self/smaps", "r");
  char line[512];
  size_t resident = 0, from = 0, to = 0;
  while (std::fgets(line, sizeof(line), maps) != nullptr) {
    size_t kib = 0;
    if (std::sscanf(line, "%zx-%zx ", &from, &to) == 2) continue;
    if (begin >= from && begin < to && std::sscanf(line, "Rss: %zu", &kib) == 1) resident = kib / 4;
  }
  std::fclose(maps);
  return resident;
}

class GatheredTensorsTest : public Scratch {
 protected:
  std::shared_ptr<GatheredTensors> Make(const std::string& folder) {
    auto tensors = std::make_shared<GatheredTensors>();
    tensors->Add("a", {DType::kFloat32, {3}});
    tensors->Add("b", {DType::kFloat32, {kElements}});
    EXPECT_TRUE(tensors->Allocate(*backend_, folder, "tensors").ok());
    return tensors;
  }
  static void Write(const GatheredTensors& tensors) {
    const HostTensor value = HostTensor::Filled({DType::kFloat32, {kElements}}, 7);
    ASSERT_TRUE(WriteRegion(tensors.At("b"), value).ok());
  }

  std::unique_ptr<Backend> backend_ = CreateBackend("cpu", {.threads = 1}).value();
};

TEST_F(GatheredTensorsTest, AreWhatIsWritten) {
  for (const std::string& folder : {folder_, std::string(), Path("missing")}) {
    const auto tensors = Make(folder);
    EXPECT_FALSE(tensors->Has("c"));
    const HostTensor a = GatheredTensors::View(tensors, "a"), b = GatheredTensors::View(tensors, "b");
    EXPECT_EQ(b.At(kElements - 1), 0);
    Write(*tensors);
    EXPECT_EQ(a.ToDoubles(), std::vector<double>(3, 0));
    EXPECT_EQ(b.At(0), 7);
    EXPECT_EQ(b.At(kElements - 1), 7);
    EXPECT_EQ(ReadRegion(tensors->At("b"))->At(kElements / 2), 7);
  }
}

TEST_F(GatheredTensorsTest, LieInAFileWithoutAName) {
  const auto tensors = Make(folder_);
  Write(*tensors);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  const HostTensor b = GatheredTensors::View(tensors, "b");
  EXPECT_EQ(ResidentPages(b.bytes()), 0u);
  EXPECT_EQ(b.ToDoubles()[5], 7);
  EXPECT_GE(ResidentPages(b.bytes()), kElements * sizeof(float) / 4096);
  ReleaseMappedPages(b.bytes());
  EXPECT_EQ(ResidentPages(b.bytes()), 0u);
  EXPECT_EQ(b.At(kElements - 1), 7);
}

TEST_F(GatheredTensorsTest, OutliveTheirOwner) {
  HostTensor b;
  {
    const auto tensors = Make(folder_);
    Write(*tensors);
    b = GatheredTensors::View(tensors, "b");
  }
  EXPECT_EQ(b.At(3), 7);
}

}  // namespace
}  // namespace onnxtrain
