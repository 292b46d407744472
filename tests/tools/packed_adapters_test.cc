// Low-rank adapters beside the parts of packed products: that they train as beside products of their own, and what is
// written of them.
#include <array>

#include "frontend/base/status.h"
#include "tests/tools/adapter_runs.h"

namespace onnxtrain {
namespace {

// Runs on packed.onnx, and on separate.onnx, which computes the same with a product for each part.
class PackedRuns : public AdapterRuns {
 protected:
  // Returns columns of a matrix of `width` columns.
  static std::vector<float> Columns(const std::vector<float>& matrix, size_t width, size_t begin, size_t count) {
    std::vector<float> columns;
    for (size_t i = 0; i < matrix.size() / width * count; ++i)
      columns.push_back(matrix[i / count * width + begin + i % count]);
    return columns;
  }

  Outcome TrainOn(const std::string& model, const std::string& flags, const std::string& out) const {
    return Run(StrCat("--data d.npz --eval-data test.npz --batch-size 16 --lr 0.02 --quiet --model ", model, " --out ",
                      out, " ", flags));
  }

  // Trains beside both networks and compares losses and trained tensors.
  void ExpectSameTraining(const std::string& flags) const {
    SCOPED_TRACE(flags);
    for (const char* name : {"packed", "separate"}) {
      const Outcome o = TrainOn(StrCat(name, ".onnx"), "--epochs 3 --overwrite " + flags, name);
      ASSERT_EQ(o.code, 0) << o.err;
    }
    for (const char* when : {"eval_before", "eval"})
      EXPECT_NEAR(Summary("packed")[when]["loss"], Summary("separate")[when]["loss"].get<double>(), 1e-6) << when;
    const auto packed = Adapter("packed/adapter"), separate = Adapter("separate/adapter");
    ASSERT_EQ(packed.size(), separate.size());
    for (const auto& [name, value] : separate) {
      ASSERT_TRUE(packed.contains(name)) << name;
      ASSERT_EQ(packed.at(name).shape(), value.shape()) << name;
      for (int64_t i = 0; i < value.size(); ++i) EXPECT_NEAR(packed.at(name).At(i), value.At(i), 2e-5) << name;
    }
  }

  double Loss(const std::string& flags) const {
    const Outcome o = Run("eval --data test.npz --json --quiet " + flags);
    EXPECT_EQ(o.code, 0) << flags << o.err;
    return Json::parse(o.out)["loss"];
  }
};

// A layer of onnxruntime-genai: x[batch,4] → q, k, v [batch,8], [batch,4], [batch,4] → tanh(q), relu(k), v → ·out.
class PackedAdapters : public PackedRuns {
 protected:
  PackedAdapters() {
    Packed().Save(Path("packed.onnx"));
    Separate().Save(Path("separate.onnx"));
  }

  static tiny::Model Layer() {
    tiny::Model m;
    m.producer = "onnxruntime-genai";
    m.nodes = {{"Tanh", {"q"}, {"q1"}},
               {"Relu", {"k"}, {"k1"}},
               {"Concat", {"q1", "k1", "v"}, {"h"}, {}, {{"axis", -1}}},
               {"MatMul", {"h", "lm_head.MatMul.weight"}, {"y"}}};
    m.weights = {{"lm_head.MatMul.weight", {16, 3}, tiny::Uniform(48, 0.5f, 4)}};
    return m;
  }

  static tiny::Model Packed() {
    tiny::Model m = Layer();
    m.nodes.insert(m.nodes.begin(), {{"MatMul", {"x", "model.layers.0.attn.qkv_proj.MatMul.weight"}, {"p"}},
                                     {"Add", {"p", "model.layers.0.attn.qkv_proj.Add.bias"}, {"qkv"}},
                                     {"Constant", {}, {"sizes"}, {{"value_ints", {8, 4, 4}}}},
                                     {"Split", {"qkv", "sizes"}, {"q", "k", "v"}, {}, {{"axis", -1}}}});
    m.weights.push_back({"model.layers.0.attn.qkv_proj.MatMul.weight", {4, 16}, tiny::Uniform(64, 0.7f, 1)});
    m.weights.push_back({"model.layers.0.attn.qkv_proj.Add.bias", {16}, tiny::Uniform(16, 0.1f, 2)});
    return m;
  }

  // The same network with a product for each part.
  static tiny::Model Separate() {
    tiny::Model m = Layer(), packed = Packed();
    const std::vector<float>&weight = packed.weights[1].values, &bias = packed.weights[2].values;
    size_t begin = 0;
    for (const auto& [part, count] : {std::pair<std::string, size_t>{"q", 8}, {"k", 4}, {"v", 4}}) {
      const std::string module = "model.layers.0.attn." + part + "_proj";
      const auto outputs = static_cast<int64_t>(count);
      m.weights.push_back({module + ".MatMul.weight", {4, outputs}, Columns(weight, 16, begin, count)});
      m.weights.push_back({module + ".Add.bias", {outputs}, {&bias[begin], &bias[begin] + count}});
      m.nodes.insert(m.nodes.begin(), {{"MatMul", {"x", module + ".MatMul.weight"}, {part + "0"}},
                                       {"Add", {part + "0", module + ".Add.bias"}, {part}}});
      begin += count;
    }
    return m;
  }
};

TEST_F(PackedAdapters, TrainAsBesideProductsOfTheirOwn) {
  ExpectSameTraining("--lora-rank 2");
  ExpectSameTraining("--lora-rank 2 --lora-rank q_proj=4 --lora-alpha 3");
  ExpectSameTraining("--lora-rank 2 --lora-target q_proj --lora-target v_proj");
  ExpectSameTraining("--lora-rank 2 --lora-target k_proj --lora-variant rslora");
  ExpectSameTraining("--lora-rank 2 --lora-variant dora");
  ExpectSameTraining("--lora-rank 2 --lora-variant dora --lora-target k_proj --lora-alpha 3");
  ExpectSameTraining("--lora-rank 2 --lora-rank k_proj=3 --lora-init pissa --lora-target q_proj,k_proj");
}

TEST_F(PackedAdapters, AreMergedAndRead) {
  for (const std::string flags : {"--lora-target v_proj", "--lora-variant dora --lora-target q_proj,v_proj",
                                  "--lora-init pissa", "--lora-rank k_proj=3 --train *.bias"}) {
    SCOPED_TRACE(flags);
    const Outcome o = TrainOn("packed.onnx", "--epochs 3 --overwrite --lora-rank 2 " + flags, "r");
    ASSERT_EQ(o.code, 0) << o.err;
    const double loss = Summary("r")["eval"]["loss"];
    EXPECT_LT(loss, Summary("r")["eval_before"]["loss"]);
    EXPECT_NEAR(Loss("--model r/model.onnx"), loss, 1e-6);
    EXPECT_NEAR(Loss("--model packed.onnx --adapter r/adapter"), loss, 1e-6);
  }
}

TEST_F(PackedAdapters, ColumnsWithoutAdapterKeepTheirBits) {
  const Outcome o =
      TrainOn("packed.onnx", "--epochs 2 --lora-rank 2 --lora-target q_proj,v_proj --lora-variant dora", "r");
  ASSERT_EQ(o.code, 0) << o.err;
  const std::string name = "model.layers.0.attn.qkv_proj.MatMul.weight";
  const HostTensor before = Weight("packed.onnx", name), after = Weight("r/model.onnx", name);
  for (int64_t i = 0; i < before.size(); ++i) EXPECT_EQ(before.At(i) == after.At(i), i % 16 >= 8 && i % 16 < 12) << i;
}

TEST_F(PackedAdapters, OptionalInputsAreOfTheParts) {
  const Outcome o = TrainOn("packed.onnx",
                            "--epochs 2 --lora-rank 2 --lora-target q_proj,v_proj --adapter-out merged,peft,onnx", "r");
  ASSERT_EQ(o.code, 0) << o.err;
  const auto base = OnnxModel::Load(Path("r/model.adapter-inputs.onnx"));
  ASSERT_TRUE(base.ok()) << base.status();
  const std::string module = "model.layers.0.self_attn.v_proj";
  EXPECT_EQ((*base)->parsed().graph.initializers.at(module + ".lora_B.weight").shape(), (Shape{2, 4}));
  EXPECT_NEAR(Loss("--model r/model.adapter-inputs.onnx"), Loss("--model packed.onnx"), 1e-7);
  EXPECT_NEAR(Loss("--model packed.onnx --adapter r/adapter.onnx_adapter"), Loss("--model r/model.onnx"), 1e-6);
}

// A sum of adapters of different parts, and of one part.
TEST_F(PackedAdapters, AddUp) {
  ASSERT_EQ(TrainOn("packed.onnx", "--epochs 2 --lora-rank 2 --lora-target q_proj,v_proj", "a").code, 0);
  ASSERT_EQ(TrainOn("packed.onnx", "--epochs 2 --lora-rank 3 --lora-target k_proj,v_proj --seed 9", "b").code, 0);
  const Outcome o = Run("export --model packed.onnx --adapter a/adapter --adapter b/adapter=0.5 --out sum.onnx");
  ASSERT_EQ(o.code, 0) << o.err;
  const std::string name = "model.layers.0.attn.qkv_proj.MatMul.weight";
  const HostTensor w = Weight("packed.onnx", name), a = Weight("a/model.onnx", name), b = Weight("b/model.onnx", name),
                   sum = Weight("sum.onnx", name);
  for (int64_t i = 0; i < w.size(); ++i) EXPECT_NEAR(sum.At(i), a.At(i) + 0.5 * (b.At(i) - w.At(i)), 1e-6);
}

TEST_F(PackedAdapters, ResumeBitForBit) {
  const std::string flags = "--lora-rank 2 --lora-target qkv_proj --lora-dropout 0.2";
  ASSERT_EQ(TrainOn("packed.onnx", "--epochs 4 " + flags, "whole").code, 0);
  ASSERT_EQ(TrainOn("packed.onnx", "--epochs 2 " + flags, "part").code, 0);
  const Outcome o = Run("--resume part --epochs 4 --quiet");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(ReadAll(Path("part/model.onnx")) == ReadAll(Path("whole/model.onnx")));
  EXPECT_EQ(Summary("part")["adapters"].size(), 3u);
}

TEST_F(PackedAdapters, GradientsAreThoseOfFiniteDifferences) {
  ASSERT_EQ(TrainOn("packed.onnx", "--max-steps 3 --lora-rank 2 --lora-rank v_proj=3 --lora-alpha 3", "r").code, 0);
  const Outcome o = Run("compare --model packed.onnx --data d.npz --gradcheck 6 --json --quiet --adapter r/adapter");
  EXPECT_EQ(o.code, 0) << o.out << o.err;
}

// An attention node that reads the packed product says how wide the parts are.
TEST_F(PackedAdapters, PartsFollowTheHeadCounts) {
  tiny::Model m;
  m.producer = "onnxruntime-genai";
  m.input_shape = {-1, 5, 6};
  m.more_inputs = {{"past_k", {-1, 1, 0, 8}}, {"past_v", {-1, 1, 0, 8}}, {"lengths", {-1, 1}}, {"total", {1}}};
  m.nodes = {{"MatMul", {"x", "model.layers.3.attn.qkv_proj.MatMul.weight"}, {"qkv"}},
             {"GroupQueryAttention",
              {"qkv", "", "", "past_k", "past_v", "lengths", "total"},
              {"y"},
              {},
              {{"num_heads", 2}, {"kv_num_heads", 1}},
              "com.microsoft"}};
  m.weights = {{"model.layers.3.attn.qkv_proj.MatMul.weight", {6, 32}, tiny::Uniform(192, 0.5f, 1)}};
  std::filesystem::create_directories(Path("genai"));
  m.Save(Path("genai/m.onnx"));
  const auto list = [&] {
    const Outcome o = Run("inspect --model genai/m.onnx --adapters --json");
    EXPECT_EQ(o.code, 0) << o.err;
    return Json::parse(o.out)["adapters"];
  };
  const Json parts = list();
  ASSERT_EQ(parts.size(), 3u);
  for (const auto& [i, name, outputs] : {std::tuple(0, "q_proj", 16), {1, "k_proj", 8}, {2, "v_proj", 8}}) {
    EXPECT_EQ(parts[i]["module"], StrCat("model.layers.3.self_attn.", name));
    EXPECT_EQ(parts[i]["outputs"], outputs);
  }
  // Programs of this type have the packed module.
  WriteAll(Path("genai/genai_config.json"), R"({"model": {"type": "phi3"}})");
  const Json whole = list();
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0]["module"], "model.layers.3.self_attn.qkv_proj");
}

// An encoder's attention as ONNX Runtime's optimizer fuses it: the node holds the weights, and its output has the name
// that the module's result had.
class AttentionAdapters : public PackedRuns {
 protected:
  static constexpr int64_t kWidths[] = {4, 4, 6};
  static inline const std::string kOutput = "/bert/encoder/layer.0/attention/self/Reshape_3_output_0";

  AttentionAdapters() {
    Packed().Save(Path("packed.onnx"));
    Separate().Save(Path("separate.onnx"));
  }

  static tiny::Model Layer() {
    tiny::Model m;
    m.nodes = {{"Constant", {}, {"tokens"}, {{"value_ints", {-1, 2, 2}}}},
               {"Reshape", {"x", "tokens"}, {"h"}},
               {"Constant", {}, {"flat"}, {{"value_ints", {-1, 12}}}},
               {"Reshape", {kOutput, "flat"}, {"rows"}},
               {"MatMul", {"rows", "classifier.weight"}, {"y"}}};
    m.weights = {{"classifier.weight", {12, 3}, tiny::Uniform(36, 0.5f, 4)}};
    return m;
  }

  static tiny::Model Packed() {
    tiny::Model m = Layer();
    m.nodes.insert(m.nodes.begin() + 2, {"Attention",
                                         {"h", "Attention_0_qkv_weight", "Attention_0_qkv_bias"},
                                         {kOutput},
                                         {{"qkv_hidden_sizes", {4, 4, 6}}},
                                         {{"num_heads", 2}},
                                         "com.microsoft"});
    m.weights.push_back({"Attention_0_qkv_weight", {2, 14}, tiny::Uniform(28, 0.9f, 1)});
    m.weights.push_back({"Attention_0_qkv_bias", {14}, tiny::Uniform(14, 0.1f, 2)});
    return m;
  }

  static tiny::Model Separate() {
    tiny::Model m = Layer(), packed = Packed();
    std::vector<tiny::Op> nodes;
    size_t begin = 0;
    for (size_t i = 0; i < 3; ++i) {
      const std::string module = StrCat("bert.encoder.layer.0.attention.self.", std::array{"query", "key", "value"}[i]);
      const auto width = static_cast<size_t>(kWidths[i]);
      m.weights.push_back({module + ".weight", {2, kWidths[i]}, Columns(packed.weights[1].values, 14, begin, width)});
      m.weights.push_back({module + ".bias", {kWidths[i]}, Columns(packed.weights[2].values, 14, begin, width)});
      nodes.push_back({"MatMul", {"h", module + ".weight"}, {module + "0"}});
      nodes.push_back({"Add", {module + "0", module + ".bias"}, {module}});
      begin += width;
    }
    nodes.push_back({"MultiHeadAttention",
                     {nodes[1].outputs[0], nodes[3].outputs[0], nodes[5].outputs[0]},
                     {kOutput},
                     {},
                     {{"num_heads", 2}},
                     "com.microsoft"});
    m.nodes.insert(m.nodes.begin() + 2, nodes.begin(), nodes.end());
    return m;
  }
};

TEST_F(AttentionAdapters, TrainAsBesideProductsOfTheirOwn) {
  ExpectSameTraining("--lora-rank 2");
  ExpectSameTraining("--lora-rank 2 --lora-target query,value --lora-alpha 3");
  ExpectSameTraining("--lora-rank 2 --lora-variant dora");
  ExpectSameTraining("--lora-rank 2 --lora-init pissa --lora-target key");
}

TEST_F(AttentionAdapters, AreMergedIntoTheNode) {
  const Outcome o = TrainOn("packed.onnx", "--epochs 3 --lora-rank 2 --lora-dropout 0.1", "r");
  ASSERT_EQ(o.code, 0) << o.err;
  const double loss = Summary("r")["eval"]["loss"];
  EXPECT_LT(loss, Summary("r")["eval_before"]["loss"]);
  EXPECT_NEAR(Loss("--model r/model.onnx"), loss, 1e-6);
  EXPECT_NEAR(Loss("--model packed.onnx --adapter r/adapter"), loss, 1e-6);
  const std::string name = "Attention_0_qkv_weight";
  EXPECT_NE(Weight("packed.onnx", name).At(0), Weight("r/model.onnx", name).At(0));
}

TEST_F(AttentionAdapters, CannotBeInputsOfTheNode) {
  const Outcome o = TrainOn("packed.onnx", "--epochs 1 --lora-rank 2 --adapter-out onnx", "r");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("inside Attention"), std::string::npos) << o.err;
}

}  // namespace
}  // namespace onnxtrain
