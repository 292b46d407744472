// Tests tensors that are computed in blocks, and the memory that reading and exporting large ones takes.
#include "frontend/onnx/write/lazy_tensor.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "frontend/onnx/read/file.h"
#include "frontend/onnx/write/export.h"
#include "model_builder.h"

namespace onnxtrain {
namespace {

HostTensor Counted(Shape shape) {
  HostTensor tensor({DType::kFloat32, std::move(shape)});
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.Set(i, static_cast<double>(i));
  return tensor;
}

// Reads `n` elements at a time.
std::vector<double> ReadBy(int64_t n, const LazyTensor& tensor) {
  std::vector<double> values;
  for (int64_t at = 0; at < tensor.type().elements(); at += n) {
    const HostTensor part = tensor.Read(at, std::min(n, tensor.type().elements() - at));
    for (const double value : part.ToDoubles()) values.push_back(value);
  }
  return values;
}

TEST(LazyTensor, TransposesMatricesWhereverReadingBegins) {
  const HostTensor matrices = Counted({2, 300, 7});
  const LazyTensor transposed = Transpose(matrices);
  ASSERT_EQ(transposed.shape(), (Shape{2, 7, 300}));
  std::vector<double> expected;
  for (int64_t matrix = 0; matrix < 2; ++matrix) {
    for (int64_t column = 0; column < 7; ++column) {
      for (int64_t row = 0; row < 300; ++row) expected.push_back(matrices.At((matrix * 300 + row) * 7 + column));
    }
  }
  for (const int64_t n : {1, 11, 299, 300, 1000, 4200}) EXPECT_EQ(ReadBy(n, transposed), expected) << n;
}

TEST(LazyTensor, ComputesPartsLikeTheWhole) {
  const LazyTensor a = Counted({3, 4}), b = Counted({2, 4});
  const LazyTensor halves = a.Map([](double x) { return x / 2; });
  const LazyTensor rows =
      Concat({DType::kBFloat16, {6, 4}},
             {halves.CastTo(DType::kBFloat16), Slice(a, 8, 4).CastTo(DType::kBFloat16), b.CastTo(DType::kBFloat16)});
  const std::vector<double> expected = {0, 0.5, 1,  1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5,
                                        8, 9,   10, 11,  0, 1,   2, 3,   4, 5,   6, 7};
  for (const int64_t n : {1, 5, 24}) EXPECT_EQ(ReadBy(n, rows), expected) << n;
  EXPECT_EQ(rows.Whole().shape(), (Shape{6, 4}));
  EXPECT_TRUE(rows.SameBytes(HostTensor::FromDoubles(rows.type(), expected)));
  EXPECT_FALSE(rows.SameBytes(HostTensor::FromDoubles({DType::kBFloat16, {24}}, expected)));
}

constexpr int64_t kRows = 6000, kColumns = 1000;
constexpr int64_t kBytes = kRows * kColumns * 4;  // 23 MiB
constexpr int64_t kFew = 6 << 20;  // for blocks, and 2 MiB that Linux makes resident around a byte that is read

std::shared_ptr<const MappedFile> MapFile(const std::string& bytes) {
  return MappedFile::Map(::open(WriteFile("w.bin", bytes).c_str(), O_RDONLY | O_CLOEXEC)).value();
}

TEST(ReadOnce, KeepsFewPagesResident) {
  const auto file = MapFile(std::string(kBytes, 'x'));
  ReadOnce pages(file->bytes());
  const int64_t before = PeakMemory(true);
  for (size_t i = 0; i < file->size(); i += 1024) {
    ASSERT_EQ(file->data()[i], std::byte{'x'});
    pages.PassedTo(i);
  }
  EXPECT_LT(PeakMemory(false) - before, kFew);
  for (size_t i = 0; i < file->size(); i += 1024) ASSERT_EQ(file->data()[i], std::byte{'x'});
  EXPECT_GT(PeakMemory(false) - before, kBytes - kFew);
}

#ifndef __SANITIZE_ADDRESS__  // which keeps freed memory
TEST(LazyTensor, ViewsOfFilesKeepFewPagesResident) {
  const auto file = MapFile(std::string(kBytes, 'x'));
  const HostTensor view({DType::kFloat32, {kRows, kColumns}}, file, file->data());
  const int64_t before = PeakMemory(true);
  EXPECT_TRUE(LazyTensor(view).SameBytes(HostTensor(view.type(), file, file->data())));
  EXPECT_TRUE(LazyTensor(view).CastTo(DType::kFloat64).CastTo(DType::kFloat32).SameBytes(view));
  EXPECT_LT(PeakMemory(false) - before, 2 * kFew);
}
#endif

// Sessions import models for further sizes of batches while the state is in memory.
TEST(Import, KeepsFewPagesResident) {
  constexpr int64_t kWidth = 1024;
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "ids", {2}, 7);
  HostTensor weight({DType::kFloat32, {kWidth, kWidth}});
  for (int i = 0; i < 6; ++i) {
    for (int64_t at = 0; at < weight.size(); ++at) weight.Set(at, static_cast<double>((at + i) % 1013 + 1));
    AddInitializer(&model, "w" + std::to_string(i), weight.shape())
        ->set_raw_data(weight.bytes().data(), weight.bytes().size());
    if (i == 0) AddNode(&model, "Gather", {"w0", "ids"}, {"h0"});
    if (i > 0)
      AddNode(&model, "MatMul", {"h" + std::to_string(i - 1), "w" + std::to_string(i)}, {"h" + std::to_string(i)});
  }
  AddOutput(&model, "h5");
  const auto loaded = LoadModel(model);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  (*loaded)->ReleasePages();
  const int64_t before = PeakMemory(true);
  const auto imported = Import(**loaded, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_LT(PeakMemory(false) - before, kFew);
}

// A language model whose head is the transposed embedding, stored as external data or within the model.
std::string SaveTied(const HostTensor& table, bool external, DType dtype) {
  const HostTensor stored = table.CastTo(dtype), head = Transpose(stored).Whole();
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2}, 7);
  int64_t offset = 0;
  std::string data;
  for (const auto& [name, value] : {std::pair("table", stored), std::pair("head", head)}) {
    onnx::TensorProto* tensor = AddInitializer(&model, name, value.shape(), dtype == DType::kFloat16 ? 10 : 1);
    const std::string bytes(reinterpret_cast<const char*>(value.bytes().data()), value.bytes().size());
    if (!external) {
      tensor->set_raw_data(bytes);
      continue;
    }
    tensor->set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto& [key, text] : {std::pair("location", std::string("w.bin")), {"offset", std::to_string(offset)}}) {
      auto* entry = tensor->add_external_data();
      entry->set_key(key);
      entry->set_value(text);
    }
    data += bytes;
    offset += std::ssize(bytes);
  }
  WriteFile("w.bin", data);
  const bool low = dtype == DType::kFloat16;
  AddNode(&model, "Gather", {"table", "x"}, {"h"});
  AddNode(&model, "MatMul", {"h", "head"}, {"y"});
  model.mutable_graph()->add_output()->set_name("y");
  model.mutable_graph()->mutable_output(0)->mutable_type()->mutable_tensor_type()->set_elem_type(low ? 10 : 1);
  return Save(model);
}

TEST(Export, WritesATiedHeadInBlocks) {
  const auto repeated = [](int64_t period) {  // multiples of 1/8 that float16 holds
    HostTensor table({DType::kFloat32, {kRows, kColumns}});
    for (int64_t i = 0; i < table.size(); ++i) table.Set(i, static_cast<double>(i % period) / 8);
    return table;
  };
  const HostTensor start = repeated(2027), trained = repeated(2039);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    for (const bool external : {true, false}) {
      const auto model = OnnxModel::Load(SaveTied(start, external, dtype));
      ASSERT_TRUE(model.ok()) << model.status();
      const std::string target = TestFolder() + "/trained/m.onnx";
      std::filesystem::create_directories(TestFolder() + "/trained");
      (*model)->ReleasePages();
      const int64_t before = PeakMemory(true);
      const auto notes = Export(**model, {{"table", trained}}, target);
      const int64_t taken = PeakMemory(false) - before;
      ASSERT_TRUE(notes.ok()) << notes.status();
#ifndef __SANITIZE_ADDRESS__
      EXPECT_LT(taken, 2 * kFew) << external << " " << ToString(dtype);
#endif
      const auto written = OnnxModel::Load(target, {.tie_stored_twice = false});
      ASSERT_TRUE(written.ok()) << written.status();
      const HostTensor expected = trained.CastTo(dtype);
      EXPECT_TRUE((*written)->Initializer("table")->SameBytes(expected));
      EXPECT_TRUE((*written)->Initializer("head")->SameBytes(Transpose(expected).Whole()));
      std::filesystem::remove_all(TestFolder() + "/trained");
    }
  }
}

}  // namespace
}  // namespace onnxtrain
