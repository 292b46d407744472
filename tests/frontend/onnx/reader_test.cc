// Tests broken and hostile files: each is rejected with one line that names the problem and its place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>

#include "frontend/base/strings.h"
#include "frontend/onnx/read/tensor_proto.h"
#include "frontend/onnx/write/export.h"
#include "model_builder.h"
#include "tests/frontend/onnx/torch_metadata.h"
#include "tests/shared_files.h"

namespace onnxtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string LoadError(const std::string& path) {
  const auto start = std::chrono::steady_clock::now();
  const std::string message = Message(OnnxModel::Load(path).status());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << path;
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  if (!message.empty()) {
    EXPECT_THAT(message, HasSubstr(path));
  }
  return message;
}

std::string LoadError(const onnx::ModelProto& model) { return LoadError(Save(model)); }

TEST(Files, AreRefusedWithTheirPath) {
  EXPECT_THAT(LoadError(WriteFile("empty.onnx", "")), HasSubstr("0 bytes"));
  EXPECT_THAT(LoadError(TestFolder()), HasSubstr("folder"));
  EXPECT_THAT(LoadError(TestFolder() + "/none.onnx"), HasSubstr("no such file"));
  EXPECT_THAT(LoadError(WriteFile("png.onnx", "\x89PNG\r\n\x1a\n and so on")), HasSubstr("not an ONNX model"));
  EXPECT_THAT(LoadError(WriteFile("text.onnx", "label,x,y\n1,2,3\n")), HasSubstr("not an ONNX model"));
  EXPECT_THAT(LoadError("/dev/zero"), HasSubstr("regular"));
  ASSERT_EQ(::mkfifo((TestFolder() + "/pipe").c_str(), 0600), 0);
  EXPECT_THAT(LoadError(TestFolder() + "/pipe"), HasSubstr("regular"));
}

TEST(Files, LargerThanTwoGigabytes) {
  const std::string path = WriteFile("large.onnx", "x");
  ASSERT_EQ(::truncate(path.c_str(), int64_t{3} << 30), 0);
  EXPECT_THAT(LoadError(path), HasSubstr("2 GiB"));
}

#ifndef __SANITIZE_ADDRESS__  // which keeps freed memory
int64_t AnonymousBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "RssAnon:") continue;
    int64_t kib = 0;
    status >> kib;
    return kib << 10;
  }
  return 0;
}

// Small tensors are copies: views would keep the message, whose nodes may have long stack traces.
TEST(Files, LeaveNoMetadataOfNodesInMemory) {
  constexpr int64_t kBytes = int64_t{48} << 20;
  onnx::ModelProto model = NewModel(20);
  AddInput(&model, "x", {2});
  FillFloats(AddInitializer(&model, "w", {2}), {1, 2});
  AddMetadata(AddNode(&model, "Mul", {"x", "w"}, {"y"}), 9, "trace", std::string(kBytes, 'x'));
  AddOutput(&model, "y");
  const std::string path = Save(model);
  model.Clear();
  const int64_t before = AnonymousBytes();
  const auto loaded = OnnxModel::Load(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_LT(AnonymousBytes() - before, kBytes / 2);
}
#endif

TEST(Files, EveryTruncationIsRefusedOrRead) {
  const std::string whole = LinearModel().SerializeAsString();
  int refused = 0;
  for (size_t n = 1; n < whole.size(); ++n) refused += !LoadError(WriteFile("cut.onnx", whole.substr(0, n))).empty();
  EXPECT_GT(refused, static_cast<int>(whole.size()) - 40);  // a cut between fields may leave a valid model
}

TEST(Files, EveryFlippedBitIsRefusedOrRead) {
  const std::string whole = LinearModel().SerializeAsString();
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    auto model = OnnxModel::Load(WriteFile("flipped.onnx", flipped));
    if (model.ok()) (void)Import(**model, {});
  }
}

struct TensorCase {
  std::string_view what;
  std::function<void(onnx::TensorProto*)> bend;
  std::string_view message;
};

TEST(Tensors, WrongData) {
  const TensorCase cases[] = {
      {"raw too short", [](auto* t) { t->set_raw_data(std::string(23, 'x')); }, "23 bytes"},
      {"raw too long", [](auto* t) { t->set_raw_data(std::string(25, 'x')); }, "25 bytes"},
      {"no data", [](auto* t) { t->clear_raw_data(); }, "no data"},
      {"empty raw", [](auto* t) { t->set_raw_data(""); }, "no data"},
      {"two fields", [](auto* t) { t->add_float_data(1); }, "raw_data and float_data"},
      {"wrong field", [](auto* t) { t->clear_raw_data(), t->add_int64_data(1); }, "int64_data"},
      {"typed too short", [](auto* t) { t->clear_raw_data(), t->add_float_data(1); }, "1 values"},
      {"negative", [](auto* t) { t->set_dims(0, -2); }, "negative"},
      {"2^31 x 2^31", [](auto* t) { t->set_dims(0, int64_t{1} << 31), t->set_dims(1, int64_t{1} << 31); }, "2^40"},
      {"2^62", [](auto* t) { t->set_dims(0, int64_t{1} << 62); }, "2^40"},
      {"2^63 behind a zero", [](auto* t) { t->set_dims(0, 0), t->set_dims(1, int64_t{1} << 62), t->add_dims(4); },
       "2^40"},
      {"2 GiB in 1 KB", [](auto* t) { t->set_dims(0, 1 << 20), t->set_dims(1, 512); }, "24 bytes"},
      {"zero elements with data", [](auto* t) { t->set_dims(0, 0); }, "24 bytes"},
      {"rank 40",
       [](auto* t) {
         for (int i = 0; i < 40; ++i) t->add_dims(1);
       },
       "rank"},
      {"type 0", [](auto* t) { t->set_data_type(0); }, "element type 0"},
      {"type 99", [](auto* t) { t->set_data_type(99); }, "element type 99"},
      {"raw strings", [](auto* t) { t->set_data_type(8); }, "string"},
      {"segment", [](auto* t) { t->mutable_segment()->set_begin(0); }, "segment"},
  };
  for (const TensorCase& c : cases) {
    onnx::ModelProto model = LinearModel();
    c.bend(model.mutable_graph()->mutable_initializer(0));
    EXPECT_THAT(LoadError(model), AllOf(HasSubstr("initializer 'w'"), HasSubstr(std::string(c.message)))) << c.what;
    // The same tensor in an attribute.
    onnx::ModelProto constant = LinearModel();
    onnx::TensorProto* t = SetTensor(AddNode(&constant, "Constant", {}, {"c"}, "holder"), "value");
    t->set_data_type(1);
    t->add_dims(2), t->add_dims(3);
    FillFloats(t, {1, 2, 3, 4, 5, 6});
    c.bend(t);
    EXPECT_THAT(LoadError(constant), AllOf(HasSubstr("'holder'"), HasSubstr(std::string(c.message)))) << c.what;
  }
}

// Every element type: raw data of the right size, one byte more and one byte less.
TEST(Tensors, EveryTypeWantsItsBytes) {
  const std::pair<int, int> kBitsOf[] = {{1, 32},  {2, 8},   {3, 8},   {4, 16},  {5, 16},  {6, 32},  {7, 64},
                                         {9, 8},   {10, 16}, {11, 64}, {12, 32}, {13, 64}, {14, 64}, {15, 128},
                                         {16, 16}, {17, 8},  {20, 8},  {21, 4},  {22, 4}};
  for (auto [type, bits] : kBitsOf) {
    const size_t right = (5 * bits + 7) / 8;
    for (size_t size : {right - 1, right, right + 1, size_t{0}}) {
      onnx::ModelProto model = LinearModel();
      AddInitializer(&model, "t", {5}, type)->set_raw_data(std::string(size, '\1'));
      EXPECT_EQ(LoadError(model).empty(), size == right) << "type " << type << ", " << size << " bytes";
    }
  }
}

TEST(Tensors, NarrowTypesInInt32DataStayInRange) {
  for (auto [type, value, good] : {std::tuple(2, 255, true),
                                   {2, 256, false},
                                   {2, -1, false},
                                   {3, -128, true},
                                   {3, 128, false},
                                   {4, 65536, false},
                                   {5, -32769, false},
                                   {9, 2, false},
                                   {10, 65536, false},
                                   {10, 65535, true}}) {
    onnx::ModelProto model = LinearModel();
    AddInitializer(&model, "t", {1}, type)->add_int32_data(value);
    EXPECT_EQ(LoadError(model).empty(), good) << type << " " << value;
  }
}

TEST(Tensors, Values) {
  onnx::ModelProto model = LinearModel();
  onnx::TensorProto* half = AddInitializer(&model, "half", {2}, 10);
  half->add_int32_data(0x3c00), half->add_int32_data(0xc000);
  AddInitializer(&model, "bools", {3}, 9)->set_raw_data(std::string("\0\1\7", 3));
  AddInitializer(&model, "none", {0, 4}, 1);
  AddInitializer(&model, "u32", {1}, 12)->add_uint64_data(4294967295u);
  auto loaded = LoadModel(model);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->Initializer("half")->ToDoubles(), (std::vector<double>{1, -2}));
  EXPECT_EQ((*loaded)->Initializer("bools")->ToInts(), (std::vector<int64_t>{0, 1, 1}));
  EXPECT_EQ((*loaded)->Initializer("none")->size(), 0);
  EXPECT_EQ((*loaded)->Initializer("u32")->ToInts(), (std::vector<int64_t>{4294967295}));
  EXPECT_EQ((*loaded)->Initializer("w")->ToDoubles(), (std::vector<double>{1, 2, 3, 4, 5, 6}));
}

struct ModelCase {
  std::string_view what;
  std::function<void(onnx::ModelProto*)> bend;
  std::string_view message;
};

TEST(Structure, Faults) {
  auto node = [](onnx::ModelProto* m, int i) { return m->mutable_graph()->mutable_node(i); };
  const ModelCase cases[] = {
      {"no graph", [](auto* m) { m->clear_graph(); }, "no graph"},
      {"no outputs", [](auto* m) { m->mutable_graph()->clear_output(); }, "no outputs"},
      {"empty graph", [](auto* m) { m->mutable_graph()->Clear(); }, "no outputs"},
      {"no IR version", [](auto* m) { m->clear_ir_version(); }, "ir_version"},
      {"absurd IR version", [](auto* m) { m->set_ir_version(int64_t{1} << 40); }, "ir_version"},
      {"absurd opset", [](auto* m) { m->mutable_opset_import(0)->set_version(1 << 30); }, "opset version 1073741824"},
      {"opset 0", [](auto* m) { m->mutable_opset_import(0)->set_version(0); }, "opset version 0"},
      {"self loop", [&](auto* m) { node(m, 0)->set_input(0, "xw"); }, "its own output 'xw'"},
      {"cycle", [&](auto* m) { node(m, 0)->set_input(0, "y"); }, "cycle: '"},
      {"undefined", [&](auto* m) { node(m, 1)->set_input(1, "ghost"); }, "[Add 'sum'] reads 'ghost'"},
      {"two definitions", [&](auto* m) { node(m, 1)->set_output(0, "xw"); }, "[Add 'sum'] defines 'xw'"},
      {"defines an initializer", [&](auto* m) { node(m, 1)->set_output(0, "b"); }, "defines 'b'"},
      {"no op_type", [&](auto* m) { node(m, 1)->clear_op_type(); }, "'sum'] has no op_type"},
      {"two attributes", [&](auto* m) { SetInt(node(m, 1), "a", 1), SetInt(node(m, 1), "a", 2); },
       "'a' is given twice"},
      {"two initializers", [](auto* m) { *m->mutable_graph()->add_initializer() = m->graph().initializer(0); },
       "twice"},
      {"nameless initializer", [](auto* m) { m->mutable_graph()->mutable_initializer(0)->clear_name(); }, "no name"},
      {"two inputs", [](auto* m) { *m->mutable_graph()->add_input() = m->graph().input(0); }, "two graph inputs"},
      {"undefined output", [](auto* m) { AddOutput(m, "ghost"); }, "output 'ghost'"},
      {"two outputs", [](auto* m) { AddOutput(m, "y"); }, "two graph outputs"},
      {"newline in a name", [&](auto* m) { node(m, 1)->set_input(1, "gh\nost"); }, "'gh?ost'"},
      {"sparse", [](auto* m) { m->mutable_graph()->add_sparse_initializer(); }, "sparse"},
  };
  for (const ModelCase& c : cases) {
    onnx::ModelProto model = LinearModel();
    c.bend(&model);
    EXPECT_THAT(LoadError(model), HasSubstr(std::string(c.message))) << c.what;
  }
}

TEST(Structure, UnsortedNodesAreSorted) {
  onnx::ModelProto model = LinearModel();
  model.mutable_graph()->mutable_node()->SwapElements(0, 1);
  auto imported = ImportModel(model);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->graph.nodes().back().op, "Add");
}

// Nested Ifs, each in a branch of the one before.
onnx::ModelProto Nested(int depth) {
  onnx::ModelProto model = LinearModel();
  AddInput(&model, "c", {1}, 9);
  onnx::GraphProto* graph = model.mutable_graph();
  for (int i = 0; i < depth; ++i) {
    onnx::NodeProto* node = graph->add_node();
    node->set_op_type("If");
    node->add_input("c");
    node->add_output(StrCat("o", i));
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name("then_branch");
    attribute->set_type(onnx::AttributeProto::GRAPH);
    graph = attribute->mutable_g();
  }
  return model;
}

TEST(Structure, NestingHasALimit) {
  EXPECT_EQ(LoadError(Nested(32)), "");
  EXPECT_THAT(LoadError(Nested(33)), HasSubstr("32 deep"));
  EXPECT_THAT(LoadError(Nested(1000)), HasSubstr("32 deep"));
}

TEST(Structure, RecursiveFunctions) {
  onnx::ModelProto model = LinearModel();
  for (auto [name, callee] : {std::pair("f", "g"), {"g", "f"}}) {
    onnx::FunctionProto* function = model.add_functions();
    function->set_domain("mine");
    function->set_name(name);
    function->add_input("a");
    function->add_output("r");
    onnx::NodeProto* call = function->add_node();
    call->set_domain("mine");
    call->set_op_type(callee);
    call->add_input("a");
    call->add_output("r");
  }
  EXPECT_THAT(LoadError(model), HasSubstr("calls itself"));
}

TEST(Structure, AHundredThousandNodesAreFast) {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "v0", {2});
  const int n = 100000;
  for (int i = 0; i < n; ++i) AddNode(&model, "Relu", {StrCat("v", i)}, {StrCat("v", i + 1)});
  AddOutput(&model, StrCat("v", n));
  // In reverse, the worst case for sorting.
  for (int i = 0; i < n / 2; ++i) model.mutable_graph()->mutable_node()->SwapElements(i, n - 1 - i);
  const auto start = std::chrono::steady_clock::now();
  auto imported = ImportModel(model);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->graph.nodes().size(), static_cast<size_t>(n));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

// Empty nodes of two bytes each: a small file that would become gigabytes of message objects.
TEST(Bombs, EmptyMessagesAreCountedBeforeTheyExist) {
  std::string graph;
  for (int i = 0; i < 5'000'000; ++i) graph += std::string("\x0a\x00", 2);
  onnx::ModelProto head = NewModel();
  head.clear_graph();
  std::string bytes = head.SerializeAsString();
  bytes += '\x3a';
  for (size_t n = graph.size();; n >>= 7) {
    bytes += static_cast<char>((n & 127) | (n > 127 ? 128 : 0));
    if (n <= 127) break;
  }
  const std::string path = WriteFile("bomb.onnx", bytes + graph);
  const int64_t before = PeakMemory(true);
  EXPECT_THAT(LoadError(path), HasSubstr("more messages"));
  EXPECT_LT(PeakMemory(false) - before, (4 * 10 + 256) << 20);
}

onnx::ModelProto ExternalModel(const std::string& location, const std::string& offset = "",
                               const std::string& length = "", const std::string& extra = "") {
  onnx::ModelProto model = LinearModel();
  onnx::TensorProto* w = model.mutable_graph()->mutable_initializer(0);
  w->clear_raw_data();
  w->set_data_location(onnx::TensorProto::EXTERNAL);
  for (auto [key, value] : {std::pair<std::string, std::string>("location", location),
                            {"offset", offset},
                            {"length", length},
                            {extra, "1"}}) {
    if (key.empty() || (value.empty() && key != "location")) continue;
    auto* entry = w->add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  }
  return model;
}

std::string FloatBytes(int n) {
  std::vector<float> values(n);
  for (int i = 0; i < n; ++i) values[i] = static_cast<float>(i);
  return std::string(reinterpret_cast<const char*>(values.data()), n * sizeof(float));
}

TEST(ExternalData, IsReadBeneathTheFolder) {
  WriteFile("w.bin", FloatBytes(8));
  auto model = LoadModel(ExternalModel("w.bin", "8", "24"));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->Initializer("w")->ToDoubles(), (std::vector<double>{2, 3, 4, 5, 6, 7}));
  std::filesystem::create_directories(TestFolder() + "/sub");
  WriteFile("sub/w.bin", FloatBytes(6));
  EXPECT_EQ(LoadError(ExternalModel("sub/w.bin")), "");
  EXPECT_EQ(LoadError(ExternalModel("./sub/w.bin")), "");
}

TEST(ExternalData, HostileLocations) {
  namespace fs = std::filesystem;
  const std::string folder = TestFolder();
  WriteFile("w.bin", FloatBytes(6));
  fs::create_directories(folder + "/sub");
  WriteFile("sub/w.bin", FloatBytes(6));
  fs::create_symlink(folder + "/w.bin", folder + "/link.bin");
  fs::create_symlink(folder + "/sub", folder + "/linkdir");
  WriteFile("hard.bin", FloatBytes(6));
  fs::create_hard_link(folder + "/hard.bin", folder + "/hard2.bin");
  ASSERT_EQ(::mkfifo((folder + "/pipe").c_str(), 0600), 0);
  for (const std::string& location :
       std::vector<std::string>{"", "/etc/passwd", "../w.bin", "sub/../w.bin", "sub/../../w.bin", ".", "sub", "sub/",
                                "sub//w.bin", "link.bin", "linkdir/w.bin", "hard.bin", "hard2.bin", "pipe", "none.bin",
                                "..\\w.bin", std::string("w.bin\0x", 7), folder + "/w.bin", "/dev/zero"}) {
    EXPECT_THAT(LoadError(ExternalModel(location)), HasSubstr("initializer 'w'")) << location;
  }
}

TEST(ExternalData, HostileRanges) {
  WriteFile("w.bin", FloatBytes(6));
  for (auto [offset, length] : {std::pair("-1", "24"),
                                {"1", "24"},
                                {"9223372036854775807", "24"},
                                {"9223372036854775808", ""},
                                {"0x0", ""},
                                {" 0", ""},
                                {"0", "23"},
                                {"0", "1099511627776"},
                                {"0", "-24"},
                                {"four", ""}}) {
    EXPECT_THAT(LoadError(ExternalModel("w.bin", offset, length)), HasSubstr("initializer 'w'"))
        << offset << " " << length;
  }
  EXPECT_THAT(LoadError(ExternalModel("w.bin", "", "", "secret")), HasSubstr("unknown key"));
}

// A small model that refers to one large file many times must not take many times its memory.
TEST(ExternalData, OverlapsAreBounded) {
  WriteFile("w.bin", std::string(1 << 20, '\0'));
  onnx::ModelProto model = LinearModel();
  for (int i = 0; i < 100; ++i) {
    onnx::TensorProto* t = AddInitializer(&model, StrCat("t", i), {(1 << 18) - 100});
    t->set_data_location(onnx::TensorProto::EXTERNAL);
    for (auto [key, value] : {std::pair<std::string, std::string>("location", "w.bin"), {"offset", StrCat(i)}}) {
      auto* entry = t->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
  }
  EXPECT_THAT(LoadError(model), HasSubstr("overlap"));
}

TEST(ValueFile, ReadsTensorsAndRejectsBrokenOnes) {
  onnx::TensorProto tensor;
  tensor.set_data_type(1);
  tensor.add_dims(2);
  FillFloats(&tensor, {1, 2});
  auto load = [&] { return LoadValueFile(WriteFile("t.pb", tensor.SerializeAsString()), {}); };
  const auto read = load();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->elements[0].ToDoubles(), (std::vector<double>{1, 2}));
  tensor.set_dims(0, 3);
  EXPECT_THAT(Message(load().status()), HasSubstr("8 bytes"));
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  EXPECT_FALSE(load().ok());
}

TEST(SharedBadInputs, NeverCrash) {
  SKIP_WITHOUT_SHARED("bad-inputs");
  int tried = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(SharedPath("bad-inputs"))) {
    if (!entry.is_regular_file()) continue;
    auto model = OnnxModel::Load(entry.path().string());
    const absl::Status status = model.ok() ? Import(**model, {}).status() : model.status();
    EXPECT_THAT(Message(status), Not(HasSubstr("\n")));
    if (entry.path().extension() != ".onnx") {
      EXPECT_FALSE(model.ok()) << entry.path();
    }
    ++tried;
  }
  EXPECT_GT(tried, 10);
}

}  // namespace
}  // namespace onnxtrain
