// Low-rank adapters through the program: what is trained, what is written, and how it is read again.
#include <nlohmann/json.hpp>

#include "frontend/base/status.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/data/sources/safetensors.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/read/parsed.h"
#include "tests/tools/blobs.h"
#include "tests/tools/run_scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

// x[batch,4] → relu(x·w1ᵀ + b1) [batch,16] → relu(h·w2) [batch,8] → ·w3 + b3 [batch,3]: weights stored both ways, as
// Gemm with transB and as MatMul, in modules of PyTorch's names.
tiny::Model Net() {
  tiny::Model m;
  m.nodes = {{"Gemm", {"x", "net.up.weight", "net.up.bias"}, {"h0"}, {}, {{"transB", 1}}},
             {"Relu", {"h0"}, {"h"}},
             {"MatMul", {"h", "net.mid.weight"}, {"g0"}},
             {"Relu", {"g0"}, {"g"}},
             {"MatMul", {"g", "net.out.weight"}, {"y0"}},
             {"Add", {"y0", "net.out.bias"}, {"y"}}};
  m.weights = {{"net.up.weight", {16, 4}, tiny::Uniform(64, 0.7f, 1)},
               {"net.up.bias", {16}, tiny::Uniform(16, 0.1f, 2)},
               {"net.mid.weight", {16, 8}, tiny::Uniform(128, 0.5f, 3)},
               {"net.out.weight", {8, 3}, tiny::Uniform(24, 0.6f, 4)},
               {"net.out.bias", {3}, {0, 0, 0}}};
  return m;
}

class Adapters : public RunScratch {
 protected:
  Adapters() {
    Net().Save(Path("m.onnx"));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Blobs(96)).ok());
    EXPECT_TRUE(WriteNpz(Path("test.npz"), Blobs(30, {.seed = 8})).ok());
  }

  Outcome Train(const std::string& flags) const {
    return Run("--model m.onnx --data d.npz --eval-data test.npz --batch-size 16 --lr 0.02 --quiet " + flags);
  }

  HostTensor Weight(const std::string& model, const std::string& name) const {
    const auto loaded = OnnxModel::Load(Path(model));
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return (*loaded)->parsed().graph.initializers.at(name).Clone();
  }

  std::map<std::string, HostTensor> Adapter(const std::string& folder) const {
    const auto arrays = ReadSafetensors(Path(folder + "/adapter_model.safetensors"));
    EXPECT_TRUE(arrays.ok()) << arrays.status();
    return {arrays->begin(), arrays->end()};
  }
};

double Product(const HostTensor& b, const HostTensor& a, int64_t out, int64_t in) {
  double sum = 0;
  for (int64_t r = 0; r < a.shape()[0]; ++r) sum += b.At(out * b.shape()[1] + r) * a.At(r * a.shape()[1] + in);
  return sum;
}

TEST_F(Adapters, TrainTheUpdateAndMergeItIntoTheWeights) {
  const Outcome o = Train("--epochs 6 --lora-rank 2 --lora-alpha 3 --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  const Json summary = Summary("r");
  EXPECT_EQ(summary["trainable_parameters"], 2 * (4 + 16) + 2 * (16 + 8));  // not the output layer
  EXPECT_LT(summary["eval"]["loss"], summary["eval_before"]["loss"]);
  const auto adapter = Adapter("r/adapter");
  ASSERT_EQ(adapter.size(), 4u);
  for (const auto& [module, outputs_first] : {std::pair("net.up", true), {"net.mid", false}}) {
    const std::string name = std::string(module) + ".weight";
    const HostTensor &a = adapter.at(StrCat("base_model.model.", module, ".lora_A.weight")),
                     &b = adapter.at(StrCat("base_model.model.", module, ".lora_B.weight"));
    const HostTensor before = Weight("m.onnx", name), after = Weight("r/model.onnx", name);
    const int64_t outputs = b.shape()[0], inputs = a.shape()[1];
    double moved = 0;
    for (int64_t out = 0; out < outputs; ++out) {
      for (int64_t in = 0; in < inputs; ++in) {
        const int64_t at = outputs_first ? out * inputs + in : in * outputs + out;
        const double update = 3.0 / 2 * Product(b, a, out, in);
        EXPECT_NEAR(after.At(at) - before.At(at), update, 1e-6) << name;
        moved += std::abs(update);
      }
    }
    EXPECT_GT(moved, 0.1) << name;
  }
  for (const char* fixed : {"net.up.bias", "net.out.weight", "net.out.bias"})
    EXPECT_TRUE(Weight("m.onnx", fixed).SameBytes(Weight("r/model.onnx", fixed))) << fixed;
}

TEST_F(Adapters, WriteWhatPeftReads) {
  ASSERT_EQ(Train("--max-steps 2 --lora-rank 2 --lora-rank mid=3 --lora-target up --lora-target net.mid --out r").code,
            0);
  const Json config = Json::parse(ReadAll(Path("r/adapter/adapter_config.json")));
  EXPECT_EQ(config["peft_type"], "LORA");
  EXPECT_EQ(config["target_modules"], Json({"net.mid", "net.up"}));
  EXPECT_EQ(config["rank_pattern"].size(), 1u);
  EXPECT_FALSE(config["use_rslora"]);
  const auto adapter = Adapter("r/adapter");
  EXPECT_EQ(adapter.at("base_model.model.net.mid.lora_A.weight").shape(), (Shape{3, 16}));
  EXPECT_EQ(adapter.at("base_model.model.net.up.lora_B.weight").shape(), (Shape{16, 2}));
}

TEST_F(Adapters, AreReadByEvalExportAndTraining) {
  ASSERT_EQ(Train("--epochs 4 --lora-rank 2 --out r").code, 0);
  const Outcome merged = Run("eval --model r/model.onnx --data test.npz --json --quiet");
  const Outcome beside = Run("eval --model m.onnx --adapter r/adapter --data test.npz --json --quiet");
  ASSERT_EQ(beside.code, 0) << beside.err;
  EXPECT_NEAR(Json::parse(beside.out)["loss"], Json::parse(merged.out)["loss"].get<double>(), 1e-6);
  const Outcome exported = Run("export --model m.onnx --adapter r/adapter --out e.onnx");
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_TRUE(ReadAll(Path("e.onnx")) == ReadAll(Path("r/model.onnx")));
  ASSERT_EQ(Train("--max-steps 4 --adapter r/adapter --out more").code, 0);
  EXPECT_NEAR(Summary("more")["eval_before"]["loss"], Summary("r")["eval"]["loss"].get<double>(), 1e-6);
}

TEST_F(Adapters, ResumeBitForBit) {
  ASSERT_EQ(Train("--epochs 4 --lora-rank 2 --out whole").code, 0);
  ASSERT_EQ(Train("--epochs 2 --lora-rank 2 --out part").code, 0);
  const Outcome o = Run("--resume part --epochs 4 --quiet");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(ReadAll(Path("part/model.onnx")) == ReadAll(Path("whole/model.onnx")));
  EXPECT_TRUE(ReadAll(Path("part/adapter/adapter_model.safetensors")) ==
              ReadAll(Path("whole/adapter/adapter_model.safetensors")));
}

TEST_F(Adapters, OthersTrainBesideThem) {
  ASSERT_EQ(Train("--max-steps 3 --lora-rank 2 --lora-variant rslora --train net.out.bias --out r").code, 0);
  EXPECT_FALSE(Weight("m.onnx", "net.out.bias").SameBytes(Weight("r/model.onnx", "net.out.bias")));
  EXPECT_TRUE(Weight("m.onnx", "net.out.weight").SameBytes(Weight("r/model.onnx", "net.out.weight")));
  EXPECT_TRUE(Json::parse(ReadAll(Path("r/adapter/adapter_config.json")))["use_rslora"]);
}

// x[batch,6,4] → tanh(x·w) [batch,6,8], an encoder without a head.
TEST_F(Adapters, ANewHeadTrainsWhole) {
  tiny::Model encoder;
  encoder.input_shape = {-1, 6, 4};
  encoder.nodes = {{"MatMul", {"x", "encoder.dense.weight"}, {"h"}}, {"Tanh", {"h"}, {"y"}}};
  encoder.weights = {{"encoder.dense.weight", {4, 8}, tiny::Uniform(32, 0.8f, 3)}};
  encoder.Save(Path("encoder.onnx"));
  HostTensor x({DType::kFloat32, {48, 6, 4}}), labels({DType::kInt64, {48}});
  const std::vector<float> noise = tiny::Uniform(x.size(), 1, 5);
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, noise[static_cast<size_t>(i)] + (i % 4 == i / 24 % 3 ? 1 : 0));
  for (int64_t i = 0; i < labels.size(); ++i) labels.SetInt(i, i % 3);
  ASSERT_TRUE(WriteNpz(Path("seq.npz"), {{"x", x}, {"label", labels}}).ok());
  const Outcome o =
      Run("--model encoder.onnx --data seq.npz --head mean --num-classes 3 --lora-rank 2 --epochs 20 --lr 0.02 "
          "--quiet --out h");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Summary("h")["trainable_parameters"], 2 * (4 + 8) + 3 * 8 + 3);
  EXPECT_LT(Summary("h")["final_loss"], 0.7);
  EXPECT_EQ(Json::parse(ReadAll(Path("h/adapter/adapter_config.json")))["modules_to_save"], Json({"head"}));
  EXPECT_EQ(Adapter("h/adapter").at("base_model.model.head.weight").shape(), (Shape{3, 8}));
}

// Two products share one weight, as the layers of ALBERT do, and a third one reads it transposed in another model.
TEST_F(Adapters, ASharedWeightHasOneAdapter) {
  tiny::Model shared;
  shared.input_shape = {-1, 4};
  shared.nodes = {{"MatMul", {"x", "layer.weight"}, {"h0"}},
                  {"Tanh", {"h0"}, {"h1"}},
                  {"MatMul", {"h1", "layer.weight"}, {"h2"}},
                  {"Tanh", {"h2"}, {"h"}},
                  {"MatMul", {"h", "out.weight"}, {"y"}}};
  shared.weights = {{"layer.weight", {4, 4}, tiny::Uniform(16, 0.9f, 3)},
                    {"out.weight", {4, 3}, tiny::Uniform(12, 0.9f, 4)}};
  shared.Save(Path("shared.onnx"));
  const std::string line = " --data d.npz --eval-data test.npz --epochs 6 --lr 0.05 --lora-rank 2 --quiet --out ";
  const Outcome o = Run("--model shared.onnx" + line + "s");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Summary("s")["trainable_parameters"], 2 * (4 + 4));
  EXPECT_LT(Summary("s")["eval"]["loss"], Summary("s")["eval_before"]["loss"]);
  const Outcome merged = Run("eval --model s/model.onnx --data test.npz --json --quiet");
  EXPECT_NEAR(Json::parse(merged.out)["loss"], Summary("s")["eval"]["loss"].get<double>(), 1e-6);

  shared.nodes[2] = {"Gemm", {"h1", "layer.weight"}, {"h2"}, {}, {{"transB", 1}}};
  shared.Save(Path("mixed.onnx"));
  ExpectRefused(Run("--model mixed.onnx" + line + "m"), "the model has no product but its output layer");
}

TEST_F(Adapters, OverwritingRemovesTheOldAdapter) {
  ASSERT_EQ(Train("--max-steps 1 --lora-rank 2 --out r").code, 0);
  ASSERT_EQ(Train("--max-steps 1 --out r --overwrite").code, 0);
  EXPECT_FALSE(Exists("r/adapter"));
}

TEST_F(Adapters, GradientsAreThoseOfFiniteDifferences) {
  ASSERT_EQ(Train("--max-steps 3 --lora-rank 2 --out r").code, 0);  // B is not zero
  const Outcome o = Run("compare --model m.onnx --data d.npz --adapter r/adapter --gradcheck 6 --json --quiet");
  EXPECT_EQ(o.code, 0) << o.out << o.err;
}

TEST_F(Adapters, WrongRequestsAreRefused) {
  const auto refused = [&](const std::string& flags, const std::string& part) {
    ExpectRefused(Train(flags + " --out r"), part);
    EXPECT_FALSE(Exists("r/model.onnx")) << flags;
  };
  refused("--lora-rank 0", "--lora-rank 0: expected R or GLOB=R, R at least 1");
  refused("--lora-rank x", "--lora-rank x: expected R or GLOB=R");
  refused("--lora-rank 5", "--lora-rank 5: the weight of 'net.up' is 16 × 4: at most 4");
  refused("--lora-rank 2 --lora-target q_proj",
          "--lora-target q_proj: matches no product with a stored matrix; there are up, mid, out");
  refused("--lora-rank up=2", "no rank for 'net.mid'");
  refused("--lora-rank 2 --lora-rank nope=3", "nope=3: matches none of the targets");
  refused("--lora-alpha 4", "--lora-alpha: has no effect without --lora-rank");
  refused("--adapter nowhere", "nowhere/adapter_config.json");
}

TEST_F(Adapters, AdaptersOfOtherModelsAreRefused) {
  ASSERT_EQ(Train("--max-steps 1 --lora-rank 2 --out r").code, 0);
  tiny::Model other = Net();
  other.nodes[2].inputs[1] = other.weights[2].name = "net.middle.weight";
  other.Save(Path("other.onnx"));
  ExpectRefused(Run("eval --model other.onnx --adapter r/adapter --data test.npz"),
                "the model has no product of its module 'net.mid'; there are up, middle, out");
  const std::string file = Path("r/adapter/adapter_model.safetensors"), bytes = ReadAll(file);
  WriteAll(file, bytes.substr(0, bytes.size() - 8));
  ExpectRefused(Run("eval --model m.onnx --adapter r/adapter --data test.npz"), "adapter_model.safetensors");
  std::string nan = bytes;
  nan.replace(nan.size() - 4, 4, "\xff\xff\xff\xff");
  WriteAll(file, nan);
  ExpectRefused(Run("eval --model m.onnx --adapter r/adapter --data test.npz"), "is not finite");
}

}  // namespace
}  // namespace onnxtrain
