// Every truncation and every changed bit of a checkpoint is found, and an older one is used.
#include "optim/record/checkpoint/checkpoint_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "frontend/base/status.h"
#include "frontend/data/sources/file.h"
#include "optim/step/state.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

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
  // The part of a rank: rows of w and $m:w that it has by turns, and on rank 0 what is whole.
  CheckpointContent PartOf(CheckpointContent content, int rank) const {
    const bool leads = rank == 0;
    for (NamedArrays* tensors : {&content.model, &content.optimizer}) {
      for (const auto& [name, value] : *tensors) {
        if (leads) content.whole.push_back({name, tensors == &content.model, value.type()});
      }
      NamedArrays parts;
      for (const auto& [name, value] : *tensors) {
        const bool divided = value.size() > 1;
        const ElementRuns runs = divided ? ElementRuns{5 * rank, 5, 5 * ranks_} : AllElements(1);
        HostTensor part({DType::kFloat32, {divided ? value.size() / ranks_ : 1}});
        for (int64_t i = 0; i < part.size(); ++i)
          part.Set(i, value.At(runs.begin + i / runs.length * runs.stride + i % runs.length));
        if (divided || leads) parts.emplace_back(PartName(name, runs), std::move(part));
      }
      *tensors = std::move(parts);
    }
    if (!leads) content.state.clear();
    return content;
  }
  absl::Status WriteContent(CheckpointFolder& folder, const CheckpointContent& content) const {
    if (ranks_ == 1) return folder.Write(content);
    RETURN_IF_ERROR(folder.Begin(PartOf(content, 0)));
    std::vector<std::string> written;
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto seen = CheckpointFolder::OpenExisting(Path("c")).value();
      ASSIGN_OR_RETURN(written.emplace_back(), seen->WriteParts(PartOf(content, rank), rank, ranks_));
    }
    return folder.Complete(PartOf(content, 0), written);
  }
  std::vector<std::string> Files() const {
    const std::string suffix = compressed_ ? ".zst" : "";
    std::vector<std::string> files = {"MANIFEST.json", "state.json"};
    for (int rank = 0; rank < ranks_; ++rank) {
      const std::string part = ranks_ > 1 ? StrCat(".rank-", rank, "-of-", ranks_) : "";
      files.push_back(StrCat("model", part, ".safetensors", suffix));
      files.push_back(StrCat("optimizer", part, ".safetensors", suffix));
    }
    return files;
  }
  void Write(std::initializer_list<int64_t> steps) {
    auto folder = CheckpointFolder::Open(Path("c"));
    ASSERT_TRUE(folder.ok()) << folder.status();
    for (const int64_t step : steps) {
      const absl::Status written = WriteContent(**folder, Content(step));
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
  int ranks_ = 1;
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

TEST_F(CheckpointFolderTest, PartsMakeUpTheTensors) {
  for (const int ranks : {2, 3}) {
    for (const bool compressed : {false, true}) {
      ranks_ = ranks;
      compressed_ = compressed;
      CheckpointContent content = Content(7);
      for (int64_t i = 0; i < 30; ++i) content.model[0].second.Set(i, static_cast<double>(i));
      auto folder = CheckpointFolder::Open(Path("c"));
      const absl::Status written = WriteContent(**folder, content);
      ASSERT_TRUE(written.ok()) << written;
      const auto checkpoint = OpenCheckpoint(Path("c/latest"));
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
      EXPECT_EQ(checkpoint->state, content.state);
      const NamedArrays model = ReadModelTensors(*checkpoint).value(),
                        optimizer = ReadOptimizerTensors(*checkpoint).value();
      ASSERT_EQ(model.size(), 2u);
      for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(model[0].second.At(i), i);
      EXPECT_EQ(model[1].first, "b");
      EXPECT_EQ(model[1].second.At(0), -7);
      ASSERT_EQ(optimizer.size(), 1u);
      EXPECT_EQ(optimizer[0].second.At(29), 3.5);
    }
  }
}

TEST_F(CheckpointFolderTest, FindsEveryTruncationOfParts) {
  ranks_ = 2;
  FindEveryTruncation();
}

TEST_F(CheckpointFolderTest, FindsEveryFlippedBitOfParts) {
  ranks_ = 3;
  compressed_ = true;
  FindEveryFlippedBit();
}

TEST_F(CheckpointFolderTest, FindsPartsThatAreNotWhereTheyBelong) {
  ranks_ = 2;
  Write({1, 2});
  const auto path = [&](int step, int rank) {
    return Path(StrCat("c/step-0000000", step, "/optimizer.rank-", rank, "-of-2.safetensors"));
  };
  fs::rename(path(2, 0), Path("kept"));
  fs::rename(path(2, 1), path(2, 0));
  fs::rename(Path("kept"), path(2, 1));
  EXPECT_EQ(Newest(), 1) << "parts of two ranks are swapped";
  Write({2});
  EXPECT_EQ(Newest(), 2);
  fs::copy_file(path(1, 1), path(2, 1), fs::copy_options::overwrite_existing);
  EXPECT_EQ(Newest(), 1) << "the part of another checkpoint";
}

// Returns the manifests that have `value` in the place of one of their members.
std::vector<Json> ReplaceEach(const Json& manifest, const Json& value) {
  std::vector<Json> changed;
  const Json members = manifest.flatten();
  for (const auto& [pointer, member] : members.items()) {
    for (Json::json_pointer at(pointer); !at.empty(); at.pop_back()) {
      changed.push_back(manifest);
      changed.back()[at] = value;
    }
  }
  return changed;
}

// Whoever writes a manifest can give it a checksum that fits.
TEST_F(CheckpointFolderTest, RefusesManifestsOfOtherTypes) {
  for (const int ranks : {1, 2}) {
    ranks_ = ranks;
    Write({1});
    const std::string path = Path("c/step-00000001/MANIFEST.json");
    const Json manifest = Json::parse(ReadAll(path))["content"];
    for (const Json& value : {Json("text"), Json(-1), Json(nullptr), Json::array({1}), Json::object(), Json(1e30)}) {
      for (const Json& changed : ReplaceEach(manifest, value)) {
        WriteAll(path, ManifestText(changed));
        const auto opened = OpenCheckpoint(Path("c/step-00000001"));
        // The number of bytes before compression says nothing of a file that was not compressed.
        const auto read = opened.ok() ? ReadModelTensors(*opened).status() : opened.status();
        const bool names_file = read.message().find("c/step-00000001") != std::string::npos;
        EXPECT_TRUE(read.ok() || names_file) << read << "\n" << changed;
      }
    }
  }
}

// Whose files are as they were written.
TEST_F(CheckpointFolderTest, RefusesPartsThatMakeUpNoTensor) {
  ranks_ = 2;
  const auto read = [&](const std::function<void(CheckpointContent*)>& change) {
    auto folder = CheckpointFolder::Open(Path("c"));
    CheckpointContent leader = PartOf(Content(1), 0);
    change(&leader);
    EXPECT_TRUE((*folder)->Begin(leader).ok());
    std::vector<std::string> written = {(*folder)->WriteParts(leader, 0, 2).value(),
                                        (*folder)->WriteParts(PartOf(Content(1), 1), 1, 2).value()};
    EXPECT_TRUE((*folder)->Complete(leader, written).ok());
    const auto opened = OpenCheckpoint(Path("c/latest"));
    return opened.ok() ? std::string(ReadModelTensors(*opened).status().message()) : "";
  };
  EXPECT_EQ(read([](CheckpointContent*) {}), "");
  const auto rename = [](const std::string& name) {
    return [name](CheckpointContent* content) { content->model[0].first = name; };
  };
  EXPECT_NE(read(rename("w@0:5:50")).find("does not lie in its tensor f32[30]"), std::string::npos);
  EXPECT_NE(read(rename("w@16:15:15")).find("does not lie in its tensor"), std::string::npos);
  EXPECT_NE(read(rename("w@0:0:0")).find("does not lie in its tensor"), std::string::npos);
  EXPECT_NE(read(rename("v@0:5:10")).find("is a part of no tensor"), std::string::npos);
  EXPECT_NE(read(rename("w")).find("names no part"), std::string::npos);
  EXPECT_NE(read([](CheckpointContent* content) {
              content->model.erase(content->model.begin());
            }).find("do not make up tensor 'w'"),
            std::string::npos);
  EXPECT_NE(read([](CheckpointContent* content) {
              content->whole[0].type.shape = {1 << 30};
            }).find("its files are smaller than its tensors"),
            std::string::npos);
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
