// Adapters beside products of integers: x is quantized when the program runs (onnxruntime's quantize_dynamic).
#include <cstring>
#include <nlohmann/json.hpp>

#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/read/parsed.h"
#include "optim/plan/adapters.h"
#include "tests/tools/adapter_runs.h"
#include "tests/tools/blobs.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

// x[batch,4] → ·up [batch,8] by MatMulInteger → tanh → ·mid [batch,8] by DynamicQuantizeMatMul → ·out + b [batch,3].
// `scale` of each weight stands for integers of -100…100.
class IntegerAdapters : public RunScratch {
 protected:
  IntegerAdapters() {
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Blobs(96)).ok());
    EXPECT_TRUE(WriteNpz(Path("test.npz"), Blobs(30, {.seed = 8})).ok());
    tiny::Model m;
    m.nodes = {{"DynamicQuantizeLinear", {"x"}, {"xq", "xs", "xz"}},
               {"Mul", {"xs", "net.up.weight_scale"}, {"scales"}},
               {"MatMulInteger", {"xq", "net.up.weight_quantized", "xz", "zero"}, {"sums"}},
               {"Cast", {"sums"}, {"floats"}, {}, {{"to", 1}}},
               {"Mul", {"floats", "scales"}, {"h0"}},
               {"Tanh", {"h0"}, {"h"}},
               {"DynamicQuantizeMatMul",
                {"h", "net.mid.weight_quantized", "net.mid.weight_scale", "zero"},
                {"g"},
                {},
                {},
                "com.microsoft"},
               {"MatMul", {"g", "net.out.weight"}, {"y0"}},
               {"Add", {"y0", "net.out.bias"}, {"y"}}};
    m.weights = {{"net.up.weight_scale", {}, {0.006f}},
                 {"net.mid.weight_scale", {}, {0.004f}},
                 {"net.out.weight", {8, 3}, tiny::Uniform(24, 0.6f, 4)},
                 {"net.out.bias", {3}, {0, 0, 0}}};
    m.weights.push_back(Integers("net.up.weight_quantized", {4, 8}, 5));
    m.weights.push_back(Integers("net.mid.weight_quantized", {8, 8}, 6));
    m.weights.push_back(Integers("zero", {}, 0));
    m.Save(Path("m.onnx"));
    SaveQuantized();
    SavePairs();
  }

  // q.onnx: x → ·up by QLinearMatMul → tanh → ·midᵀ + b by QGemm, with a scale and zero point for each output → ·out.
  void SaveQuantized() const {
    tiny::Model m;
    m.nodes = {{"QuantizeLinear", {"x", "xs", "xz"}, {"xq"}},
               {"QLinearMatMul", {"xq", "xs", "xz", "net.up.weight", "us", "uz", "hs", "xz"}, {"hq"}},
               {"DequantizeLinear", {"hq", "hs", "xz"}, {"h0"}},
               {"Tanh", {"h0"}, {"h1"}},
               {"QuantizeLinear", {"h1", "gs", "gz"}, {"gq"}},
               {"QGemm",
                {"gq", "gs", "gz", "net.mid.weight", "ms", "mz", "b", "ys", "xz"},
                {"yq"},
                {},
                {{"transB", 1}},
                "com.microsoft"},
               {"DequantizeLinear", {"yq", "ys", "xz"}, {"g"}},
               {"MatMul", {"g", "net.out.weight"}, {"y"}}};
    std::vector<float> scales(8);
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.004f + 0.0005f * static_cast<float>(i);
    m.weights = {{"xs", {}, {0.04f}},
                 {"us", {}, {0.006f}},
                 {"hs", {}, {0.05f}},
                 {"gs", {}, {0.008f}},
                 {"ms", {8}, scales},
                 {"ys", {}, {0.05f}},
                 {"net.out.weight", {8, 3}, tiny::Uniform(24, 0.6f, 4)},
                 Integers("net.up.weight", {4, 8}, 5),
                 Integers("net.mid.weight", {8, 8}, 6),
                 Integers("mz", {8}, 7),
                 Integers("uz", {}, 8),
                 Integers("xz", {}, 0),
                 Integers("gz", {}, 0)};
    m.weights.push_back(Bias());
    m.Save(Path("q.onnx"));
  }

  // qdq.onnx: floats between pairs of QuantizeLinear and DequantizeLinear, also around the output: x → ·upᵀ, with a
  // scale for each output, → tanh → ·mid → ·out.
  void SavePairs() const {
    tiny::Model m;
    const auto pair = [&](const std::string& from, const std::string& to, const std::string& scale) {
      m.nodes.push_back({"QuantizeLinear", {from, scale, "xz"}, {to + "_q"}});
      m.nodes.push_back({"DequantizeLinear", {to + "_q", scale, "xz"}, {to}});
    };
    pair("x", "x1", "xs");
    m.nodes.push_back({"DequantizeLinear", {"net.up.weight", "us", "uz"}, {"up"}, {}, {{"axis", 0}}});
    m.nodes.push_back({"DequantizeLinear", {"b", "bs"}, {"bias"}, {}, {{"axis", 0}}});
    m.nodes.push_back({"Gemm", {"x1", "up", "bias"}, {"h0"}, {}, {{"transB", 1}}});
    pair("h0", "h1", "ys");
    m.nodes.push_back({"Tanh", {"h1"}, {"h"}});
    m.nodes.push_back({"DequantizeLinear", {"net.mid.weight", "ms"}, {"mid"}});
    m.nodes.push_back({"MatMul", {"h", "mid"}, {"g0"}});
    pair("g0", "g", "ys");
    m.nodes.push_back({"MatMul", {"g", "net.out.weight"}, {"y0"}});
    pair("y0", "y", "ys");
    m.weights = {{"xs", {}, {0.04f}},
                 {"us", {8}, tiny::Uniform(8, 0.004f, 3)},
                 {"ms", {}, {0.005f}},
                 {"ys", {}, {0.05f}},
                 {"net.out.weight", {8, 3}, tiny::Uniform(24, 0.6f, 4)},
                 Integers("net.up.weight", {8, 4}, 5),
                 Integers("net.mid.weight", {8, 8}, 6),
                 Integers("uz", {8}, 0),
                 Integers("xz", {}, 0)};
    std::vector<float> bias_scales;
    for (float& scale : m.weights[1].values) {
      scale = 0.006f + scale / 2;
      bias_scales.push_back(0.04f * scale);
    }
    m.weights.push_back({"bs", {8}, bias_scales});
    m.weights.push_back(Bias());
    m.Save(Path("qdq.onnx"));
  }

  static tiny::Weight Bias() {
    std::vector<int32_t> bias(8);
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<int32_t>(i * 300) - 1000;
    return {.name = "b",
            .shape = {8},
            .type = 6,
            .bytes = {reinterpret_cast<const char*>(bias.data()), bias.size() * sizeof(int32_t)}};
  }

  // Returns a weight of int8; zero for seed 0.
  static tiny::Weight Integers(const std::string& name, const Shape& shape, uint32_t seed) {
    constexpr int kInt8 = 3;  // of TensorProto
    std::string bytes;
    for (const float v : tiny::Uniform(static_cast<size_t>(NumElements(shape)), 100, seed))
      bytes += static_cast<char>(seed == 0 ? 0 : static_cast<int>(v));
    tiny::Weight w{name, shape, {}};
    w.bytes = bytes;
    w.type = kInt8;
    return w;
  }

  Outcome Train(const std::string& flags) const {
    return Run("--model m.onnx --data d.npz --eval-data test.npz --batch-size 16 --lr 0.02 --quiet " + flags);
  }

  HostTensor Stored(const std::string& model, const std::string& name) const {
    const auto loaded = OnnxModel::Load(Path(model));
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return (*loaded)->parsed().graph.initializers.at(name).Clone();
  }

  // The ranges of activations, and with them the loss, depend on the batch.
  double Loss(const std::string& model_flags) const {
    const Outcome o = Run("eval --data test.npz --batch-size 16 --json --quiet " + model_flags);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? Json::parse(o.out)["loss"].get<double>() : 0;
  }
};

TEST_F(IntegerAdapters, TrainBesideTheIntegers) {
  const Outcome o = Train("--epochs 6 --lora-rank 2 --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Summary("r")["trainable_parameters"], 2 * (4 + 8) + 2 * (8 + 8));  // not the output layer
  const double loss = Summary("r")["eval"]["loss"];
  EXPECT_LT(loss, 0.8 * Summary("r")["eval_before"]["loss"].get<double>());
  for (const char* name : {"net.up.weight_quantized", "net.mid.weight_quantized", "net.up.weight_scale"})
    EXPECT_TRUE(Stored("m.onnx", name).SameBytes(Stored("r/model.onnx", name))) << name;
  EXPECT_EQ(Stored("r/model.onnx", "net.up.lora_A.weight").shape(), (Shape{4, 2}));
  EXPECT_NEAR(Loss("--model r/model.onnx"), loss, 1e-6);
  EXPECT_NEAR(Loss("--model m.onnx --adapter r/adapter"), loss, 1e-6);
  const Outcome exported = Run("export --model m.onnx --adapter r/adapter --out e.onnx");
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_TRUE(ReadAll(Path("e.onnx")) == ReadAll(Path("r/model.onnx")));
}

// The low-rank path reads the floats, not the rounded ones: the gradients of A and B are those of plain products in
// the written model.
TEST_F(IntegerAdapters, GradientsAreThoseOfTheWrittenModel) {
  ASSERT_EQ(Train("--epochs 1 --lora-rank 2 --out r").code, 0);
  const std::string flags = " --data d.npz --batch-size 24 --quiet";
  ASSERT_EQ(Run("grad --model m.onnx --adapter r/adapter --out beside.npz" + flags).code, 0);
  ASSERT_EQ(Run("grad --model r/model.onnx --train *lora_?.weight --out written.npz" + flags).code, 0);
  const auto beside = ReadNpz(Path("beside.npz")), written = ReadNpz(Path("written.npz"));
  ASSERT_TRUE(beside.ok() && written.ok());
  const std::map<std::string, HostTensor> others(written->begin(), written->end());
  int compared = 0;
  for (const auto& [name, gradient] : *beside) {
    if (name.find("lora_") == std::string::npos) continue;
    ASSERT_TRUE(others.contains(name)) << name;
    const HostTensor& other = others.at(name);  // the transpose
    const int64_t rows = gradient.shape()[0], columns = gradient.shape()[1];
    for (int64_t i = 0; i < gradient.size(); ++i)
      EXPECT_NEAR(gradient.At(i), other.At(i % columns * rows + i / columns), 1e-6) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 4);
}

// The adapter reads x, and adds to the result, as the floats that the integers stand for.
TEST_F(IntegerAdapters, TrainBesideQuantizedResults) {
  for (const auto& [backend, model] :
       {std::pair("cpu", "q.onnx"), {"torch", "q.onnx"}, {"cpu", "qdq.onnx"}, {"torch", "qdq.onnx"}}) {
    SCOPED_TRACE(StrCat(backend, " ", model));
    const Outcome o =
        Run(StrCat("--model ", model, " --data d.npz --eval-data test.npz --batch-size 16 --lr 0.02 --quiet ",
                   "--epochs 6 --lora-rank 2 --overwrite --out r --backend ", backend));
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(Summary("r")["trainable_parameters"], 2 * (4 + 8) + 2 * (8 + 8));
    const double loss = Summary("r")["eval"]["loss"];
    EXPECT_LT(loss, 0.9 * Summary("r")["eval_before"]["loss"].get<double>());
    for (const char* name : {"net.up.weight", "net.mid.weight", "ms"})
      EXPECT_TRUE(Stored(model, name).SameBytes(Stored("r/model.onnx", name))) << name;
    EXPECT_NEAR(Loss("--model r/model.onnx"), loss, 1e-6);
    EXPECT_NEAR(Loss(StrCat("--model ", model, " --adapter r/adapter")), loss, 1e-6);
  }
}

// Sums are quantized in the integers of the file. The scale of a bias is that of its weight times that of x: it stays.
TEST_F(IntegerAdapters, SumsKeepTheScalesOfBiases) {
  for (const char* model : {"m.onnx", "q.onnx", "qdq.onnx"}) {
    SCOPED_TRACE(model);
    const Outcome o = Run(StrCat("--model ", model, " --data d.npz --eval-data test.npz --batch-size 16 --lr 0.02 ",
                                 "--quiet --epochs 6 --lora-rank 2 --overwrite --out r --merge requantize"));
    ASSERT_EQ(o.code, 0) << o.err;
    const double before = Summary("r")["eval_before"]["loss"], after = Summary("r")["eval"]["loss"];
    EXPECT_NEAR(Loss("--model r/model.onnx"), after, 0.2 * (before - after));
    const std::string weight = model[0] == 'm' ? "net.up.weight_quantized" : "net.up.weight";
    EXPECT_FALSE(Stored(model, weight).SameBytes(Stored("r/model.onnx", weight)));
    const std::string scale = model[0] == 'm' ? "net.up.weight_scale" : model[1] == 'd' ? "us" : "ms";
    EXPECT_TRUE(Stored(model, scale).SameBytes(Stored("r/model.onnx", scale)));
  }
}

// All programs read the integers of the frozen weights; none has their floats.
TEST_F(IntegerAdapters, NoProgramHasTheFloats) {
  for (const char* model : {"m.onnx", "q.onnx", "qdq.onnx"}) {
    SCOPED_TRACE(model);
    TrainConfig config;
    config.lora_rank = {"2"};
    const auto base = OnnxModel::Load(Path(model));
    ASSERT_TRUE(base.ok()) << base.status();
    const auto plan = PlanAdapters(config, **base);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ModelEdits edits;
    edits.low_rank = plan->updates;
    const auto edited = (*base)->LoadEdited(edits);
    ASSERT_TRUE(edited.ok()) << edited.status();
    int stored = 0;
    for (const Graph& graph : PlanPrograms(*edited, 3)) {
      for (size_t v = 0; v < graph.values().size(); ++v) {
        const Type& type = graph.type(static_cast<ValueId>(v));
        if (type.shape != Shape{4, 8} && type.shape != Shape{8, 4} && type.shape != Shape{8, 8}) continue;
        stored += type.dtype == DType::kInt8;
        EXPECT_FALSE(IsFloat(type.dtype)) << ToString(type);
      }
    }
    EXPECT_GE(stored, 2);
  }
}

TEST_F(IntegerAdapters, RefuseMagnitudes) {
  ExpectRefused(Train("--lora-rank 2 --lora-variant dora --out r"),
                "'net.up' multiplies integers: magnitudes (DoRA) need a product of floats");
}

}  // namespace
}  // namespace onnxtrain
