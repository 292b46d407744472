// Adapters beside the stacked weights of experts, in products of selected matrices, in MoE and in QMoE, compared with
// adapters beside one weight for each expert.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/updated_weight.h"
#include "optim/plan/adapters.h"
#include "tests/tools/adapter_runs.h"

namespace onnxtrain {
namespace {

constexpr int64_t kExperts = 3;

// x[batch,4] chooses an expert by TopK of x·gate → relu(up[e]·x) [batch,8] → h·down[e] [batch,4] → ·out [batch,3]. The
// stacks are up [3,8,4] by GatherND and down [3,4,8] by Gather and Transpose; in split.onnx all experts compute, and
// a one-hot vector selects. moe.onnx has one node for all experts; that of qmoe.onnx has numbers of 8 bits, whose
// floats are those of floats.onnx; half.onnx has float16.
class ExpertAdapters : public RunScratch {
 protected:
  ExpertAdapters() {
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Blobs(96)).ok());
    EXPECT_TRUE(WriteNpz(Path("test.npz"), Blobs(30, {.seed = 8})).ok());
    SaveStacked();
    SaveSplit();
    SaveMixture("moe.onnx", UpStack(), DownStack());
    SaveQuantized();
    SaveHalf();
  }

  static tiny::Model Router() {
    tiny::Model m;
    m.nodes = {{"MatMul", {"x", "net.gate.weight"}, {"scores"}},
               {"TopK", {"scores", "one"}, {"best", "ids2"}},
               {"Reshape", {"ids2", "flat"}, {"ids"}}};
    m.weights = {{"net.gate.weight", {4, kExperts}, tiny::Uniform(4 * kExperts, 0.9f, 1)},
                 Ints("one", {1}),
                 Ints("flat", {-1}),
                 Ints("last", {-1}),
                 {"net.out.weight", {4, 3}, tiny::Uniform(12, 0.6f, 4)}};
    return m;
  }

  static tiny::Weight Ints(const std::string& name, const std::vector<int64_t>& values) {
    return {.name = name,
            .shape = {std::ssize(values)},
            .type = 7,
            .bytes = {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t)}};
  }

  static std::vector<float> UpStack() { return tiny::Uniform(kExperts * 32, 0.7f, 2); }
  static std::vector<float> DownStack() { return tiny::Uniform(kExperts * 32, 0.6f, 3); }

  void SaveStacked() const {
    tiny::Model m = Router();
    const std::vector<tiny::Op> nodes = {
        {"Unsqueeze", {"ids", "last"}, {"index"}},
        {"GatherND", {"net.experts.up_proj", "index"}, {"up"}},
        {"Unsqueeze", {"x", "last"}, {"x1"}},
        {"MatMul", {"up", "x1"}, {"h1"}},
        {"Squeeze", {"h1", "last"}, {"h0"}},
        {"Relu", {"h0"}, {"h"}},
        {"Gather", {"net.experts.down_proj", "ids"}, {"down"}, {}, {{"axis", 0}}},
        {"Transpose", {"down"}, {"down_t"}, {{"perm", {0, 2, 1}}}},
        {"Unsqueeze", {"h", "one"}, {"h2"}},
        {"MatMul", {"h2", "down_t"}, {"g2"}},
        {"Squeeze", {"g2", "one"}, {"g"}},
        {"MatMul", {"g", "net.out.weight"}, {"y"}},
    };
    m.nodes.insert(m.nodes.end(), nodes.begin(), nodes.end());
    m.weights.push_back({"net.experts.up_proj", {kExperts, 8, 4}, UpStack()});
    m.weights.push_back({"net.experts.down_proj", {kExperts, 4, 8}, DownStack()});
    m.Save(Path("m.onnx"));
  }

  void SaveSplit() const {
    tiny::Model m = Router();
    m.nodes.push_back({"OneHot", {"ids", "experts", "off_on"}, {"chosen"}});
    m.weights.push_back({"experts", {}, {static_cast<float>(kExperts)}});
    m.weights.push_back({"off_on", {2}, {0, 1}});
    std::string sum;
    for (int64_t e = 0; e < kExperts; ++e) {
      const std::string n = std::to_string(e), expert = "net.experts." + n;
      const auto part = [&](const std::vector<float>& all, int64_t size) {
        return std::vector<float>(all.begin() + e * size, all.begin() + (e + 1) * size);
      };
      m.weights.push_back(Ints("column" + n, {e}));
      m.weights.push_back({expert + ".up_proj.weight", {8, 4}, part(UpStack(), 32)});
      m.weights.push_back({expert + ".down_proj.weight", {4, 8}, part(DownStack(), 32)});
      const std::vector<tiny::Op> nodes = {
          {"Gemm", {"x", expert + ".up_proj.weight"}, {"u" + n}, {}, {{"transB", 1}}},
          {"Relu", {"u" + n}, {"t" + n}},
          {"Gemm", {"t" + n, expert + ".down_proj.weight"}, {"d" + n}, {}, {{"transB", 1}}},
          {"Gather", {"chosen", "column" + n}, {"c" + n}, {}, {{"axis", 1}}},
          {"Mul", {"d" + n, "c" + n}, {"s" + n}},
      };
      m.nodes.insert(m.nodes.end(), nodes.begin(), nodes.end());
      if (e > 0) m.nodes.push_back({"Add", {sum, "s" + n}, {"sum" + n}});
      sum = e == 0 ? "s" + n : "sum" + n;
    }
    m.nodes.push_back({"MatMul", {sum, "net.out.weight"}, {"y"}});
    m.Save(Path("split.onnx"));
  }

  // Saves a model whose node has the first expert of each token alone.
  static tiny::Model Mixture(const std::string& op, const std::vector<std::string>& layers) {
    tiny::Model m = Router();
    m.nodes.resize(1);
    std::vector<std::string> inputs = {"x", "scores"};
    inputs.insert(inputs.end(), layers.begin(), layers.end());
    m.nodes.push_back({op, inputs, {"g"}, {}, {{"k", 1}, {"normalize_routing_weights", 1}}, "com.microsoft"});
    if (op == "QMoE") m.nodes.back().numbers["expert_weight_bits"] = 8;
    m.nodes.push_back({"MatMul", {"g", "net.out.weight"}, {"y"}});
    return m;
  }

  void SaveMixture(const std::string& name, const std::vector<float>& up, const std::vector<float>& down) const {
    tiny::Model m = Mixture("MoE", {"net.experts.up_proj", "", "net.experts.down_proj"});
    m.weights.push_back({"net.experts.up_proj", {kExperts, 8, 4}, up});
    m.weights.push_back({"net.experts.down_proj", {kExperts, 4, 8}, down});
    m.Save(Path(name));
  }

  // Numbers around 128 times one scale for each output.
  void SaveQuantized() const {
    tiny::Model m = Mixture("QMoE", {"net.experts.up_proj", "up_scales", "", "net.experts.down_proj", "down_scales"});
    std::vector<float> floats[2];
    for (const int layer : {0, 1}) {
      const int64_t outputs = layer == 0 ? 8 : 4, inputs = 32 / outputs;
      const std::string name = layer == 0 ? "up" : "down";
      const std::vector<float> scales = tiny::Uniform(kExperts * outputs, 0.004f, 5);
      std::string bytes;
      for (int64_t i = 0; i < kExperts * 32; ++i) {
        bytes += static_cast<char>(i * 89 % 256);
        floats[layer].push_back(static_cast<float>(i * 89 % 256 - 128) * scales[i / inputs]);
      }
      m.weights.push_back(
          {.name = "net.experts." + name + "_proj", .shape = {kExperts, outputs, inputs}, .type = 2, .bytes = bytes});
      m.weights.push_back({name + "_scales", {kExperts, outputs}, scales});
    }
    m.Save(Path("qmoe.onnx"));
    SaveMixture("floats.onnx", floats[0], floats[1]);
  }

  // Saves moe.onnx with stacks of float16, and with their floats.
  void SaveHalf() const {
    tiny::Model m = Mixture("MoE", {"net.experts.up_proj", "", "net.experts.down_proj"});
    std::vector<float> floats[2];
    for (const int layer : {0, 1}) {
      const Shape shape = layer == 0 ? Shape{kExperts, 8, 4} : Shape{kExperts, 4, 8};
      const std::vector<float> values = layer == 0 ? UpStack() : DownStack();
      HostTensor half({DType::kFloat16, shape});
      for (int64_t i = 0; i < half.size(); ++i) half.Set(i, values[i]);
      for (int64_t i = 0; i < half.size(); ++i) floats[layer].push_back(static_cast<float>(half.At(i)));
      m.weights.push_back({.name = layer == 0 ? "net.experts.up_proj" : "net.experts.down_proj",
                           .shape = shape,
                           .type = 10,
                           .bytes = {reinterpret_cast<const char*>(half.bytes().data()), half.bytes().size()}});
    }
    m.Save(Path("half.onnx"));
    SaveMixture("halves.onnx", floats[0], floats[1]);
  }

  Outcome Train(const std::string& model, const std::string& flags) const {
    return Run(StrCat("--model ", model, " --data d.npz --eval-data test.npz --batch-size 16 --lr 0.02 --quiet ",
                      flags.starts_with("--adapter") ? "" : "--lora-target up_proj,down_proj ", flags));
  }

  std::map<std::string, HostTensor> Adapter(const std::string& folder) const {
    const auto arrays = ReadSafetensors(Path(folder + "/adapter_model.safetensors"));
    EXPECT_TRUE(arrays.ok()) << arrays.status();
    return {arrays->begin(), arrays->end()};
  }

  // Returns the tensors of a stacked adapter as one pair for each expert, as split.onnx names them.
  static std::map<std::string, HostTensor> SplitAdapter(const std::map<std::string, HostTensor>& stacked) {
    std::map<std::string, HostTensor> split;
    const std::string prefix = "base_model.model.net.experts.";
    for (const auto& [wrapper, name] : {std::pair("base_layer.", "up_proj"), {"", "down_proj"}}) {
      const HostTensor& a = stacked.at(prefix + wrapper + "lora_A.weight");
      const HostTensor& b = stacked.at(prefix + wrapper + "lora_B.weight");
      for (int64_t e = 0; e < kExperts; ++e) {
        const auto [rows, columns] = FactorsOfExpert(a, b, kExperts, e);
        split[StrCat(prefix, e, ".", name, ".lora_A.weight")] = rows;
        split[StrCat(prefix, e, ".", name, ".lora_B.weight")] = columns;
      }
    }
    return split;
  }

  void SaveAdapter(const std::string& folder, const std::map<std::string, HostTensor>& tensors,
                   const std::string& config) const {
    std::vector<NamedType> types;
    std::string bytes;
    for (const auto& [name, value] : tensors) {
      types.push_back({name, value.type()});
      bytes.append(reinterpret_cast<const char*>(value.bytes().data()), value.bytes().size());
    }
    const auto header = SafetensorsHeader(types, {{"format", "pt"}});
    ASSERT_TRUE(header.ok());
    std::filesystem::create_directories(Path(folder));
    std::ofstream(Path(folder + "/adapter_model.safetensors"), std::ios::binary) << *header << bytes;
    std::ofstream(Path(folder + "/adapter_config.json")) << config;
  }

  double Loss(const std::string& flags) const {
    const Outcome o = Run("eval --data test.npz --json --quiet " + flags);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? Json::parse(o.out)["loss"].get<double>() : 0;
  }
};

TEST_F(ExpertAdapters, TrainAsBesideOneWeightPerExpert) {
  ASSERT_EQ(Train("m.onnx", "--max-steps 3 --lora-rank 2 --lora-alpha 3 --out start").code, 0);
  const auto start = Adapter("start/adapter");
  EXPECT_EQ(start.size(), 4u);
  EXPECT_EQ(start.at("base_model.model.net.experts.base_layer.lora_A.weight").shape(), (Shape{2 * kExperts, 4}));
  EXPECT_EQ(start.at("base_model.model.net.experts.base_layer.lora_B.weight").shape(), (Shape{8, 2 * kExperts}));
  EXPECT_EQ(start.at("base_model.model.net.experts.lora_A.weight").shape(), (Shape{2 * kExperts, 8}));
  SaveAdapter("split", SplitAdapter(start), R"({"peft_type": "LORA", "r": 2, "lora_alpha": 3})");
  for (const char* backend : {"cpu", "torch"}) {
    SCOPED_TRACE(backend);
    const std::string more = StrCat(" --epochs 3 --overwrite --backend ", backend);
    const Outcome split = Train("split.onnx", "--adapter split --out s" + more);
    ASSERT_EQ(split.code, 0) << split.err;
    for (const char* model : {"m.onnx", "moe.onnx"}) {
      SCOPED_TRACE(model);
      const Outcome stacked = Train(model, "--adapter start/adapter --out r" + more);
      ASSERT_EQ(stacked.code, 0) << stacked.err;
      for (const char* when : {"eval_before", "eval"})
        EXPECT_NEAR(Summary("r")[when]["loss"], Summary("s")[when]["loss"].get<double>(), 1e-6);
      EXPECT_LT(Summary("r")["eval"]["loss"], Summary("r")["eval_before"]["loss"].get<double>() - 0.01);
      const auto trained = SplitAdapter(Adapter("r/adapter"));
      for (const auto& [name, value] : Adapter("s/adapter")) {
        ASSERT_TRUE(trained.contains(name)) << name;
        for (int64_t i = 0; i < value.size(); ++i) EXPECT_NEAR(trained.at(name).At(i), value.At(i), 2e-5) << name;
      }
    }
  }
}

TEST_F(ExpertAdapters, AreMergedAndReadAgain) {
  for (const std::string model : {"m.onnx", "moe.onnx"}) {
    SCOPED_TRACE(model);
    ASSERT_EQ(Train(model, "--epochs 3 --lora-rank 2 --overwrite --out r").code, 0);
    const double loss = Summary("r")["eval"]["loss"];
    EXPECT_EQ(Summary("r")["trainable_parameters"], kExperts * 2 * (4 + 8 + 8 + 4));
    EXPECT_NEAR(Loss("--model r/model.onnx"), loss, 1e-6);
    EXPECT_NEAR(Loss("--adapter r/adapter --model " + model), loss, 1e-6);
    const Json config = Json::parse(ReadAll(Path("r/adapter/adapter_config.json")));
    EXPECT_EQ(config["target_parameters"], Json({"net.experts.down_proj", "net.experts.up_proj"}));
    EXPECT_TRUE(config["target_modules"].is_null());
    EXPECT_EQ(Summary("r")["adapters"][0]["singular_values"].size(), 2u * kExperts);
    EXPECT_NEAR(Loss("--adapter r/adapter=0.5 --adapter r/adapter=0.25 --model " + model),
                Loss("--adapter r/adapter=0.75 --model " + model), 1e-6);
  }
}

// Adapters begin in the type of the weight: both begin with the same numbers of float16.
TEST_F(ExpertAdapters, TrainBesideStoredNumbersAsBesideTheirFloats) {
  const std::string flags = "--adapter begin --epochs 3 --overwrite --adapter-out peft --backend ";
  for (const auto& [stored, floats] : {std::pair("qmoe.onnx", "floats.onnx"), {"half.onnx", "halves.onnx"}}) {
    const std::string start = "--max-steps 3 --lora-rank 2 --overwrite --adapter-out peft --out start";
    ASSERT_EQ(Train(stored, start).code, 0) << stored;
    auto begin = Adapter("start/adapter");
    for (auto& [name, value] : begin) value = value.CastTo(DType::kFloat16).CastTo(DType::kFloat32);
    SaveAdapter("begin", begin, ReadAll(Path("start/adapter/adapter_config.json")));
    for (const char* backend : {"cpu", "torch"}) {
      SCOPED_TRACE(StrCat(stored, " ", backend));
      ASSERT_EQ(Train(floats, StrCat(flags, backend, " --out f")).code, 0);
      const Outcome o = Train(stored, StrCat(flags, backend, " --out q"));
      ASSERT_EQ(o.code, 0) << o.err;
      for (const char* when : {"eval_before", "eval"})
        EXPECT_NEAR(Summary("q")[when]["loss"], Summary("f")[when]["loss"].get<double>(), 1e-6);
      EXPECT_LT(Summary("q")["eval"]["loss"], Summary("q")["eval_before"]["loss"].get<double>() - 0.01);
      const auto want = Adapter("f/adapter");
      for (const auto& [name, value] : Adapter("q/adapter")) {
        for (int64_t i = 0; i < value.size(); ++i) EXPECT_NEAR(value.At(i), want.at(name).At(i), 2e-5) << name;
      }
    }
  }
  EXPECT_NEAR(Loss("--model qmoe.onnx --adapter q/adapter"), Loss("--model floats.onnx --adapter q/adapter"), 1e-6);
}

// No program holds the floats of an expert, or of all.
TEST_F(ExpertAdapters, NoProgramWidensStoredExperts) {
  TrainConfig config;
  config.lora_rank = {"2"};
  const std::vector<Shape> stacks = {{kExperts, 8, 4},  {kExperts, 4, 8}, {kExperts * 8, 4},
                                     {kExperts * 4, 8}, {8, 4},           {4, 8}};
  for (const char* model : {"qmoe.onnx", "half.onnx"}) {
    SCOPED_TRACE(model);
    const auto base = OnnxModel::Load(Path(model));
    ASSERT_TRUE(base.ok()) << base.status();
    const auto plan = PlanAdapters(config, **base);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ModelEdits edits;
    edits.low_rank = plan->updates;
    const auto edited = (*base)->LoadEdited(edits);
    ASSERT_TRUE(edited.ok()) << edited.status();
    for (const Graph& graph : PlanPrograms(*edited, 3)) {
      for (size_t v = 0; v < graph.values().size(); ++v) {
        const Type& type = graph.type(static_cast<ValueId>(v));
        if (type.dtype != DType::kFloat32) continue;
        EXPECT_EQ(std::ranges::count(stacks, type.shape), 0) << ToString(type);
      }
    }
  }
}

// No node can add an update in the middle of a QMoE.
TEST_F(ExpertAdapters, SumsWithNumbersAreRequantized) {
  ExpectRefused(
      Train("qmoe.onnx", "--max-steps 3 --lora-rank 2 --out r"),
      "'net.experts.up_proj' is a quantized stack of experts, beside which no node can add an adapter: --merge "
      "requantize writes the sum in its blocks, --adapter-out peft the adapter alone");
  const Outcome o = Train("qmoe.onnx", "--epochs 3 --lora-rank 2 --merge requantize --overwrite --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Summary("r")["requantized"]["weights"], 2);
  EXPECT_NEAR(Loss("--model r/model.onnx"), Summary("r")["eval"]["loss"], 0.02);
  EXPECT_LT(Loss("--model r/model.onnx"), Loss("--model qmoe.onnx") - 0.01);
}

// One of two parameters of a module has the outermost wrapper, whichever it is.
TEST_F(ExpertAdapters, OneParameterAloneIsNotNested) {
  for (const char* name : {"up_proj", "down_proj"}) {
    ASSERT_EQ(Run(StrCat("--model m.onnx --data d.npz --batch-size 16 --max-steps 4 --lr 0.02 --quiet --lora-rank 2 "
                         "--lora-target experts.",
                         name, " --overwrite --out r"))
                  .code,
              0);
    EXPECT_TRUE(Adapter("r/adapter").contains("base_model.model.net.experts.lora_A.weight"));
    EXPECT_NEAR(Loss("--model m.onnx --adapter r/adapter"), Loss("--model r/model.onnx"), 1e-6) << name;
  }
}

TEST_F(ExpertAdapters, RefuseWhatPeftHasNot) {
  ExpectRefused(Train("m.onnx", "--lora-rank 2 --lora-dropout 0.1 --out r"),
                "--lora-dropout: not for 'net.experts.up_proj', a parameter of a module that is no linear layer");
  ExpectRefused(Train("m.onnx", "--lora-rank 2 --lora-variant dora --out r"), "--lora-variant dora: not for");
  ExpectRefused(Train("m.onnx", "--lora-rank 2 --lora-init pissa --out r"), "--lora-init pissa: not for");
  ExpectRefused(Train("m.onnx", "--lora-rank 2 --adapter-out onnx --out r"), "is a stack of experts");
  ExpectRefused(Train("m.onnx", "--lora-rank 5 --out r"), "at most 4");
}

// No program holds a float weight of an expert, or of all, besides the stacks and what the exported nodes select.
TEST_F(ExpertAdapters, NoProgramFormsTheSum) {
  TrainConfig config;
  config.lora_rank = {"2"};
  config.lora_target = {"up_proj"};
  const auto base = OnnxModel::Load(Path("m.onnx"));
  ASSERT_TRUE(base.ok()) << base.status();
  const auto plan = PlanAdapters(config, **base);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ModelEdits edits;
  edits.low_rank = plan->updates;
  const auto edited = (*base)->LoadEdited(edits);
  ASSERT_TRUE(edited.ok()) << edited.status();
  for (const Graph& graph : PlanPrograms(*edited, 3)) {
    int stacks = 0;
    for (size_t v = 0; v < graph.values().size(); ++v)
      stacks += graph.type(static_cast<ValueId>(v)).shape == Shape{kExperts, 8, 4} ? 1 : 0;
    EXPECT_LE(stacks, 1);
  }
}

// Products in bodies are left out, and a name that only one of them has says why.
TEST_F(ExpertAdapters, ProductsInBodiesAreLeftOut) {
  tiny::Model m = Net(), then{.input = "", .outputs = {"t"}}, otherwise{.input = "", .outputs = {"e"}};
  then.nodes = {{"MatMul", {"g", "net.inner.weight"}, {"t"}}};
  otherwise.nodes = {{"Identity", {"g"}, {"e"}}};
  const std::vector<tiny::Op> tail = {{"ReduceMax", {"x"}, {"most"}, {}, {{"keepdims", 0}}},
                                      {"Greater", {"most", "limit"}, {"condition"}},
                                      {"If", {"condition"}, {"g1"}}};
  m.nodes.insert(m.nodes.begin() + 4, tail.begin(), tail.end());
  m.nodes[6].graphs = {{"then_branch", then.Graph()}, {"else_branch", otherwise.Graph()}};
  m.nodes[7].inputs[0] = "g1";
  m.weights.push_back({"net.inner.weight", {8, 8}, tiny::Uniform(64, 0.4f, 9)});
  m.weights.push_back({"limit", {}, {0.5f}});
  m.Save(Path("bodies.onnx"));
  const std::string train = "--model bodies.onnx --data d.npz --batch-size 16 --max-steps 2 --lora-rank 2 --out r ";
  const Outcome o = Run(train);
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE((o.out + o.err).find("none beside 1 product in bodies of If, Loop and Scan"), std::string::npos) << o.out;
  ExpectRefused(Run(train + "--overwrite --quiet --lora-target inner"),
                "--lora-target inner: 'net.inner' is in a body of If 'g1_node': it can have no adapter");
}

}  // namespace
}  // namespace onnxtrain
