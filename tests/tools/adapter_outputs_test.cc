// Files that a run leaves of its adapters: for ONNX Runtime, for onnxruntime-genai, and checkpoints.
#include <cmath>
#include <filesystem>

#include "frontend/base/status.h"
#include "frontend/onnx/interop/ort_adapter.h"
#include "tests/tools/adapter_runs.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

class AdapterOutputs : public AdapterRuns {
 protected:
  double Loss(const std::string& flags) const {
    const Outcome o = Run("eval --data test.npz --json --quiet " + flags);
    EXPECT_EQ(o.code, 0) << flags << o.err;
    return o.code != 0 ? std::nan("") : Json::parse(o.out)["loss"].get<double>();
  }

  std::map<std::string, HostTensor> OrtAdapter(const std::string& file) const {
    const auto tensors = ReadOrtAdapter(Path(file));
    EXPECT_TRUE(tensors.ok()) << tensors.status();
    return tensors.ok() ? *tensors : std::map<std::string, HostTensor>();
  }
};

TEST_F(AdapterOutputs, TheBaseWithTheInputsOfTheAdapterIsTheMergedModel) {
  ASSERT_EQ(Train("--epochs 4 --lora-rank 2 --lora-rank mid=3 --lora-alpha 5 --train net.out.bias "
                  "--adapter-out merged,peft,onnx --out r")
                .code,
            0);
  for (const char* file : {"r/model.onnx", "r/adapter/adapter_config.json"}) EXPECT_TRUE(Exists(file)) << file;
  const auto inputs = OrtAdapter("r/adapter.onnx_adapter");
  ASSERT_EQ(inputs.size(), 5u);
  EXPECT_EQ(inputs.at("net.mid.lora_A.weight").shape(), (Shape{16, 3}));
  EXPECT_EQ(inputs.at("net.mid.lora_B.weight").shape(), (Shape{3, 8}));
  EXPECT_EQ(inputs.at("net.out.bias").shape(), (Shape{3}));
  EXPECT_NEAR(Loss("--model r/model.adapter-inputs.onnx"), Loss("--model m.onnx"), 1e-7);  // zeros add nothing
  NamedArrays arrays(inputs.begin(), inputs.end());
  ASSERT_TRUE(WriteNpz(Path("inputs.npz"), arrays).ok());
  ASSERT_EQ(Run("export --model r/model.adapter-inputs.onnx --weights inputs.npz --out fed.onnx").code, 0);
  const double merged = Loss("--model r/model.onnx");
  EXPECT_GT(std::abs(merged - Loss("--model m.onnx")), 1e-3);
  EXPECT_NEAR(Loss("--model fed.onnx"), merged, 1e-6);
  EXPECT_NEAR(Loss("--model m.onnx --adapter r/adapter.onnx_adapter"), merged, 1e-6);
}

TEST_F(AdapterOutputs, OnlyWhatIsAskedForIsWritten) {
  ASSERT_EQ(Train("--max-steps 2 --lora-rank 2 --adapter-out peft --out p").code, 0);
  EXPECT_FALSE(Exists("p/model.onnx"));
  EXPECT_TRUE(Exists("p/adapter/adapter_model.safetensors"));
  EXPECT_EQ(Summary("p")["exported"]["file"], "adapter");
  ASSERT_EQ(Train("--max-steps 2 --lora-rank 2 --adapter-out onnx --out o").code, 0);
  EXPECT_FALSE(Exists("o/model.onnx"));
  EXPECT_FALSE(Exists("o/adapter"));
  ASSERT_EQ(Train("--max-steps 2 --out o --overwrite").code, 0);
  for (const char* file : {"o/adapter.onnx_adapter", "o/model.adapter-inputs.onnx"}) EXPECT_FALSE(Exists(file)) << file;
  ExpectRefused(Train("--lora-rank 2 --adapter-out onnx,zip --out x"),
                "--adapter-out: expected a list of merged, peft and onnx");
  ExpectRefused(Train("--adapter-out onnx --out x"), "--adapter-out: has no effect without");
  EXPECT_FALSE(Exists("x"));
}

TEST_F(AdapterOutputs, ExportWritesTheSame) {
  ASSERT_EQ(Train("--epochs 2 --lora-rank 2 --adapter-out merged,peft,onnx --out r").code, 0);
  const Outcome o = Run("export --model m.onnx --adapter r/adapter --adapter-out peft,onnx --out e.onnx");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_FALSE(Exists("e.onnx"));
  EXPECT_TRUE(ReadAll(Path("e.onnx_adapter")) == ReadAll(Path("r/adapter.onnx_adapter")));
  EXPECT_TRUE(ReadAll(Path("e.adapter-inputs.onnx")) == ReadAll(Path("r/model.adapter-inputs.onnx")));
  EXPECT_TRUE(ReadAll(Path("e.adapter/adapter_model.safetensors")) ==
              ReadAll(Path("r/adapter/adapter_model.safetensors")));
}

TEST_F(AdapterOutputs, AGenaiFolderIsWrittenWhereTheModelHasOne) {
  fs::create_directory(Path("base"));
  fs::copy(Path("m.onnx"), Path("base/m.onnx"));
  WriteAll(Path("base/tokenizer.json"), "{}");
  WriteAll(Path("base/genai_config.json"),
           R"({"model": {"type": "x", "decoder": {"filename": "m.onnx", "head_size": 4}}, "search": {"top_k": 1}})");
  const std::string line = "--data d.npz --max-steps 3 --lora-rank 2 --quiet --adapter-out onnx ";
  ASSERT_EQ(Run("--model base/m.onnx " + line + "--out r").code, 0);
  Json config = Json::parse(ReadAll(Path("r/genai/genai_config.json")));
  EXPECT_EQ(config["model"]["decoder"]["filename"], "model.adapter-inputs.onnx");
  config["model"]["decoder"]["filename"] = "m.onnx";
  EXPECT_EQ(config, Json::parse(ReadAll(Path("base/genai_config.json"))));
  for (const char* file : {"tokenizer.json", "model.adapter-inputs.onnx", "adapter.onnx_adapter"})
    EXPECT_TRUE(Exists(std::string("r/genai/") + file)) << file;
  EXPECT_FALSE(Exists("r/genai/m.onnx"));
  EXPECT_FALSE(Exists("r/model.adapter-inputs.onnx"));  // not twice
  WriteAll(Path("base/genai_config.json"), R"({"model": {}})");
  ExpectRefused(Run("--model base/m.onnx " + line + "--out x"), "genai_config.json: has no model.decoder.filename");
}

TEST_F(AdapterOutputs, BadAdaptersOfOnnxRuntimeAreRefused) {
  ASSERT_EQ(Train("--max-steps 1 --lora-rank 2 --adapter-out onnx --out r").code, 0);
  const std::string bytes = ReadAll(Path("r/adapter.onnx_adapter"));
  const auto bad = [&](const std::string& content, const std::string& part) {
    WriteAll(Path("bad.onnx_adapter"), content);
    ExpectRefused(Run("eval --model m.onnx --data test.npz --adapter bad.onnx_adapter"), "bad.onnx_adapter: " + part);
  };
  bad(bytes.substr(0, bytes.size() - 8), "");
  bad(bytes.substr(0, 60), "");
  bad("TORT", "is no adapter of ONNX Runtime");
  bad(ReadAll(Path("m.onnx")), "is no adapter of ONNX Runtime");
  std::string version = bytes;
  version[24] = 9;  // the first field of the root table
  bad(version, "is damaged, or not in version 1");
  // Any single byte may be wrong: the file is read or refused.
  for (size_t at = 0; at < std::min<size_t>(bytes.size(), 200); ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0xff);
    WriteAll(Path("bad.onnx_adapter"), changed);
    const auto read = ReadOrtAdapter(Path("bad.onnx_adapter"));
    EXPECT_TRUE(read.ok() || !read.status().message().empty()) << at;
  }
}

TEST_F(AdapterOutputs, CheckpointsHoldNoFrozenWeight) {
  ASSERT_EQ(Train("--epochs 2 --lora-rank 2 --out r").code, 0);
  const auto stored = ReadSafetensors(Path("r/checkpoints/latest/model.safetensors"));
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ(stored->size(), 4u);
  for (const auto& [name, value] : *stored) EXPECT_NE(name.find(".lora_"), std::string::npos) << name;
  tiny::Model other = Net();
  other.weights[2].values[5] += 1;  // of the base
  other.Save(Path("m.onnx"));
  ExpectRefused(Run("--resume r --epochs 4 --quiet"), "is not the file that the checkpoint was trained from");
}

TEST_F(AdapterOutputs, AChangedBaseInExternalDataIsNoticed) {
  tiny::Model net = Net();
  net.weights[2].file = "m.data";
  net.Save(Path("m.onnx"));
  ASSERT_EQ(Train("--epochs 2 --lora-rank 2 --adapter-out merged,onnx --out r").code, 0);
  ASSERT_EQ(Train("--epochs 4 --lora-rank 2 --out whole").code, 0);
  EXPECT_NEAR(Loss("--model r/model.adapter-inputs.onnx"), Loss("--model m.onnx"), 1e-7);
  net.weights[2].values[5] += 1;
  net.Save(Path("m.onnx"));
  ExpectRefused(Run("--resume r --epochs 4 --quiet"), "its external data is not what the checkpoint was trained from");
  net.weights[2].values[5] = tiny::Uniform(128, 0.5f, 3)[5];
  net.Save(Path("m.onnx"));
  ASSERT_EQ(Run("--resume r --epochs 4 --quiet").code, 0);
  EXPECT_TRUE(Weight("r/model.onnx", "net.mid.weight").SameBytes(Weight("whole/model.onnx", "net.mid.weight")));
}

TEST_F(AdapterOutputs, SummaryAndReportShowTheUpdates) {
  ASSERT_EQ(Train("--epochs 4 --lora-rank 2 --lora-target mid --out r").code, 0);
  const Json adapters = Summary("r")["adapters"];
  ASSERT_EQ(adapters.size(), 1u);
  EXPECT_EQ(adapters[0]["module"], "net.mid");
  const std::vector<double> values = adapters[0]["singular_values"];
  ASSERT_EQ(values.size(), 2u);
  EXPECT_GE(values[0], values[1]);
  // Their squares add up to the square of the update's norm.
  const HostTensor before = Weight("m.onnx", "net.mid.weight"), after = Weight("r/model.onnx", "net.mid.weight");
  double squares = 0;
  for (int64_t i = 0; i < before.size(); ++i) squares += std::pow(after.At(i) - before.At(i), 2);
  EXPECT_NEAR(values[0] * values[0] + values[1] * values[1], squares, 1e-5 * squares);
  EXPECT_NE(ReadAll(Path("r/report.html")).find("largest singular values of the update"), std::string::npos);
}

TEST_F(AdapterOutputs, InspectListsTargets) {
  const Outcome o = Run("inspect --model m.onnx --adapters --lora-rank 2 --lora-rank up=3 --json");
  ASSERT_EQ(o.code, 0) << o.err;
  const Json rows = Json::parse(o.out)["adapters"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["target"], "up");
  EXPECT_EQ(rows[0]["module"], "net.up");
  EXPECT_EQ(rows[0]["rank"], 3);
  EXPECT_EQ(rows[0]["inputs"], 4);
  EXPECT_EQ(rows[0]["outputs"], 16);
  EXPECT_EQ(rows[0]["values"], 3 * (4 + 16));
  EXPECT_EQ(rows[2]["rank"], 0);
  EXPECT_TRUE(rows[2]["output_layer"]);
  const Outcome table = Run("inspect --model m.onnx --adapters");
  EXPECT_NE(table.out.find("net.mid"), std::string::npos) << table.out;
}

}  // namespace
}  // namespace onnxtrain
