// Every truncation and every changed bit of a checkpoint is found, and an older one is used.
#include "optim/checkpoint/checkpoint_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "frontend/base/strings.h"
#include "frontend/data/file.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

class CheckpointFolderTest : public Scratch {
 protected:
  static std::pair<std::string, HostTensor> Source(const std::string& name, int64_t elements, float value) {
    return {name, HostTensor::Filled({DType::kFloat32, {elements}}, value)};
  }
  CheckpointContent Content(int64_t step) const {
    const auto value = static_cast<float>(step);
    return {.step = step,
            .model = {Source("w", 30, value), Source("b", 1, -value)},
            .optimizer = {Source("$m:w", 30, 0.5f * value)},
            .state = StrCat("{\"step\":", step, "}\n"),
            .compressed = compressed_};
  }
  std::vector<std::string> Files() const {
    const std::string suffix = compressed_ ? ".zst" : "";
    return {"MANIFEST.json", "state.json", "model.safetensors" + suffix, "optimizer.safetensors" + suffix};
  }
  void Write(std::initializer_list<int64_t> steps) {
    auto folder = CheckpointFolder::Open(Path("c"));
    ASSERT_TRUE(folder.ok()) << folder.status();
    for (const int64_t step : steps) {
      const absl::Status written = (*folder)->Write(Content(step));
      ASSERT_TRUE(written.ok()) << written;
    }
  }
  // The step of the newest valid checkpoint; -1: none.
  int64_t Newest(std::vector<std::string>* skipped = nullptr) const {
    std::vector<std::string> ignored;
    const auto found = OpenNewestCheckpoint(Path("c"), skipped == nullptr ? &ignored : skipped);
    return found.ok() ? found->step : -1;
  }
  void FindEveryTruncation();
  void FindEveryFlippedBit();

  bool compressed_ = false;
};

TEST_F(CheckpointFolderTest, ReadsWhatItWrote) {
  Write({3, 12});
  EXPECT_EQ(ListCheckpoints(Path("c")), (std::vector<int64_t>{3, 12}));
  EXPECT_EQ(fs::read_symlink(Path("c/latest")).string(), "step-00000012");
  const auto checkpoint = OpenCheckpoint(Path("c/step-00000003"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->step, 3);
  EXPECT_EQ(checkpoint->state, "{\"step\":3}\n");
  const auto model = ReadModelTensors(*checkpoint);
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ(model->size(), 2u);
  EXPECT_EQ((*model)[0].first, "w");
  EXPECT_EQ((*model)[0].second.At(29), 3);
  const auto optimizer = ReadOptimizerTensors(*checkpoint);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  EXPECT_EQ((*optimizer)[0].second.At(7), 1.5);
}

TEST_F(CheckpointFolderTest, ReplacesOneOfTheSameStep) {
  Write({3});
  WriteAll(Path("c/step-00000003/state.json"), "damaged");
  EXPECT_EQ(Newest(), -1);
  Write({3});
  EXPECT_EQ(Newest(), 3);
  for (const auto& entry : fs::directory_iterator(Path("c")))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp-")) << entry.path();
}

void CheckpointFolderTest::FindEveryTruncation() {
  Write({1, 2});
  for (const std::string& name : Files()) {
    const std::string path = Path(StrCat("c/step-00000002/", name)), whole = ReadAll(path);
    for (size_t size = 0; size < whole.size(); ++size) {
      WriteAll(path, whole.substr(0, size));
      ASSERT_FALSE(OpenCheckpoint(Path("c/step-00000002")).ok())
          << name << " with " << size << " of " << whole.size() << " bytes";
    }
    WriteAll(path, whole + " ");
    ASSERT_EQ(Newest(), 1) << name << " with a byte more";
    fs::remove(path);
    ASSERT_EQ(Newest(), 1) << "without " << name;
    WriteAll(path, whole);
  }
  std::vector<std::string> skipped;
  EXPECT_EQ(Newest(&skipped), 2);
  EXPECT_TRUE(skipped.empty());
}

void CheckpointFolderTest::FindEveryFlippedBit() {
  Write({1, 2});
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    const std::string name = Files()[random() % Files().size()];
    const std::string path = Path(StrCat("c/step-00000002/", name)), whole = ReadAll(path);
    std::string flipped = whole;
    const size_t at = random() % whole.size(), bit = random() % 8;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
    WriteAll(path, flipped);
    ASSERT_FALSE(OpenCheckpoint(Path("c/step-00000002")).ok()) << name << ": bit " << bit << " of byte " << at;
    WriteAll(path, whole);
  }
  EXPECT_EQ(Newest(), 2);
}

TEST_F(CheckpointFolderTest, FindsEveryTruncation) { FindEveryTruncation(); }
TEST_F(CheckpointFolderTest, FindsEveryFlippedBit) { FindEveryFlippedBit(); }

TEST_F(CheckpointFolderTest, FindsEveryTruncationOfCompressedFiles) {
  compressed_ = true;
  FindEveryTruncation();
}

TEST_F(CheckpointFolderTest, FindsEveryFlippedBitOfCompressedFiles) {
  compressed_ = true;
  FindEveryFlippedBit();
}

TEST_F(CheckpointFolderTest, CompressesTensors) {
  CheckpointContent content = Content(1);
  content.model[0] = Source("w", 3'000'000, 1);  // more than a chunk
  content.compressed = true;
  auto folder = CheckpointFolder::Open(Path("c"));
  ASSERT_TRUE((*folder)->Write(content).ok());
  const auto checkpoint = OpenCheckpoint(Path("c/step-00000001"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_LT(fs::file_size(Path("c/step-00000001/model.safetensors.zst")), 100'000);
  const auto model = ReadModelTensors(*checkpoint);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)[0].second.At(2'999'999), 1);
  EXPECT_EQ((*ReadOptimizerTensors(*checkpoint))[0].second.At(7), 0.5);
  // Unpacked, it is the file that is written without compression.
  auto packed = InputFile::Open(Path("c/step-00000001/model.safetensors.zst"));
  ASSERT_TRUE(packed.ok()) << packed.status();
  content.compressed = false;
  content.step = 2;
  ASSERT_TRUE((*folder)->Write(content).ok());
  const std::string plain = ReadAll(Path("c/step-00000002/model.safetensors"));
  EXPECT_EQ(*ReadAll(packed->reader(), int64_t{1} << 30), plain);
}

TEST_F(CheckpointFolderTest, RemovesWhatAKilledWriterLeft) {
  Write({1});
  fs::create_directories(Path("c/.tmp-step-00000002"));
  WriteAll(Path("c/.tmp-step-00000002/model.safetensors"), "half");
  EXPECT_EQ(Newest(), 1);
  ASSERT_TRUE(CheckpointFolder::Open(Path("c")).ok());
  EXPECT_FALSE(Exists("c/.tmp-step-00000002"));
}

TEST_F(CheckpointFolderTest, OtherNamesAreNoCheckpoints) {
  for (const char* name : {"step-7", "step-0000000x", "step-", "xstep-00000001", "step-00000001.old"})
    fs::create_directories(Path(StrCat("c/", name)));
  EXPECT_TRUE(ListCheckpoints(Path("c")).empty());
  EXPECT_TRUE(ListCheckpoints(Path("none")).empty());
}

}  // namespace
}  // namespace onnxtrain
