// Adapters beside a float base that is quantized in memory: the numbers are those of training beside the dequantized
// floats, no program holds floats of a weight, and the merged model is the file's base with the adapter.
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backends/registry.h"
#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/data/sources/safetensors.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/read/parsed.h"
#include "optim/plan/quantized_base.h"
#include "optim/step/session.h"
#include "tests/tools/adapter_runs.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

constexpr int64_t kTokens = 50, kWidth = 70, kInner = 90;
constexpr const char* kFormats[] = {"int4", "int8", "nf4"};

// ids [batch,6] → embedding → mean over tokens → tanh(·up) → tanh(·downᵀ) → ·head [batch,10]
// Returns the floats that blocks stand for.
std::vector<float> RealValues(const StoredBlocks& blocks) {
  Attrs attrs = blocks.matrix.ToAttrs();
  attrs.Set("dtype", std::string("f32"));
  std::vector<const HostTensor*> inputs = {&blocks.q, &blocks.scale};
  if (blocks.zero) inputs.push_back(&*blocks.zero);
  const std::vector<Type> types = {{DType::kFloat32, {blocks.matrix.rows, blocks.matrix.columns}}};
  const HostTensor y = FindOp("Dequantize")->evaluate({attrs, inputs, types})[0];
  return {y.data<float>().begin(), y.data<float>().end()};
}

class QuantizeBase : public RunScratch {
 protected:
  QuantizeBase() {
    for (const auto& [name, samples, seed] : {std::tuple("d.npz", 96, 1u), std::tuple("test.npz", 30, 2u)}) {
      HostTensor ids({DType::kInt64, {samples, 6}}), labels({DType::kInt64, {samples}});
      const std::vector<float> draws = tiny::Uniform(static_cast<size_t>(ids.size()), 25, seed);
      for (int64_t i = 0; i < ids.size(); ++i) ids.SetInt(i, static_cast<int64_t>(draws[i] + 25));
      for (int64_t i = 0; i < labels.size(); ++i) labels.SetInt(i, ids.IntAt(6 * i) / 5);
      EXPECT_TRUE(WriteNpz(Path(name), {{"x", ids}, {"y", labels}}).ok());
    }
    Save("m.onnx", DType::kFloat32, 1, {});
    Save("half.onnx", DType::kFloat16, 10, {});
  }

  using Values = std::map<std::string, std::vector<float>>;

  // Saves the model with its weights in `dtype`, number `type` of TensorProto; `values` replaces some of them.
  void Save(const std::string& name, DType dtype, int type, const Values& values) const {
    tiny::Model m;
    m.input_shape = {-1, 6};
    m.int_inputs = {"x"};
    m.nodes = {{"Gather", {"embed.weight", "x"}, {"e"}},
               {"ReduceMean", {"e"}, {"h0"}, {{"axes", {1}}}, {{"keepdims", 0}}},
               {"MatMul", {"h0", "up.weight"}, {"h1"}},
               {"Tanh", {"h1"}, {"h2"}},
               {"Gemm", {"h2", "down.weight"}, {"h3"}, {}, {{"transB", 1}}},
               {"Tanh", {"h3"}, {"h4"}},
               {"MatMul", {"h4", "head.weight"}, {"y"}}};
    m.weights = {{"embed.weight", {kTokens, kWidth}, tiny::Uniform(kTokens * kWidth, 1, 3)},
                 {"up.weight", {kWidth, kInner}, tiny::Uniform(kWidth * kInner, 0.4f, 4)},
                 {"down.weight", {kWidth, kInner}, tiny::Uniform(kWidth * kInner, 0.4f, 6)},
                 {"head.weight", {kWidth, 10}, tiny::Uniform(kWidth * 10, 0.4f, 7)}};
    for (tiny::Weight& w : m.weights) {
      if (const auto given = values.find(w.name); given != values.end()) w.values = given->second;
      const std::vector<double> wide(w.values.begin(), w.values.end());
      const HostTensor stored = HostTensor::FromDoubles({dtype, w.shape}, wide);
      w.bytes = {reinterpret_cast<const char*>(stored.bytes().data()), stored.bytes().size()};
      w.type = type;
    }
    m.Save(Path(name));
  }

  std::shared_ptr<const OnnxModel> Load(const std::string& model) const {
    auto loaded = OnnxModel::Load(Path(model));
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return *std::move(loaded);
  }

  static TrainConfig Config(const std::string& format) {
    TrainConfig config;
    config.lora_rank = {"2"};
    config.quantize_base = format;
    return config;
  }

  BaseBlocks Blocks(const std::string& model, const std::string& format) const {
    auto blocks = onnxtrain::QuantizeBase(Config(format), *Load(model), {});
    EXPECT_TRUE(blocks.ok()) << blocks.status();
    return *std::move(blocks);
  }

  // Saves "twin.onnx", whose floats are those that the blocks of the model stand for.
  void SaveTwin(const std::string& model, const std::string& format) const {
    Values values;
    const auto loaded = Load(model);
    for (const auto& [name, tensor] : loaded->parsed().graph.initializers) {
      const std::vector<double> stored = tensor.ToDoubles();
      values[name].assign(stored.begin(), stored.end());
    }
    const BaseBlocks blocks = Blocks(model, format);
    EXPECT_EQ(blocks.size(), 2);
    for (const auto& [name, stored] : blocks) values.at(name) = RealValues(*stored);
    Save("twin.onnx", DType::kFloat32, 1, values);
  }

  Outcome Train(const std::string& model, const std::string& flags) const {
    return Run(StrCat("--model ", model, " --data d.npz --eval-data test.npz --batch-size 16 --lr 0.01 --loss ce ",
                      "--quiet --overwrite --out ", model, ".run ", flags));
  }

  // Trains "start", an adapter whose values float16 represents, as those beside float16 weights are read.
  void MakeStart() const {
    EXPECT_EQ(Train("m.onnx", "--max-steps 2 --lora-rank 2").code, 0);
    EXPECT_EQ(rename(Path("m.onnx.run").c_str(), Path("start").c_str()), 0);
    const std::string path = Path("start/adapter/adapter_model.safetensors");
    std::string file = ReadAll(path);
    uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof(header));
    for (size_t at = sizeof(header) + header; at < file.size(); at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, file.data() + at, sizeof(value));
      value = static_cast<float>(HostTensor::Scalar(DType::kFloat16, value).At(0));
      std::memcpy(file.data() + at, &value, sizeof(value));
    }
    std::ofstream(path, std::ios::binary) << file;
  }

  NamedArrays Adapter(const std::string& run) const {
    auto arrays = ReadSafetensors(Path(run + "/adapter/adapter_model.safetensors"));
    EXPECT_TRUE(arrays.ok()) << arrays.status();
    return *std::move(arrays);
  }

  double Loss(const std::string& flags) const {
    const Outcome o = Run("eval --data test.npz --json --quiet --loss ce " + flags);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? Json::parse(o.out)["loss"].get<double>() : 0;
  }

  std::vector<Graph> Programs(const std::string& model, const std::string& format) const;
};

TEST_F(QuantizeBase, TrainsAsBesideTheDequantizedFloats) {
  MakeStart();
  for (const std::string model : {"m.onnx", "half.onnx"}) {
    for (const std::string format : kFormats) {
      for (const char* backend : {"cpu", "torch"}) {
        SCOPED_TRACE(model + " " + format + " " + backend);
        SaveTwin(model, format);
        const std::string flags = StrCat("--epochs 2 --adapter start --backend ", backend);
        ASSERT_EQ(Train("twin.onnx", flags).code, 0);
        const Outcome o = Train(model, StrCat(flags, " --quantize-base ", format));
        ASSERT_EQ(o.code, 0) << o.err;
        const Json quantized = Summary(model + ".run"), floats = Summary("twin.onnx.run");
        for (const char* when : {"eval_before", "eval"})
          EXPECT_NEAR(quantized[when]["loss"], floats[when]["loss"].get<double>(), 1e-6);
        const NamedArrays a = Adapter(model + ".run"), b = Adapter("twin.onnx.run");
        ASSERT_EQ(a.size(), b.size());
        for (size_t i = 0; i < a.size(); ++i) {
          for (int64_t e = 0; e < a[i].second.size(); ++e) ASSERT_NEAR(a[i].second.At(e), b[i].second.At(e), 1e-4);
        }
      }
    }
  }
}

// DoRA starts with the lengths of the dequantized weights, as in PEFT beside quantized layers.
TEST_F(QuantizeBase, TrainsMagnitudesAsBesideTheDequantizedFloats) {
  for (const std::string format : kFormats) {
    SCOPED_TRACE(format);
    SaveTwin("m.onnx", format);
    const std::string flags = "--epochs 2 --lora-rank 2 --lora-variant dora";
    ASSERT_EQ(Train("twin.onnx", flags).code, 0);
    const Outcome o = Train("m.onnx", StrCat(flags, " --quantize-base ", format));
    ASSERT_EQ(o.code, 0) << o.err;
    const double loss = Summary("m.onnx.run")["eval"]["loss"];
    EXPECT_NEAR(loss, Summary("twin.onnx.run")["eval"]["loss"].get<double>(), 1e-6);
    const NamedArrays a = Adapter("m.onnx.run"), b = Adapter("twin.onnx.run");
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      for (int64_t e = 0; e < a[i].second.size(); ++e) ASSERT_NEAR(a[i].second.At(e), b[i].second.At(e), 1e-4);
    }
    EXPECT_NEAR(Loss(StrCat("--model m.onnx --adapter m.onnx.run/adapter --quantize-base ", format)), loss, 1e-6);
    EXPECT_NEAR(Loss("--model m.onnx --adapter m.onnx.run/adapter"), Loss("--model m.onnx.run/model.onnx"), 1e-6);
  }
}

TEST_F(QuantizeBase, TrainsInBfloat16) {
  for (const std::string format : kFormats) {
    SaveTwin("m.onnx", format);
    ASSERT_EQ(Train("twin.onnx", "--epochs 2 --lora-rank 2 --precision bf16").code, 0);
    ASSERT_EQ(Train("m.onnx", "--epochs 2 --lora-rank 2 --precision bf16 --quantize-base " + format).code, 0);
    EXPECT_NEAR(Summary("m.onnx.run")["eval"]["loss"], Summary("twin.onnx.run")["eval"]["loss"].get<double>(), 2e-2);
  }
}

TEST_F(QuantizeBase, MergesIntoTheFloatsOfTheFile) {
  const Outcome o = Train("m.onnx", "--epochs 3 --lora-rank 2 --quantize-base nf4");
  ASSERT_EQ(o.code, 0) << o.err;
  const Json summary = Summary("m.onnx.run"), base = summary["quantized_base"];
  EXPECT_EQ(base["format"], "nf4");
  EXPECT_EQ(base["weights"], 2);
  EXPECT_EQ(base["file_bytes"], 2 * kWidth * kInner * 4);
  EXPECT_LT(base["bytes"].get<int64_t>() * 6, 2 * kWidth * kInner * 4);
  EXPECT_GT(base["largest_error"], 0.03);
  EXPECT_NEAR(Loss("--model m.onnx --adapter m.onnx.run/adapter --quantize-base nf4"),
              summary["eval"]["loss"].get<double>(), 1e-6);
  const double merged = Loss("--model m.onnx.run/model.onnx");
  EXPECT_NEAR(Loss("--model m.onnx --adapter m.onnx.run/adapter"), merged, 1e-6);
  EXPECT_GT(std::abs(merged - summary["eval"]["loss"].get<double>()), 1e-5);
  const Outcome exported = Run("export --model m.onnx --adapter m.onnx.run/adapter --out e.onnx");
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_TRUE(ReadAll(Path("e.onnx")) == ReadAll(Path("m.onnx.run/model.onnx")));
}

TEST_F(QuantizeBase, ResumesBitForBit) {
  for (const std::string format : kFormats) {
    const std::string flags = "--lora-rank 2 --quantize-base " + format;
    ASSERT_EQ(Train("m.onnx", "--epochs 4 --threads 1 " + flags).code, 0);
    const std::string whole = ReadAll(Path("m.onnx.run/adapter/adapter_model.safetensors"));
    ASSERT_EQ(Train("m.onnx", "--epochs 2 --threads 2 " + flags).code, 0);
    const Outcome o = Run("--resume m.onnx.run --epochs 4 --quiet");
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(ReadAll(Path("m.onnx.run/adapter/adapter_model.safetensors")) == whole) << format;
  }
}

// Weights that `train` names stay floats, and are trained.
TEST_F(QuantizeBase, LeavesWholeWeights) {
  const Outcome o =
      Train("m.onnx", "--epochs 2 --lora-rank 2 --lora-target up --train down.weight --quantize-base int4");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Summary("m.onnx.run")["quantized_base"]["weights"], 1);
  EXPECT_EQ(Summary("m.onnx.run")["trainable_parameters"], 2 * (kWidth + kInner) + kWidth * kInner);
}

// The gradients of one batch, of the adapter and of the weights that stay floats, are those beside the dequantized
// floats, and those of finite differences through the blocks.
TEST_F(QuantizeBase, GradientsOfAllFloatsAgree) {
  ASSERT_EQ(Train("m.onnx", "--max-steps 2 --lora-rank 2").code, 0);  // B is not zero
  ASSERT_EQ(rename(Path("m.onnx.run").c_str(), Path("start").c_str()), 0);
  const std::string all = " --adapter start --train embed.weight --train head.weight --loss ce --data d.npz --quiet";
  for (const std::string format : kFormats) {
    SCOPED_TRACE(format);
    SaveTwin("m.onnx", format);
    const std::string base = " --quantize-base " + format;
    ASSERT_EQ(Run("grad --model twin.onnx --batch-size 24 --out floats.npz" + all).code, 0);
    const Outcome o = Run("grad --model m.onnx --batch-size 24 --out blocks.npz" + all + base);
    ASSERT_EQ(o.code, 0) << o.err;
    const auto floats = ReadNpz(Path("floats.npz")), blocks = ReadNpz(Path("blocks.npz"));
    ASSERT_TRUE(floats.ok() && blocks.ok());
    std::map<std::string, HostTensor> others(floats->begin(), floats->end());
    int gradients = 0;
    for (const auto& [name, value] : *blocks) {
      ASSERT_TRUE(others.contains(name)) << name;
      const HostTensor& other = others.at(name);
      double difference = 0, squares = 0;
      for (int64_t i = 0; i < value.size(); ++i) {
        difference += std::pow(value.At(i) - other.At(i), 2);
        squares += std::pow(other.At(i), 2);
      }
      EXPECT_LE(difference, (name == "loss" ? 1e-12 : 1e-8) * squares) << name;
      gradients += name.starts_with("grad") && squares > 0;
    }
    EXPECT_EQ(gradients, 2 * 2 + 2);
    const Outcome check = Run("compare --model m.onnx --batch-size 24 --gradcheck 6" + all + base);
    EXPECT_EQ(check.code, 0) << check.out << check.err;
  }
}

TEST_F(QuantizeBase, RefusesWhatHasNoEffectOrNeedsFloats) {
  ExpectRefused(Train("m.onnx", "--quantize-base int4"),
                "--quantize-base: has no effect without --lora-rank or --adapter");
  ExpectRefused(Train("m.onnx", "--lora-rank 2 --quantize-base nf4 --lora-init pissa"),
                "--quantize-base nf4: --lora-init pissa needs the floats of 'up'");
  ExpectRefused(Train("m.onnx", "--lora-rank 2 --quantize-base int3"), "int3");
  std::vector<float> bad(kWidth * kInner, 0.1f);
  bad[7] = INFINITY;
  Save("bad.onnx", DType::kFloat32, 1, {{"down.weight", bad}});
  ExpectRefused(Train("bad.onnx", "--lora-rank 2 --quantize-base nf4"),
                "--quantize-base nf4: the weight of 'down' has numbers that are not finite");
}

// Returns the programs of a step on the cpu.
std::vector<Graph> QuantizeBase::Programs(const std::string& model, const std::string& format) const {
  const auto base = Load(model);
  const auto plan = PlanAdapters(Config(format), *base);
  EXPECT_TRUE(plan.ok()) << plan.status();
  ModelEdits edits;
  edits.low_rank = plan->updates;
  edits.blocks = Blocks(model, format);
  const auto edited = base->LoadEdited(edits);
  EXPECT_TRUE(edited.ok()) << edited.status();
  return PlanPrograms(*edited, 10);
}

TEST_F(QuantizeBase, NoProgramHasTheFloats) {
  for (const std::string model : {"m.onnx", "half.onnx"}) {
    for (const std::string format : kFormats) {
      int products = 0;
      for (const Graph& graph : Programs(model, format)) {
        for (const Node& node : graph.nodes()) products += node.op == "MatMulDequantized";
        for (size_t v = 0; v < graph.values().size(); ++v) {
          const Type& type = graph.type(static_cast<ValueId>(v));
          EXPECT_FALSE(IsFloat(type.dtype) && type.elements() == kWidth * kInner) << format << " " << ToString(type);
        }
      }
      EXPECT_GE(products, 3) << format;  // forward, and backward through all but the first
    }
  }
}

}  // namespace
}  // namespace onnxtrain
