// Low-rank adapters beside weights that the file stores in integers: what is trained and written, and that it equals
// training beside the floats that the integers stand for.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/match.h"
#include "backends/registry.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/data/sources/safetensors.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/read/parsed.h"
#include "optim/plan/adapters.h"
#include "optim/step/session.h"
#include "tests/tools/adapter_runs.h"
#include "tests/tools/blobs.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

constexpr int kFloat = 1, kUInt8 = 2, kInt8 = 3;  // of TensorProto

struct Tensor {
  std::string name;
  int type;
  std::vector<int64_t> shape;
  std::string bytes;
};

std::string ToBytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

int NumberAt(size_t seed, int64_t i, int count) {
  return static_cast<int>((static_cast<uint32_t>(i + 977 * seed) * 2654435761u >> 13) % static_cast<uint32_t>(count));
}

constexpr int64_t kBlock = 16;

// A weight [outputs, inputs] in blocks along the inputs, packed for MatMulNBits, and its floats [inputs, outputs].
struct Blocks {
  std::vector<Tensor> tensors;
  tiny::Weight floats;
};

Blocks MakeBlocks(const std::string& module, int64_t inputs, int64_t outputs, int64_t bits) {
  const int64_t count = (inputs + kBlock - 1) / kBlock, per_byte = 8 / bits, zero_bytes = (count * bits + 7) / 8;
  const size_t seed = module.size();
  std::string numbers(static_cast<size_t>(outputs * count * kBlock / per_byte), '\0');
  std::string zeros(static_cast<size_t>(outputs * zero_bytes), '\0');
  std::vector<float> scales = tiny::Uniform(outputs * count, 0.05f, static_cast<uint32_t>(seed));
  Blocks blocks{.floats = {module + ".weight", {inputs, outputs}, std::vector<float>(inputs * outputs)}};
  const auto put = [&](std::string* to, int64_t bytes, int64_t row, int64_t i, int number) {
    (*to)[static_cast<size_t>(row * bytes + i / per_byte)] |= static_cast<char>(number << (i % per_byte * bits));
  };
  for (int64_t o = 0; o < outputs; ++o) {
    for (int64_t b = 0; b < count; ++b) put(&zeros, zero_bytes, o, b, NumberAt(seed + 1, o * count + b, 1 << bits));
    for (int64_t i = 0; i < count * kBlock; ++i) {
      const int64_t block = o * count + i / kBlock;
      const int number = NumberAt(seed, o * inputs + i, 1 << bits), zero = NumberAt(seed + 1, block, 1 << bits);
      put(&numbers, count * kBlock / per_byte, o, i, number);
      if (i < inputs) blocks.floats.values[i * outputs + o] = static_cast<float>(number - zero) * scales[block];
    }
  }
  blocks.tensors = {{module + ".weight_Q4", kUInt8, {outputs, count, kBlock / per_byte}, numbers},
                    {module + ".weight_scales", kFloat, {outputs * count}, ToBytes(scales)},
                    {module + ".weight_zeros", kUInt8, {outputs * zero_bytes}, zeros}};
  return blocks;
}

// Adds initializers to a file. Messages that follow each other are merged.
void Append(const std::string& path, const std::vector<Tensor>& tensors) {
  tiny::Message graph;
  for (const Tensor& t : tensors) {
    tiny::Message tensor;
    for (const int64_t extent : t.shape) tensor.Int(1, static_cast<uint64_t>(extent));
    graph.Sub(5, tensor.Int(2, static_cast<uint64_t>(t.type)).Bytes(8, t.name).Bytes(9, t.bytes));
  }
  std::ofstream(path, std::ios::binary | std::ios::app) << tiny::Message().Sub(7, graph).text();
}

tiny::Op BlockProduct(const Blocks& w, const std::string& x, const std::string& y, int64_t bits) {
  return {"MatMulNBits",
          {x, w.tensors[0].name, w.tensors[1].name, w.tensors[2].name},
          {y},
          {},
          {{"K", w.floats.shape[0]}, {"N", w.floats.shape[1]}, {"bits", bits}, {"block_size", kBlock}},
          "com.microsoft"};
}

// x[batch,4] → tanh(x·up) [batch,40] → tanh(h·mid) [batch,24] → ·out + b [batch,3]. 4 and 40 inputs do not fill blocks.
class QuantizedAdapters : public RunScratch {
 protected:
  QuantizedAdapters() {
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Blobs(96)).ok());
    EXPECT_TRUE(WriteNpz(Path("test.npz"), Blobs(30, {.seed = 8})).ok());
    SaveBlocks("m.onnx", 4);
  }

  // Saves the model with blocks, and as "float.onnx" the one with their floats.
  void SaveBlocks(const std::string& name, int64_t bits) {
    const Blocks up = MakeBlocks("net.up", 4, 40, bits), mid = MakeBlocks("net.mid", 40, 24, bits);
    tiny::Model floats;
    floats.nodes = {{"MatMul", {"x", up.floats.name}, {"h0"}},   {"Tanh", {"h0"}, {"h"}},
                    {"MatMul", {"h", mid.floats.name}, {"g0"}},  {"Tanh", {"g0"}, {"g"}},
                    {"MatMul", {"g", "net.out.weight"}, {"y0"}}, {"Add", {"y0", "net.out.bias"}, {"y"}}};
    floats.weights = {{"net.out.weight", {24, 3}, tiny::Uniform(72, 0.4f, 4)}, {"net.out.bias", {3}, {0, 0, 0}}};
    tiny::Model blocks = floats;
    floats.weights.push_back(up.floats);
    floats.weights.push_back(mid.floats);
    floats.Save(Path("float.onnx"));
    blocks.nodes[0] = BlockProduct(up, "x", "h0", bits);
    blocks.nodes[2] = BlockProduct(mid, "h", "g0", bits);
    blocks.Save(Path(name));
    for (const Blocks* w : {&up, &mid}) Append(Path(name), w->tensors);
  }

  Outcome Train(const std::string& model, const std::string& flags) const {
    return Run("--model " + model + " --data d.npz --eval-data test.npz --batch-size 16 --lr 0.02 --quiet " + flags);
  }

  HostTensor Stored(const std::string& model, const std::string& name) const {
    const auto loaded = OnnxModel::Load(Path(model));
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return (*loaded)->parsed().graph.initializers.at(name).Clone();
  }

  NamedArrays Adapter(const std::string& run) const {
    auto arrays = ReadSafetensors(Path(run + "/adapter/adapter_model.safetensors"));
    EXPECT_TRUE(arrays.ok()) << arrays.status();
    return *std::move(arrays);
  }

  void ExpectSameAdapters(const std::string& run, const std::string& other) const {
    const NamedArrays a = Adapter(run), b = Adapter(other);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      for (int64_t e = 0; e < a[i].second.size(); ++e)
        EXPECT_NEAR(a[i].second.At(e), b[i].second.At(e), 1e-4) << a[i].first;
    }
  }

  double Loss(const std::string& model_flags) const {
    const Outcome o = Run("eval --data test.npz --json --quiet " + model_flags);
    EXPECT_EQ(o.code, 0) << o.err;
    return Json::parse(o.out)["loss"];
  }
};

TEST_F(QuantizedAdapters, TrainAndAreWrittenAsNodes) {
  const Outcome o = Train("m.onnx", "--epochs 6 --lora-rank 2 --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Summary("r")["trainable_parameters"], 2 * (4 + 40) + 2 * (40 + 24));  // not the output layer
  EXPECT_LT(Summary("r")["eval"]["loss"], Summary("r")["eval_before"]["loss"]);
  for (const char* name : {"net.up.weight_Q4", "net.up.weight_scales", "net.mid.weight_zeros"})
    EXPECT_TRUE(Stored("m.onnx", name).SameBytes(Stored("r/model.onnx", name))) << name;
  const HostTensor a = Stored("r/model.onnx", "net.mid.lora_A.weight"), b = Adapter("r").at(0).second;
  EXPECT_EQ(a.shape(), (Shape{40, 2}));
  const auto loaded = OnnxModel::Load(Path("r/model.onnx"));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->op_histogram().at("com.microsoft.MatMulNBits"), 2);
  EXPECT_EQ((*loaded)->op_histogram().at("MatMul"), 1 + 2 * 2);
  EXPECT_NEAR(Loss("--model r/model.onnx"), Summary("r")["eval"]["loss"].get<double>(), 1e-6);
}

TEST_F(QuantizedAdapters, AreReadByEvalExportAndTraining) {
  ASSERT_EQ(Train("m.onnx", "--epochs 4 --lora-rank 2 --out r").code, 0);
  EXPECT_NEAR(Loss("--model m.onnx --adapter r/adapter"), Loss("--model r/model.onnx"), 1e-6);
  const Outcome exported = Run("export --model m.onnx --adapter r/adapter --out e.onnx");
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_TRUE(ReadAll(Path("e.onnx")) == ReadAll(Path("r/model.onnx")));
  ASSERT_EQ(Train("m.onnx", "--max-steps 4 --adapter r/adapter --out more").code, 0);
  EXPECT_NEAR(Summary("more")["eval_before"]["loss"], Summary("r")["eval"]["loss"].get<double>(), 1e-6);
}

// Trains an adapter of both variants beside blocks and beside their floats. DoRA starts with the lengths of the blocks;
// with 2 bits, one output has no weight but 0.
TEST_F(QuantizedAdapters, TrainAsBesideTheFloats) {
  for (const int64_t bits : {2, 4, 8}) {
    for (const std::string variant : {"lora", "dora"}) {
      SCOPED_TRACE(StrCat(bits, " ", variant));
      SaveBlocks("m.onnx", bits);
      const Outcome start =
          Train("m.onnx", "--max-steps 2 --lora-rank 2 --overwrite --out start --lora-variant " + variant);
      ASSERT_EQ(start.code, 0) << start.err;
      for (const char* model : {"m.onnx", "float.onnx"}) {
        const Outcome o = Train(model, StrCat("--epochs 3 --adapter start/adapter --overwrite --out ", model, ".run"));
        ASSERT_EQ(o.code, 0) << o.err;
      }
      const double loss = Summary("m.onnx.run")["eval"]["loss"];
      EXPECT_NEAR(loss, Summary("float.onnx.run")["eval"]["loss"].get<double>(), 1e-6);
      EXPECT_NEAR(Summary("m.onnx.run")["eval_before"]["loss"],
                  Summary("float.onnx.run")["eval_before"]["loss"].get<double>(), 1e-6);
      ExpectSameAdapters("m.onnx.run", "float.onnx.run");
      EXPECT_NEAR(Loss("--model m.onnx.run/model.onnx"), loss, 1e-6);
      EXPECT_NEAR(Loss("--model m.onnx --adapter m.onnx.run/adapter"), loss, 1e-6);
    }
  }
}

// A bias is no part of what magnitudes scale, and dropout acts on the low-rank path alone.
TEST_F(QuantizedAdapters, MagnitudesLeaveBiases) {
  const Blocks up = MakeBlocks("net.up", 4, 40, 4), mid = MakeBlocks("net.mid", 40, 24, 4);
  tiny::Model floats;
  floats.nodes = {{"Gemm", {"x", up.floats.name, "bias"}, {"h0"}},
                  {"Tanh", {"h0"}, {"h"}},
                  {"MatMul", {"h", mid.floats.name}, {"g"}},
                  {"MatMul", {"g", "net.out.weight"}, {"y"}}};
  floats.weights = {{"net.out.weight", {24, 3}, tiny::Uniform(72, 0.4f, 4)},
                    {"bias", {40}, tiny::Uniform(40, 0.5f, 6)}};
  tiny::Model blocks = floats;
  floats.weights.push_back(up.floats);
  floats.weights.push_back(mid.floats);
  floats.Save(Path("float.onnx"));
  blocks.nodes[0] = BlockProduct(up, "x", "h0", 4);
  blocks.nodes[0].inputs.insert(blocks.nodes[0].inputs.end(), {"", "bias"});
  blocks.nodes[2] = BlockProduct(mid, "h", "g", 4);
  blocks.Save(Path("m.onnx"));
  for (const Blocks* w : {&up, &mid}) Append(Path("m.onnx"), w->tensors);
  for (const char* more : {"", " --lora-dropout 0.2"}) {
    for (const char* model : {"m.onnx", "float.onnx"}) {
      const Outcome o =
          Train(model, StrCat("--epochs 3 --lora-rank 2 --lora-variant dora --overwrite --out ", model, ".run", more));
      ASSERT_EQ(o.code, 0) << o.err;
    }
    const double loss = Summary("m.onnx.run")["eval"]["loss"];
    EXPECT_NEAR(loss, Summary("float.onnx.run")["eval"]["loss"].get<double>(), 1e-6);
    ExpectSameAdapters("m.onnx.run", "float.onnx.run");
    EXPECT_NEAR(Loss("--model m.onnx.run/model.onnx"), loss, 1e-6);
  }
  const Outcome o = Run("export --model m.onnx --adapter m.onnx.run/adapter --merge requantize --out e.onnx");
  ASSERT_EQ(o.code, 0) << o.err;
  const double trained = Loss("--model m.onnx.run/model.onnx");
  EXPECT_LT(std::abs(Loss("--model e.onnx") - trained), 0.3 * std::abs(Loss("--model m.onnx") - trained));
}

// Queries, keys and values in one product, of which keys have no adapter.
TEST_F(QuantizedAdapters, PartsTrainAsBesideTheFloats) {
  const Blocks packed = MakeBlocks("model.layers.0.attn.qkv_proj.MatMul", 4, 16, 4);
  tiny::Model floats;
  floats.producer = "onnxruntime-genai";
  floats.nodes = {{"MatMul", {"x", packed.floats.name}, {"qkv"}},
                  {"Split", {"qkv", "sizes"}, {"q", "k", "v"}, {}, {{"axis", -1}}},
                  {"Tanh", {"q"}, {"q1"}},
                  {"Relu", {"k"}, {"k1"}},
                  {"Concat", {"q1", "k1", "v"}, {"h"}, {}, {{"axis", -1}}},
                  {"MatMul", {"h", "lm_head.MatMul.weight"}, {"y"}}};
  floats.nodes.insert(floats.nodes.begin(), {"Constant", {}, {"sizes"}, {{"value_ints", {8, 4, 4}}}});
  floats.weights = {{"lm_head.MatMul.weight", {16, 3}, tiny::Uniform(48, 0.4f, 4)}};
  tiny::Model blocks = floats;
  floats.weights.push_back(packed.floats);
  floats.Save(Path("float.onnx"));
  blocks.nodes[1] = BlockProduct(packed, "x", "qkv", 4);
  blocks.Save(Path("m.onnx"));
  Append(Path("m.onnx"), packed.tensors);
  for (const char* model : {"m.onnx", "float.onnx"}) {
    const Outcome o = Train(
        model,
        StrCat("--epochs 3 --lora-rank 2 --lora-variant dora --lora-target q_proj,v_proj --out ", model, ".dora"));
    ASSERT_EQ(o.code, 0) << o.err;
  }
  ExpectSameAdapters("m.onnx.dora", "float.onnx.dora");
  EXPECT_NEAR(Loss("--model m.onnx.dora/model.onnx"), Loss("--model float.onnx.dora/model.onnx"), 1e-6);
  for (const char* model : {"m.onnx", "float.onnx"}) {
    const Outcome o = Train(model, StrCat("--epochs 3 --lora-rank 2 --lora-rank v_proj=3 --lora-alpha 3 --lora-target ",
                                          "q_proj,v_proj --adapter-out merged,peft,onnx --out ", model, ".run"));
    ASSERT_EQ(o.code, 0) << o.err;
  }
  const double loss = Summary("m.onnx.run")["eval"]["loss"];
  EXPECT_NEAR(loss, Summary("float.onnx.run")["eval"]["loss"].get<double>(), 1e-6);
  EXPECT_NEAR(Loss("--model m.onnx.run/model.onnx"), loss, 1e-6);
  EXPECT_NEAR(Loss("--model float.onnx.run/model.onnx"), loss, 1e-6);
  EXPECT_NEAR(Loss("--model m.onnx --adapter m.onnx.run/adapter.onnx_adapter"), loss, 1e-6);
  EXPECT_TRUE(
      Stored("m.onnx", packed.tensors[0].name).SameBytes(Stored("m.onnx.run/model.onnx", packed.tensors[0].name)));
  const std::string b = "model.layers.0.self_attn.v_proj.lora_B.weight";
  EXPECT_EQ(Stored("m.onnx.run/model.onnx", b).shape(), (Shape{3, 4}));
  EXPECT_EQ(Stored("m.onnx.run/model.adapter-inputs.onnx", b).shape(), (Shape{3, 4}));

  ASSERT_EQ(Run("export --model m.onnx --adapter m.onnx.run/adapter --merge requantize --out e.onnx").code, 0);
  EXPECT_LT(std::abs(Loss("--model e.onnx") - loss), 0.3 * std::abs(Loss("--model m.onnx") - loss));
  const HostTensor before = Stored("m.onnx", packed.tensors[0].name), after = Stored("e.onnx", packed.tensors[0].name);
  const auto keys = [](const HostTensor& rows) { return rows.bytes().subspan(8 * 8, 4 * 8); };
  EXPECT_TRUE(std::ranges::equal(keys(before), keys(after)));
  EXPECT_FALSE(before.SameBytes(after));
}

TEST_F(QuantizedAdapters, ResumeBitForBit) {
  ASSERT_EQ(Train("m.onnx", "--epochs 4 --lora-rank 2 --out whole").code, 0);
  ASSERT_EQ(Train("m.onnx", "--epochs 2 --lora-rank 2 --out part").code, 0);
  const Outcome o = Run("--resume part --epochs 4 --quiet");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(ReadAll(Path("part/model.onnx")) == ReadAll(Path("whole/model.onnx")));
}

TEST_F(QuantizedAdapters, GradientsAreThoseOfFiniteDifferences) {
  ASSERT_EQ(Train("m.onnx", "--max-steps 3 --lora-rank 2 --out r").code, 0);  // B is not zero
  const Outcome o = Run("compare --model m.onnx --data d.npz --adapter r/adapter --gradcheck 6 --json --quiet");
  EXPECT_EQ(o.code, 0) << o.out << o.err;
}

// Neither the forward nor the backward pass has a value of the shape of a weight in floats.
TEST_F(QuantizedAdapters, NoProgramHasTheFloats) {
  TrainConfig config;
  config.lora_rank = {"2"};
  const auto base = OnnxModel::Load(Path("m.onnx"));
  ASSERT_TRUE(base.ok()) << base.status();
  ModelEdits edits;
  const auto plan = PlanAdapters(config, **base);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->updates.size(), 2u);
  edits.low_rank = plan->updates;
  const auto model = (*base)->LoadEdited(edits);
  ASSERT_TRUE(model.ok()) << model.status();
  int products = 0;
  for (const Graph& graph : PlanPrograms(*model, 3)) {
    for (const Node& node : graph.nodes()) products += node.op == "MatMulDequantized";
    for (size_t v = 0; v < graph.values().size(); ++v) {
      const Type& type = graph.type(static_cast<ValueId>(v));
      const bool weight = type.elements() == 4 * 40 || type.elements() == 40 * 24;
      EXPECT_FALSE(weight && IsFloat(type.dtype)) << ToString(type);
    }
  }
  EXPECT_GE(products, 3);  // forward, and backward through `mid`
}

// x[batch,4] → tanh(x·up) [batch,8] → ·out [batch,3], int8 with a scale and zero point per column behind
// DequantizeLinear.
TEST_F(QuantizedAdapters, DequantizedColumns) {
  tiny::Model model;
  model.nodes = {{"DequantizeLinear", {"up.weight_q", "up.scale", "up.zero"}, {"up.weight_f"}, {}, {{"axis", 1}}},
                 {"MatMul", {"x", "up.weight_f"}, {"h0"}},
                 {"Tanh", {"h0"}, {"h"}},
                 {"MatMul", {"h", "out.weight"}, {"y"}}};
  model.weights = {{"out.weight", {8, 3}, tiny::Uniform(24, 0.6f, 4)}};
  model.Save(Path("columns.onnx"));
  std::string numbers(32, '\0'), zeros(8, '\0');
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<char>(NumberAt(5, static_cast<int64_t>(i), 200) - 100);
  for (size_t i = 0; i < zeros.size(); ++i) zeros[i] = static_cast<char>(i) - 4;
  std::vector<float> scales = tiny::Uniform(8, 0.01f, 9);
  Append(Path("columns.onnx"), {{"up.weight_q", kInt8, {4, 8}, numbers},
                                {"up.scale", kFloat, {8}, ToBytes(scales)},
                                {"up.zero", kInt8, {8}, zeros}});
  const Outcome o = Train("columns.onnx", "--epochs 4 --lora-rank 2 --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Summary("r")["trainable_parameters"], 2 * (4 + 8));
  EXPECT_TRUE(Stored("columns.onnx", "up.weight_q").SameBytes(Stored("r/model.onnx", "up.weight_q")));
  EXPECT_NEAR(Loss("--model r/model.onnx"), Summary("r")["eval"]["loss"].get<double>(), 1e-6);
}

// Returns the floats of MatMulNBits blocks of 4 bits with zero points, [outputs, inputs].
std::vector<double> Dequantize(const HostTensor& q, const HostTensor& scale, const HostTensor& zero, int64_t inputs) {
  const int64_t outputs = q.shape()[0], count = q.shape()[1], zero_bytes = (count + 1) / 2;
  std::vector<double> w;
  for (int64_t o = 0; o < outputs; ++o) {
    for (int64_t i = 0; i < inputs; ++i) {
      const int64_t b = i / kBlock;
      const int64_t number = q.IntAt((o * count * kBlock + i) / 2) >> (i % 2 * 4) & 15;
      const int64_t z = zero.IntAt(o * zero_bytes + b / 2) >> (b % 2 * 4) & 15;
      w.push_back(static_cast<double>(number - z) * scale.At(o * count + b));
    }
  }
  return w;
}

// The blocks of the written model are those nearest to W + s·B·A that a scale and a zero point for each allow.
TEST_F(QuantizedAdapters, RequantizeWritesTheSumInTheBlocks) {
  const Outcome o =
      Run("--model m.onnx --data d.npz --eval-data test.npz --batch-size 16 --lr 0.02 --epochs 6 "
          "--lora-rank 2 --merge requantize --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(absl::StrContains(o.out + o.err, "2 sums with adapters were quantized in the blocks of the file; larg"));
  EXPECT_TRUE(absl::StrContains(o.out + o.err, "requantized: evaluation loss ")) << o.out << o.err;
  const auto written = OnnxModel::Load(Path("r/model.onnx")), base = OnnxModel::Load(Path("m.onnx"));
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ((*written)->op_histogram(), (*base)->op_histogram());
  EXPECT_EQ((*written)->InitializerNames(), (*base)->InitializerNames());
  const Json sums = Summary("r")["requantized"];
  EXPECT_NEAR(Loss("--model r/model.onnx"), sums["eval_loss"].get<double>(), 1e-6);
  EXPECT_NEAR(Loss("--model m.onnx --adapter r/adapter"), sums["eval_loss_before"].get<double>(), 1e-6);
  const NamedArrays adapter = Adapter("r");
  std::map<std::string, double> errors;
  for (const auto& [module, inputs, outputs] : {std::tuple("net.up", 4, 40), std::tuple("net.mid", 40, 24)}) {
    const auto read = [&](const char* model) {
      const auto tensor = [&](const char* end) { return Stored(model, StrCat(module, end)); };
      return Dequantize(tensor(".weight_Q4"), tensor(".weight_scales"), tensor(".weight_zeros"), inputs);
    };
    const auto find = [&](const char* end) {
      const auto named = [&](const auto& array) { return absl::StrContains(array.first, StrCat(module, end)); };
      return std::ranges::find_if(adapter, named)->second;
    };
    const HostTensor a = find(".lora_A"), b = find(".lora_B");
    const std::vector<double> before = read("m.onnx"), after = read("r/model.onnx");
    double change = 0, error = 0, squares = 0;
    for (int64_t at = 0; at < outputs * inputs; ++at) {
      double sum = before[at];
      for (int64_t r = 0; r < 2; ++r) sum += 2 * b.At(at / inputs * 2 + r) * a.At(r * inputs + at % inputs);
      change += std::pow(sum - before[at], 2);
      error += std::pow(sum - after[at], 2);
      squares += sum * sum;
    }
    EXPECT_GT(change, 0) << module;
    EXPECT_LT(error, 0.3 * change) << module;
    errors[StrCat(module, ".weight_Q4")] = std::sqrt(error / squares);
  }
  const std::string worst = sums["largest_error_weight"];
  EXPECT_NEAR(sums["largest_error"], errors.at(worst), 1e-6);
  EXPECT_EQ(errors.at(worst), std::max(errors.begin()->second, errors.rbegin()->second));
  const Outcome exported = Run("export --model m.onnx --adapter r/adapter --merge requantize --out e.onnx");
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_TRUE(ReadAll(Path("e.onnx")) == ReadAll(Path("r/model.onnx")));
}

TEST_F(QuantizedAdapters, RequantizingZeroUpdatesChangesNothing) {
  for (const int64_t bits : {2, 4, 8}) {
    SaveBlocks("m.onnx", bits);
    const Outcome o = Run("export --model m.onnx --lora-rank 2 --merge requantize --out e.onnx");
    ASSERT_EQ(o.code, 0) << o.err;
    for (const char* module : {"net.up", "net.mid"}) {
      for (const char* end : {".weight_Q4", ".weight_scales", ".weight_zeros"})
        EXPECT_TRUE(Stored("m.onnx", StrCat(module, end)).SameBytes(Stored("e.onnx", StrCat(module, end)))) << end;
    }
  }
}

// Two weights of 8 bits, DequantizeLinear with one scale for each of 8 columns, which both read: it stays.
TEST_F(QuantizedAdapters, RequantizedColumnsShareScales) {
  tiny::Model model;
  model.nodes = {{"DequantizeLinear", {"up.weight_q", "scale"}, {"up.weight_f"}, {}, {{"axis", 1}}},
                 {"MatMul", {"x", "up.weight_f"}, {"h0"}},
                 {"Tanh", {"h0"}, {"h"}},
                 {"DequantizeLinear", {"mid.weight_q", "scale"}, {"mid.weight_f"}, {}, {{"axis", 1}}},
                 {"MatMul", {"h", "mid.weight_f"}, {"g"}},
                 {"MatMul", {"g", "out.weight"}, {"y"}}};
  model.weights = {{"out.weight", {8, 3}, tiny::Uniform(24, 0.6f, 4)}};
  model.Save(Path("m.onnx"));
  std::string up(32, '\0'), mid(64, '\0');
  for (std::string* numbers : {&up, &mid}) {
    for (size_t i = 0; i < numbers->size(); ++i)
      (*numbers)[i] = static_cast<char>(NumberAt(5, static_cast<int64_t>(i), 100) - 50);
  }
  const std::vector<float> scales = {0.01f, 0.012f, 0.008f, 0.01f, 0.02f, 0.009f, 0.011f, 0.01f};
  Append(Path("m.onnx"), {{"up.weight_q", kInt8, {4, 8}, up},
                          {"mid.weight_q", kInt8, {8, 8}, mid},
                          {"scale", kFloat, {8}, ToBytes(scales)}});
  const Outcome o = Train("m.onnx", "--epochs 4 --lora-rank 2 --merge requantize --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(Stored("m.onnx", "scale").SameBytes(Stored("r/model.onnx", "scale")));
  const HostTensor before = Stored("m.onnx", "up.weight_q"), after = Stored("r/model.onnx", "up.weight_q");
  EXPECT_FALSE(before.SameBytes(after));
  const double loss = Summary("r")["eval"]["loss"], base = Summary("r")["eval_before"]["loss"];
  EXPECT_LT(loss, base);
  EXPECT_NEAR(Loss("--model r/model.onnx"), loss, 0.02 * (base - loss));
}

TEST_F(QuantizedAdapters, RequantizeRefusesWhatHasNoSuchBlocks) {
  ExpectRefused(Train("float.onnx", "--lora-rank 2 --merge requantize --out r"),
                "--merge requantize: has no effect: the file stores the weights beside the adapters as floats");
  ExpectRefused(Train("m.onnx", "--merge requantize --out r"),
                "--merge: has no effect without --lora-rank or --adapter");
  ExpectRefused(Train("m.onnx", "--lora-rank 2 --adapter-out peft --merge requantize --out r"),
                "--merge: has no effect: --adapter-out writes no merged model");
  const Blocks up = MakeBlocks("net.up", 32, 8, 4);
  tiny::Model model;
  tiny::Op product = BlockProduct(up, "x", "h", 4);
  product.inputs.push_back("order");
  model.nodes = {product, {"MatMul", {"h", "out.weight"}, {"y"}}};
  model.weights = {{"out.weight", {8, 3}, tiny::Uniform(24, 0.6f, 4)}};
  model.Save(Path("order.onnx"));
  std::vector<Tensor> tensors = up.tensors;
  tensors.push_back({"order", 6, {32}, std::string(32 * 4, '\0')});
  Append(Path("order.onnx"), tensors);
  ExpectRefused(Run("export --model order.onnx --lora-rank 2 --merge requantize --out e.onnx"),
                "weight 'net.up.weight_Q4' has columns that name their blocks (g_idx)");
}

TEST_F(QuantizedAdapters, TruncatedBlocksAreRefused) {
  const Blocks up = MakeBlocks("net.up", 4, 40, 4);
  tiny::Model model;
  model.nodes = {BlockProduct(up, "x", "y", 4)};
  model.Save(Path("short.onnx"));
  std::vector<Tensor> tensors = up.tensors;
  tensors[0].shape[0] = 39;
  tensors[0].bytes.resize(39 * 8);
  Append(Path("short.onnx"), tensors);
  ExpectRefused(Train("short.onnx", "--lora-rank 2 --lora-target up --out r"),
                "weights u8[39,1,8] are not 40 by 1 blocks of 16");
}

}  // namespace
}  // namespace onnxtrain
