// Adapters beside weights that the file stores in half precision: the weights stay as stored, and the numbers are those
// of training beside their floats.
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backends/registry.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/read/parsed.h"
#include "optim/plan/adapters.h"
#include "optim/step/session.h"
#include "tests/tools/adapter_runs.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

struct Half {
  const char* name;
  DType dtype;
  int type;  // of TensorProto
};
constexpr Half kHalves[] = {{"f16", DType::kFloat16, 10}, {"bf16", DType::kBFloat16, 16}};

constexpr int64_t kTokens = 50, kWidth = 24, kInner = 40;

// ids [batch,6] → embedding → mean over tokens → tanh(·up) → tanh(·downᵀ) → ·embeddingᵀ [batch,50]
class HalfAdapters : public RunScratch {
 protected:
  HalfAdapters() {
    for (const auto& [name, samples, seed] : {std::tuple("d.npz", 96, 1u), std::tuple("test.npz", 30, 2u)}) {
      HostTensor ids({DType::kInt64, {samples, 6}}), labels({DType::kInt64, {samples}});
      const std::vector<float> draws = tiny::Uniform(static_cast<size_t>(ids.size()), 25, seed);
      for (int64_t i = 0; i < ids.size(); ++i) ids.SetInt(i, static_cast<int64_t>(draws[i] + 25));
      for (int64_t i = 0; i < labels.size(); ++i) labels.SetInt(i, ids.IntAt(6 * i) / 5);
      EXPECT_TRUE(WriteNpz(Path(name), {{"x", ids}, {"y", labels}}).ok());
    }
    for (const Half& half : kHalves) SaveBoth(half);
  }

  // Saves the model in half precision, and as "float-NAME.onnx" with the floats of its weights.
  void SaveBoth(const Half& half) {
    tiny::Model m;
    m.input_shape = {-1, 6};
    m.int_inputs = {"x"};
    m.nodes = {{"Gather", {"embed.weight", "x"}, {"e"}},
               {"ReduceMean", {"e"}, {"h0"}, {{"axes", {1}}}, {{"keepdims", 0}}},
               {"MatMul", {"h0", "up.weight"}, {"h1"}},
               {"Add", {"h1", "up.bias"}, {"h2"}},
               {"Tanh", {"h2"}, {"h3"}},
               {"Gemm", {"h3", "down.weight"}, {"h4"}, {}, {{"transB", 1}}},
               {"Tanh", {"h4"}, {"h5"}},
               {"Transpose", {"embed.weight"}, {"head"}, {{"perm", {1, 0}}}},
               {"MatMul", {"h5", "head"}, {"y"}}};
    m.weights = {{"embed.weight", {kTokens, kWidth}, tiny::Uniform(kTokens * kWidth, 1, 3)},
                 {"up.weight", {kWidth, kInner}, tiny::Uniform(kWidth * kInner, 0.4f, 4)},
                 {"up.bias", {kInner}, tiny::Uniform(kInner, 0.4f, 5)},
                 {"down.weight", {kWidth, kInner}, tiny::Uniform(kWidth * kInner, 0.4f, 6)}};
    for (tiny::Weight& w : m.weights) {
      const std::vector<double> values(w.values.begin(), w.values.end());
      const HostTensor stored = HostTensor::FromDoubles({half.dtype, w.shape}, values);
      for (size_t i = 0; i < w.values.size(); ++i) w.values[i] = static_cast<float>(stored.At(static_cast<int64_t>(i)));
      w.bytes = {reinterpret_cast<const char*>(stored.bytes().data()), stored.bytes().size()};
    }
    m.Save(Path(StrCat("float-", half.name, ".onnx")));
    for (tiny::Weight& w : m.weights) w.type = half.type;
    m.Save(Path(StrCat(half.name, ".onnx")));
  }

  Outcome Train(const std::string& model, const std::string& flags) const {
    return Run(StrCat("--model ", model, ".onnx --data d.npz --eval-data test.npz --batch-size 16 --lr 0.01 --loss ce ",
                      "--quiet --overwrite --out ", model, ".run ", flags));
  }

  // Returns the folder of an adapter whose values the type of the weights represents.
  std::string Start(const Half& half, const std::string& flags) const {
    const std::string run = StrCat(half.name, ".run"), start = StrCat(half.name, ".start");
    EXPECT_EQ(Train(half.name, "--max-steps 2 --lora-rank 2 " + flags).code, 0);
    EXPECT_EQ(rename(Path(run).c_str(), Path(start).c_str()), 0);
    const std::string path = Path(start + "/adapter/adapter_model.safetensors");
    std::string file = ReadAll(path);
    uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof(header));
    for (size_t at = sizeof(header) + header; at < file.size(); at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, file.data() + at, sizeof(value));
      value = static_cast<float>(HostTensor::Scalar(half.dtype, value).At(0));
      std::memcpy(file.data() + at, &value, sizeof(value));
    }
    std::ofstream(path, std::ios::binary) << file;
    return start + "/adapter";
  }

  HostTensor Stored(const std::string& model, const std::string& name) const {
    const auto loaded = OnnxModel::Load(Path(model));
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return (*loaded)->parsed().graph.initializers.at(name).Clone();
  }

  void ExpectEqualRuns(const std::string& a, const std::string& b, double tolerance) const {
    for (const char* when : {"eval_before", "eval"})
      EXPECT_NEAR(Summary(a + ".run")[when]["loss"], Summary(b + ".run")[when]["loss"].get<double>(), tolerance);
  }

  // Returns the programs of a step on the cpu.
  std::vector<Graph> Programs(const std::string& model) const;
};

TEST_F(HalfAdapters, TrainAsBesideTheFloats) {
  for (const Half& half : kHalves) {
    const std::string name = half.name, twin = "float-" + name;
    const std::string start = Start(half, "");
    for (const char* backend : {"cpu", "torch"}) {
      SCOPED_TRACE(name + backend);
      for (const std::string& model : {name, twin}) {
        const Outcome o = Train(model, StrCat("--epochs 3 --backend ", backend, " --adapter ", start));
        ASSERT_EQ(o.code, 0) << o.err;
      }
      ExpectEqualRuns(name, twin, 1e-6);
    }
  }
}

TEST_F(HalfAdapters, TrainInMixedPrecision) {
  for (const Half& half : kHalves) {
    const std::string name = half.name, twin = "float-" + name;
    for (const std::string& model : {name, twin}) {
      const Outcome o = Train(model, "--epochs 2 --lora-rank 2 --precision bf16");
      ASSERT_EQ(o.code, 0) << o.err;
    }
    ExpectEqualRuns(name, twin, 2e-2);
  }
}

TEST_F(HalfAdapters, MergedModelsHaveTheTypeOfTheFile) {
  for (const Half& half : kHalves) {
    const std::string model = half.name;
    const Outcome o = Train(model, "--epochs 4 --lora-rank 2");
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(Summary(model + ".run")["trainable_parameters"], 2 * 2 * (kWidth + kInner));
    const HostTensor before = Stored(model + ".onnx", "up.weight");
    const HostTensor after = Stored(model + ".run/model.onnx", "up.weight");
    EXPECT_EQ(after.type(), before.type());
    EXPECT_FALSE(after.SameBytes(before));
    EXPECT_TRUE(Stored(model + ".run/model.onnx", "embed.weight").SameBytes(Stored(model + ".onnx", "embed.weight")));
    const Outcome e = Run(StrCat("eval --data test.npz --json --quiet --loss ce --model ", model, ".run/model.onnx"));
    ASSERT_EQ(e.code, 0) << e.err;
    EXPECT_NEAR(Json::parse(e.out)["loss"], Summary(model + ".run")["eval"]["loss"].get<double>(), 5e-3);
  }
}

// A weight that is trained whole becomes floats.
TEST_F(HalfAdapters, TrainWholeWeights) {
  for (const Half& half : kHalves) {
    const std::string name = half.name, twin = "float-" + name;
    const std::string start = Start(half, "--lora-target up");
    for (const std::string& model : {name, twin}) {
      const Outcome o = Train(model, StrCat("--epochs 2 --train down.weight --train up.bias --adapter ", start));
      ASSERT_EQ(o.code, 0) << o.err;
      EXPECT_EQ(Summary(model + ".run")["trainable_parameters"], 2 * (kWidth + kInner) + kWidth * kInner + kInner);
    }
    ExpectEqualRuns(name, twin, 1e-6);
    const HostTensor after = Stored(name + ".run/model.onnx", "down.weight");
    EXPECT_EQ(after.dtype(), half.dtype);
    EXPECT_FALSE(after.SameBytes(Stored(name + ".onnx", "down.weight")));
  }
}

TEST_F(HalfAdapters, ResumeBitForBit) {
  ASSERT_EQ(Train("f16", "--epochs 4 --lora-rank 2 --train down.weight").code, 0);
  ASSERT_EQ(rename(Path("f16.run").c_str(), Path("whole").c_str()), 0);
  ASSERT_EQ(Train("f16", "--epochs 2 --lora-rank 2 --train down.weight").code, 0);
  const Outcome o = Run("--resume f16.run --epochs 4 --quiet");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(ReadAll(Path("f16.run/model.onnx")) == ReadAll(Path("whole/model.onnx")));
}

std::vector<Graph> HalfAdapters::Programs(const std::string& model) const {
  TrainConfig config;
  config.lora_rank = {"2"};
  const auto base = OnnxModel::Load(Path(model));
  EXPECT_TRUE(base.ok()) << base.status();
  const auto plan = PlanAdapters(config, **base);
  EXPECT_TRUE(plan.ok()) << plan.status();
  ModelEdits edits;
  edits.low_rank = plan->updates;
  const auto edited = (*base)->LoadEdited(edits);
  EXPECT_TRUE(edited.ok()) << edited.status();
  return PlanPrograms(*edited, 10);
}

// Neither pass has a value of the shape of a weight in floats, nor of the looked-up table.
TEST_F(HalfAdapters, NoProgramHasTheFloats) {
  for (const Half& half : kHalves) {
    int products = 0, halves = 0;
    for (const Graph& graph : Programs(StrCat(half.name, ".onnx"))) {
      for (const Node& node : graph.nodes()) products += node.op == "MatMulDequantized";
      for (size_t v = 0; v < graph.values().size(); ++v) {
        const Type& type = graph.type(static_cast<ValueId>(v));
        const bool weight = type.elements() == kWidth * kInner || type.elements() == kTokens * kWidth;
        halves += weight && type.dtype == half.dtype;
        EXPECT_FALSE(weight && IsFloat(type.dtype) && type.dtype != half.dtype) << ToString(type);
      }
    }
    EXPECT_GE(products, 5);  // forward, and backward through all but the first
    EXPECT_GE(halves, 3);
  }
}

}  // namespace
}  // namespace onnxtrain
