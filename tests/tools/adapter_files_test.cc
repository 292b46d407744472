// Files of adapters: whole weights, sums of several, and bad ones.
#include <cmath>
#include <filesystem>
#include <limits>

#include "frontend/base/status.h"
#include "tests/tools/adapter_runs.h"

namespace onnxtrain {
namespace {

constexpr char kPeft[] = "base_model.model.";

class AdapterFiles : public AdapterRuns {
 protected:
  using Tensors = std::map<std::string, HostTensor>;

  void Write(const std::string& folder, const Tensors& tensors) const {
    std::vector<NamedType> types;
    std::string bytes;
    for (const auto& [name, value] : tensors) {
      types.push_back({name, value.type()});
      bytes.append(reinterpret_cast<const char*>(value.bytes().data()), value.bytes().size());
    }
    const auto header = SafetensorsHeader(types);
    ASSERT_TRUE(header.ok()) << header.status();
    WriteAll(Path(folder + "/adapter_model.safetensors"), *header + bytes);
  }

  Json Config(const std::string& folder) const { return Json::parse(ReadAll(Path(folder + "/adapter_config.json"))); }
  void SetConfig(const std::string& folder, const std::string& key, const Json& value) const {
    Json config = Config(folder);
    config[key] = value;
    WriteAll(Path(folder + "/adapter_config.json"), config.dump());
  }

  double Loss(const std::string& flags) const {
    const Outcome o = Run("eval --data test.npz --json --quiet " + flags);
    EXPECT_EQ(o.code, 0) << flags << o.err;
    return o.code != 0 ? std::nan("") : Json::parse(o.out)["loss"].get<double>();
  }

  void Export(const std::string& flags, const std::string& out) const {
    const Outcome o = Run("export --model m.onnx " + flags + " --out " + out);
    ASSERT_EQ(o.code, 0) << flags << o.err;
  }

  // An adapter that evaluation and training refuse; nothing is written.
  void ExpectBad(const std::string& adapter, const std::string& part) const {
    ExpectRefused(Run("eval --model m.onnx --data test.npz --adapter " + adapter), part);
    ExpectRefused(Train("--max-steps 1 --out bad --adapter " + adapter), part);
    EXPECT_FALSE(Exists("bad")) << adapter;
    ExpectRefused(Run("export --model m.onnx --out bad.onnx --adapter " + adapter), part);
    EXPECT_FALSE(Exists("bad.onnx")) << adapter;
  }
};

TEST_F(AdapterFiles, HoldEveryTrainedWeight) {
  ASSERT_EQ(Train("--epochs 4 --lora-rank 2 --train net.out.weight --train net.out.bias --out r").code, 0);
  EXPECT_EQ(Config("r/adapter")["modules_to_save"], Json({"net.out"}));
  EXPECT_EQ(Config("r/adapter")["bias"], "none");
  const Tensors tensors = Adapter("r/adapter");
  ASSERT_EQ(tensors.size(), 6u);
  // The file stores [inputs, outputs], PyTorch the transpose.
  const HostTensor stored = Weight("r/model.onnx", "net.out.weight"),
                   saved = tensors.at("base_model.model.net.out.weight");
  ASSERT_EQ(saved.shape(), (Shape{3, 8}));
  for (int64_t i = 0; i < 24; ++i) EXPECT_EQ(saved.At(i % 3 * 8 + i / 3), stored.At(i));
  EXPECT_NEAR(Loss("--model m.onnx --adapter r/adapter"), Loss("--model r/model.onnx"), 1e-6);
  Export("--adapter r/adapter", "e.onnx");
  EXPECT_TRUE(ReadAll(Path("e.onnx")) == ReadAll(Path("r/model.onnx")));

  ASSERT_EQ(Train("--max-steps 4 --adapter r/adapter --out more").code, 0);  // continues all of them
  EXPECT_EQ(Summary("more")["trainable_parameters"], Summary("r")["trainable_parameters"]);
  EXPECT_NEAR(Summary("more")["eval_before"]["loss"], Summary("r")["eval"]["loss"].get<double>(), 1e-6);
  EXPECT_FALSE(Weight("more/model.onnx", "net.out.weight").SameBytes(stored));
  EXPECT_EQ(Adapter("more/adapter").size(), 6u);
}

TEST_F(AdapterFiles, BiasesAreSavedWithoutTheirModules) {
  ASSERT_EQ(Train("--epochs 4 --lora-rank 2 --train '*.bias' --out r").code, 0);
  EXPECT_EQ(Config("r/adapter")["bias"], "all");
  EXPECT_TRUE(Config("r/adapter")["modules_to_save"].is_null());
  const Tensors tensors = Adapter("r/adapter");
  EXPECT_TRUE(tensors.contains("base_model.model.net.up.base_layer.bias"));
  EXPECT_TRUE(tensors.contains("base_model.model.net.out.bias"));
  EXPECT_NEAR(Loss("--model m.onnx --adapter r/adapter"), Loss("--model r/model.onnx"), 1e-6);
}

TEST_F(AdapterFiles, AModuleTrainsWholeOrHasAnAdapter) {
  ASSERT_EQ(Train("--max-steps 2 --lora-rank 2 --train net.up.weight --train net.up.bias --out r").code, 0);
  EXPECT_EQ(Config("r/adapter")["target_modules"], Json({"net.mid"}));
  EXPECT_EQ(Config("r/adapter")["modules_to_save"], Json({"net.up"}));
  ExpectRefused(Train("--lora-rank 2 --lora-target up --train net.up.weight --out x"),
                "--lora-target up: --train trains the weight of 'net.up' whole");
  ExpectRefused(Train("--lora-rank 2 --train '*' --out x"), "--train trains the weights of all products whole");
}

TEST_F(AdapterFiles, NamesOfOlderVersionsAreRead) {
  ASSERT_EQ(Train("--epochs 4 --lora-rank 2 --train net.out.weight --train net.out.bias --out r").code, 0);
  const double loss = Loss("--model m.onnx --adapter r/adapter");
  Tensors old;
  for (const auto& [name, value] : Adapter("r/adapter")) {
    const std::string last = name.substr(name.rfind('.')), module = name.substr(0, name.rfind('.'));
    if (module.ends_with("net.out")) {
      old[StrCat(module, ".modules_to_save", last)] = value;
      old[StrCat(module, ".original_module", last)] = HostTensor::Filled(value.type(), 7);
    } else {
      old[StrCat(module, ".default", last)] = value;
    }
  }
  std::filesystem::copy(Path("r/adapter"), Path("old"));
  Write("old", old);
  EXPECT_EQ(Loss("--model m.onnx --adapter old"), loss);
}

TEST_F(AdapterFiles, AreFoundByFolderRunAndFile) {
  ASSERT_EQ(Train("--epochs 2 --lora-rank 2 --out r").code, 0);
  const double loss = Loss("--model m.onnx --adapter r/adapter");
  EXPECT_EQ(Loss("--model m.onnx --adapter r"), loss);
  EXPECT_EQ(Loss("--model m.onnx --adapter r/adapter/adapter_model.safetensors"), loss);
}

TEST_F(AdapterFiles, SeveralAddUp) {
  ASSERT_EQ(Train("--epochs 4 --lora-rank 2 --train net.out.bias --out a").code, 0);
  ASSERT_EQ(Train("--epochs 4 --lora-rank 3 --lora-target up --lora-target out --lora-alpha 5 --seed 4 --out b").code,
            0);
  Export("--adapter a/adapter=0.7 --adapter b/adapter=-0.3", "e.onnx");
  for (const char* name : {"net.up.weight", "net.mid.weight", "net.out.weight", "net.out.bias"}) {
    const HostTensor base = Weight("m.onnx", name), a = Weight("a/model.onnx", name), b = Weight("b/model.onnx", name),
                     sum = Weight("e.onnx", name);
    for (int64_t i = 0; i < base.size(); ++i)
      EXPECT_NEAR(sum.At(i), base.At(i) + 0.7 * (a.At(i) - base.At(i)) - 0.3 * (b.At(i) - base.At(i)), 1e-6) << name;
  }
  EXPECT_NEAR(Loss("--model m.onnx --adapter a/adapter=0.7 --adapter b/adapter=-0.3"), Loss("--model e.onnx"), 1e-6);
  Export("--adapter 'a/adapter*0.7+b/adapter*-0.3'", "f.onnx");
  EXPECT_TRUE(ReadAll(Path("e.onnx")) == ReadAll(Path("f.onnx")));
  Export("--adapter a/adapter=0", "zero.onnx");
  EXPECT_TRUE(Weight("zero.onnx", "net.mid.weight").SameBytes(Weight("m.onnx", "net.mid.weight")));
  ExpectRefused(Train("--adapter a/adapter --adapter b/adapter --out c"),
                "--adapter: training continues one adapter, not the sum of 2");
  EXPECT_FALSE(Exists("c"));
}

TEST_F(AdapterFiles, AdaptersOfOtherModelsAreRefused) {
  ASSERT_EQ(Train("--max-steps 1 --lora-rank 2 --train net.out.bias --out r").code, 0);
  tiny::Model other = Net();
  other.nodes[2].inputs[1] = other.weights[2].name = "net.middle.weight";
  other.nodes[5].inputs[1] = other.weights[4].name = "net.last.bias";
  other.Save(Path("other.onnx"));
  ExpectRefused(Run("eval --model other.onnx --adapter r/adapter --data test.npz"),
                "2 of its 3 parts do not fit other.onnx: 'net.mid': no product of that name; 'net.out.bias': no weight "
                "of that name; its products are up, middle, out");
  Tensors tensors = Adapter("r/adapter");
  tensors[StrCat(kPeft, "net.up.lora_A.weight")] = HostTensor({DType::kFloat32, {2, 5}});
  Write("r/adapter", tensors);
  ExpectBad("r/adapter", "'net.up': A [2,5] and B [16,2], the model's weight takes [2,4] and [16,2]");
}

TEST_F(AdapterFiles, BadFilesAreRefused) {
  ASSERT_EQ(Train("--max-steps 1 --lora-rank 2 --out r").code, 0);
  const std::string file = Path("r/adapter/adapter_model.safetensors"), bytes = ReadAll(file);
  WriteAll(file, bytes.substr(0, bytes.size() - 8));
  ExpectBad("r/adapter", "adapter_model.safetensors");
  WriteAll(file, bytes.substr(0, 20));
  ExpectBad("r/adapter", "adapter_model.safetensors");
  std::string nan = bytes;
  nan.replace(nan.size() - 4, 4, "\xff\xff\xff\xff");
  WriteAll(file, nan);
  ExpectBad("r/adapter", "is not finite");
  std::filesystem::remove(file);
  ExpectBad("r/adapter", "adapter_model.safetensors");
}

TEST_F(AdapterFiles, BadTensorsAreRefused) {
  ASSERT_EQ(Train("--max-steps 1 --lora-rank 2 --out r").code, 0);
  const Tensors good = Adapter("r/adapter");
  const std::string up = StrCat(kPeft, "net.up");
  const auto bad = [&](const std::map<std::string, Shape>& changed, const std::string& part) {
    Tensors tensors = good;
    for (const auto& [name, shape] : changed) {
      tensors.erase(up + name);
      if (!shape.empty()) tensors[up + name] = HostTensor({DType::kFloat32, shape});
    }
    Write("r/adapter", tensors);
    ExpectBad("r/adapter", part);
  };
  bad({{".lora_A.weight", {}}}, "'net.up' has no lora_A");
  bad({{".lora_B.weight", {}}}, "'net.up' has no lora_B");
  bad({{".lora_A.weight", {3, 4}}}, "lora_A [3,4] and lora_B [16,2] of 'net.up' do not fit together");
  bad({{".lora_A.weight", {5, 4}}, {".lora_B.weight", {16, 5}}}, "rank 5: at most 4");
  bad({{".lora_A.weight", {2, 2, 2}}}, "A [2,2,2] and B [16,2], the model's weight takes");
  bad({{".lora_embedding_A", {2, 4}}}, "is neither lora_A nor lora_B nor lora_magnitude_vector of a product");
  bad({{".bias", {7}}}, "'net.up.bias': [7], the model's weight is [16]");
  Write("r/adapter", {});
  ExpectBad("r/adapter", "holds no adapter");
}

TEST_F(AdapterFiles, BadConfigsAreRefused) {
  ASSERT_EQ(Train("--max-steps 1 --lora-rank 2 --out r").code, 0);
  const std::string good = ReadAll(Path("r/adapter/adapter_config.json"));
  const auto bad = [&](const std::string& key, const Json& value, const std::string& part) {
    SetConfig("r/adapter", key, value);
    ExpectBad("r/adapter", "adapter_config.json: " + part);
    WriteAll(Path("r/adapter/adapter_config.json"), good);
  };
  bad("peft_type", "IA3", "peft_type is not LORA");
  bad("lora_alpha", "x", "lora_alpha is no number");
  bad("lora_dropout", "x", "lora_dropout is no number");
  bad("lora_dropout", 1, "lora_dropout 1 is outside [0, 1)");
  WriteAll(Path("r/adapter/adapter_config.json"), "[1");
  ExpectBad("r/adapter", "adapter_config.json: is no JSON object");
  std::filesystem::remove(Path("r/adapter/adapter_config.json"));
  ExpectBad("r/adapter", "adapter_config.json");
  ExpectBad("nowhere", "nowhere/adapter_config.json");
  ExpectBad("nowhere=0.5", "nowhere/adapter_config.json");
}

}  // namespace
}  // namespace onnxtrain
