// Tests the export of external data: names, offsets, and files that are never overwritten.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "frontend/base/strings.h"
#include "frontend/onnx/read/file.h"
#include "frontend/onnx/write/export.h"
#include "model_builder.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

void MakeExternal(onnx::TensorProto* tensor, const std::string& location, int64_t offset) {
  tensor->clear_raw_data();
  tensor->clear_external_data();
  tensor->set_data_location(onnx::TensorProto::EXTERNAL);
  for (auto [key, value] : {std::pair<std::string, std::string>("location", location), {"offset", StrCat(offset)}}) {
    auto* entry = tensor->add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  }
}

std::string FloatBytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

// x·w + b with w in sub/w.bin at byte 8 and b at byte 32.
std::string SaveExternal(const std::string& location = "sub/w.bin") {
  fs::create_directories(fs::path(TestFolder() + "/" + location).parent_path());
  WriteFile(location, FloatBytes({-1, -1, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  onnx::ModelProto model = LinearModel();
  MakeExternal(model.mutable_graph()->mutable_initializer(0), location, 8);
  MakeExternal(model.mutable_graph()->mutable_initializer(1), location, 32);
  return Save(model);
}

absl::Status ExportTo(const std::string& source, const std::string& target,
                      const std::map<std::string, HostTensor>& weights) {
  auto model = OnnxModel::Load(source);
  if (!model.ok()) return model.status();
  return Export(**model, weights, target).status();
}

std::string ReadLocation(const std::string& path, int initializer) {
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(ReadFile(path)));
  return model.graph().initializer(initializer).external_data(0).value();
}

std::vector<double> ReadValues(const std::string& path, const std::string& name) {
  auto model = OnnxModel::Load(path);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? (*model)->Initializer(name)->ToDoubles() : std::vector<double>();
}

std::string OutFolder() {
  fs::create_directories(TestFolder() + "/out");
  return TestFolder() + "/out";
}

TEST(ExternalExport, KeepsNamesAndPlaces) {
  const std::string source = SaveExternal(), target = OutFolder() + "/trained.onnx";
  const absl::Status done = ExportTo(source, target, {{"w", Floats({2, 3}, {6, 5, 4, 3, 2, 1})}});
  ASSERT_TRUE(done.ok()) << done;
  EXPECT_EQ(ReadLocation(target, 0), "sub/w.bin");
  EXPECT_EQ(ReadFile(OutFolder() + "/sub/w.bin"), std::string(8, '\0') + FloatBytes({6, 5, 4, 3, 2, 1, 7, 8, 9}));
  EXPECT_THAT(ReadValues(target, "w"), ElementsAre(6, 5, 4, 3, 2, 1));
  EXPECT_THAT(ReadValues(target, "b"), ElementsAre(7, 8, 9));
  EXPECT_THAT(ReadValues(source, "w"), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(ExternalExport, OverwritesNothing) {
  const std::string source = SaveExternal("w.bin");
  // Into the source's folder, where the names belong to the source's data.
  ASSERT_TRUE(ExportTo(source, TestFolder() + "/trained.onnx", {{"w", Floats({2, 3}, {0, 0, 0, 0, 0, 1})}}).ok());
  EXPECT_EQ(ReadLocation(TestFolder() + "/trained.onnx", 0), "trained.onnx.data");
  EXPECT_THAT(ReadValues(source, "w"), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(ReadValues(TestFolder() + "/trained.onnx", "w"), ElementsAre(0, 0, 0, 0, 0, 1));
  EXPECT_THAT(ReadValues(TestFolder() + "/trained.onnx", "b"), ElementsAre(7, 8, 9));
  // An unrelated file of the same name.
  WriteFile("../" + fs::path(OutFolder()).lexically_relative(fs::path(TestFolder()).parent_path()).string() + "/w.bin",
            "mine");
  ASSERT_TRUE(ExportTo(source, OutFolder() + "/trained.onnx", {}).ok());
  EXPECT_EQ(ReadFile(OutFolder() + "/w.bin"), "mine");
  EXPECT_EQ(ReadLocation(OutFolder() + "/trained.onnx", 0), "trained.onnx.data");
}

TEST(ExternalExport, NeverWritesThroughLinks) {
  const std::string source = SaveExternal("sub/w.bin"), elsewhere = TestFolder() + "/elsewhere";
  fs::create_directories(elsewhere);
  fs::create_directory_symlink(elsewhere, OutFolder() + "/sub");
  const absl::Status done = ExportTo(source, OutFolder() + "/trained.onnx", {});
  EXPECT_FALSE(done.ok());
  EXPECT_TRUE(fs::is_empty(elsewhere));
  EXPECT_FALSE(fs::exists(OutFolder() + "/trained.onnx"));
}

TEST(ExternalExport, TensorsThatSharedBytesPart) {
  WriteFile("w.bin", FloatBytes({1, 2, 3, 4, 5, 6}));
  onnx::ModelProto model = LinearModel();
  MakeExternal(model.mutable_graph()->mutable_initializer(0), "w.bin", 0);
  onnx::TensorProto* twin = AddInitializer(&model, "twin", {2, 3});
  MakeExternal(twin, "w.bin", 0);
  const std::string target = OutFolder() + "/trained.onnx";
  ASSERT_TRUE(ExportTo(Save(model), target, {{"w", Floats({2, 3}, {9, 9, 9, 9, 9, 9})}}).ok());
  EXPECT_THAT(ReadValues(target, "w"), ElementsAre(9, 9, 9, 9, 9, 9));
  EXPECT_THAT(ReadValues(target, "twin"), ElementsAre(1, 2, 3, 4, 5, 6));
}

// 256 KiB: large enough to be mapped.
std::string SaveLarge(bool external) {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "x", {-1, 256});
  onnx::TensorProto* w = AddInitializer(&model, "w", {256, 256});
  std::vector<float> values(256 * 256);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  FillFloats(w, values);
  WriteFile("w.bin", FloatBytes(values));
  if (external) MakeExternal(w, "w.bin", 0);
  AddNode(&model, "MatMul", {"x", "w"}, {"y"});
  AddOutput(&model, "y");
  return Save(model);
}

TEST(MappedWeights, AreReadFromTheFile) {
  for (bool external : {true, false}) {
    auto model = OnnxModel::Load(SaveLarge(external));
    ASSERT_TRUE(model.ok()) << model.status();
    const HostTensor& w = *(*model)->Initializer("w");
    for (int64_t i : {0, 1, 65535}) EXPECT_EQ(w.At(i), i);
    (*model)->ReleasePages();
    EXPECT_EQ(w.At(65535), 65535);
  }
}

TEST(MappedWeights, ChangesInPlaceAreNoticed) {
  const std::string source = SaveLarge(true);
  auto model = OnnxModel::Load(source);
  ASSERT_TRUE(model.ok()) << model.status();
  // Replacing the file under its name is harmless.
  fs::rename(TestFolder() + "/w.bin", TestFolder() + "/old.bin");
  WriteFile("w.bin", FloatBytes(std::vector<float>(256 * 256, 1)));
  EXPECT_TRUE(Import(**model, {}).ok());
  // The file is truncated in place.
  fs::resize_file(TestFolder() + "/old.bin", 100);
  EXPECT_THAT(Message(Import(**model, {}).status()), HasSubstr("has changed"));
  EXPECT_THAT(Message(Export(**model, {}, OutFolder() + "/t.onnx").status()), HasSubstr("has changed"));
}

// What a program's handler of SIGBUS goes by.
TEST(MappedWeights, AreKnownByTheirAddress) {
  auto model = OnnxModel::Load(SaveLarge(true));
  ASSERT_TRUE(model.ok()) << model.status();
  const auto bytes = (*model)->Initializer("w")->bytes();
  EXPECT_TRUE(IsInMappedFile(bytes.data()));
  EXPECT_TRUE(IsInMappedFile(bytes.data() + bytes.size() - 1));
  EXPECT_FALSE(IsInMappedFile(&model));
  EXPECT_FALSE(IsInMappedFile(nullptr));
  const void* gone = bytes.data();
  model = OnnxModel::Load(SaveLarge(false));
  EXPECT_FALSE(IsInMappedFile(gone));
}

TEST(ExternalExport, MoreThanADeclaredElementType) {
  // Two values per byte: an unsupported type, copied as bytes.
  WriteFile("q.bin", "\x12\x34");
  onnx::ModelProto model = LinearModel();
  MakeExternal(AddInitializer(&model, "int4", {3}, 22), "q.bin", 0);
  const std::string target = OutFolder() + "/trained.onnx";
  const absl::Status done = ExportTo(Save(model), target, {});
  ASSERT_TRUE(done.ok()) << done;
  EXPECT_EQ(ReadFile(OutFolder() + "/q.bin"), "\x12\x34");
}

}  // namespace
}  // namespace onnxtrain
