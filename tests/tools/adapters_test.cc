// Low-rank adapters through the program: what is trained, what is written, and how it is read again.
#include <cmath>

#include "frontend/base/status.h"
#include "frontend/onnx/edit/low_rank.h"
#include "tests/tools/adapter_runs.h"

namespace onnxtrain {
namespace {

using Adapters = AdapterRuns;

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

// A module that returns the logits of a model of transformers, for the export, is no part of the names.
TEST_F(Adapters, AreNamedWithoutAModuleThatWrapsTheModel) {
  const auto names = [&](const std::string& up, const std::string& out) {
    tiny::Model net = Net();
    const auto rename = [&](std::string* name) {
      if (name->starts_with("net.up.")) name->replace(0, 6, up);
      if (name->starts_with("net.mid.")) name->replace(0, 7, up + ".mid");
      if (name->starts_with("net.out.")) name->replace(0, 7, out);
    };
    for (tiny::Op& op : net.nodes) std::ranges::for_each(op.inputs, [&](std::string& name) { rename(&name); });
    for (tiny::Weight& weight : net.weights) rename(&weight.name);
    net.Save(Path("named.onnx"));
    const auto model = OnnxModel::Load(Path("named.onnx"));
    EXPECT_TRUE(model.ok()) << model.status();
    const std::vector<LowRankTarget> targets = ListLowRankTargets(**model);
    std::vector<std::string> found;
    for (const LowRankTarget& target : targets) found.push_back(target.module);
    for (const ModuleWeight& weight : ListModuleWeights(**model, targets)) {
      if (weight.name.ends_with("bias")) found.push_back(weight.name);
    }
    return found;
  };
  using Names = std::vector<std::string>;
  const Names plain = {"model.layers.0.up", "model.layers.0.up.mid", "lm_head", "model.layers.0.up.bias",
                       "lm_head.bias"};
  EXPECT_EQ(names("model.layers.0.up", "lm_head"), plain);
  EXPECT_EQ(names("model.model.layers.0.up", "model.lm_head"), plain);
  EXPECT_EQ(names("m.model.layers.0.up", "m.lm_head"), plain);
  EXPECT_EQ(names("m.electra.encoder.layer.0.up", "m.classifier")[0], "electra.encoder.layer.0.up");
  EXPECT_EQ(names("m.albert.encoder.albert_layer_groups.0.up", "m.classifier")[0],
            "albert.encoder.albert_layer_groups.0.up");
  EXPECT_EQ(names("bert.encoder.layer.0.up", "bert.pooler.dense")[0], "bert.encoder.layer.0.up");
  EXPECT_EQ(names("net.up", "net.out")[0], "net.up");
  EXPECT_EQ(names("a.model.layers.0.up", "b.head")[0], "a.model.layers.0.up") << "a part of a greater model";
}

// An output whose weights are all 0 has no direction: DoRA leaves its factor at 1.
TEST_F(Adapters, MagnitudesOfZeroOutputsStayFinite) {
  tiny::Model net = Net();
  net.nodes[3].type = "Tanh";  // passes a gradient at 0
  for (size_t row = 0; row < 16; ++row) net.weights[2].values[row * 8 + 3] = 0;
  for (size_t i = 0; i < 4; ++i) net.weights[0].values[8 + i] = 0;
  net.Save(Path("zeros.onnx"));
  for (const char* dropout : {"0", "0.2"}) {
    const Outcome o = Run(StrCat("--model zeros.onnx --data d.npz --eval-data test.npz --batch-size 16 --lr 0.02 ",
                                 "--quiet --epochs 4 --lora-rank 2 --lora-variant dora --overwrite --out r ",
                                 "--lora-dropout ", dropout));
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_LT(Summary("r")["eval"]["loss"], Summary("r")["eval_before"]["loss"].get<double>() - 0.05);
    for (const auto& [name, value] : Adapter("r/adapter")) {
      for (int64_t i = 0; i < value.size(); ++i) EXPECT_TRUE(std::isfinite(value.At(i))) << name;
    }
    const Outcome merged = Run("eval --model r/model.onnx --data test.npz --json --quiet");
    EXPECT_NEAR(Json::parse(merged.out)["loss"], Summary("r")["eval"]["loss"].get<double>(), 1e-6);
  }
  const HostTensor mid = Weight("r/model.onnx", "net.mid.weight");
  double moved = 0;
  for (int64_t row = 0; row < 16; ++row) moved += std::abs(mid.At(row * 8 + 3));
  EXPECT_GT(moved, 0) << "the output learns";
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
  ExpectRefused(Run("--model mixed.onnx" + line + "m"),
                "the model has no product but its output layer; name it: out. "
                "'layer' multiplies by 'layer.weight' and by its transpose");
}

// Exporters store the weight of a module once for each product, as it is or transposed.
TEST_F(Adapters, CopiesOfASharedWeightHaveOneAdapter) {
  tiny::Model shared;
  shared.input_shape = {-1, 4};
  shared.nodes = {{"MatMul", {"x", "layer.weight"}, {"h0"}},
                  {"Tanh", {"h0"}, {"h1"}},
                  {"MatMul", {"h1", "equal"}, {"h2"}},
                  {"Tanh", {"h2"}, {"h3"}},
                  {"Gemm", {"h3", "turned"}, {"h4"}, {}, {{"transB", 1}}},
                  {"Tanh", {"h4"}, {"h"}},
                  {"MatMul", {"h", "out.weight"}, {"y"}}};
  const std::vector<float> values = tiny::Uniform(16, 0.9f, 3);
  std::vector<float> transpose;
  for (size_t i = 0; i < 16; ++i) transpose.push_back(values[i % 4 * 4 + i / 4]);
  shared.weights = {{"layer.weight", {4, 4}, values},
                    {"equal", {4, 4}, values},
                    {"turned", {4, 4}, transpose},
                    {"out.weight", {4, 3}, tiny::Uniform(12, 0.9f, 4)}};
  shared.Save(Path("copies.onnx"));
  const std::string ties = "--model copies.onnx --tie layer.weight=equal --tie layer.weight=turned ";
  for (const std::string variant : {"lora", "dora"}) {
    const Outcome o = Run(ties + "--data d.npz --eval-data test.npz --epochs 6 --lr 0.05 --lora-rank 2 --quiet " +
                          "--overwrite --out c --lora-variant " + variant);
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(Summary("c")["trainable_parameters"], 2 * (4 + 4) + (variant == "dora" ? 4 : 0));
    EXPECT_LT(Summary("c")["eval"]["loss"], Summary("c")["eval_before"]["loss"]);
    EXPECT_EQ(Adapter("c/adapter").size(), variant == "dora" ? 3u : 2u);
    const HostTensor weight = Weight("c/model.onnx", "layer.weight"), turned = Weight("c/model.onnx", "turned");
    EXPECT_FALSE(weight.SameBytes(Weight("copies.onnx", "layer.weight")));
    EXPECT_TRUE(weight.SameBytes(Weight("c/model.onnx", "equal")));
    for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(turned.At(i), weight.At(i % 4 * 4 + i / 4));
    const Outcome merged = Run("eval --model c/model.onnx --data test.npz --json --quiet");
    EXPECT_NEAR(Json::parse(merged.out)["loss"], Summary("c")["eval"]["loss"].get<double>(), 1e-6);
  }
  const Json listed = Json::parse(Run("inspect --adapters --json " + ties).out);
  EXPECT_EQ(listed["adapters"].size(), 2u);  // and the output layer
  EXPECT_EQ(listed["left_out"], Json::array());
  const Outcome gradients = Run("compare " + ties + "--data d.npz --adapter c/adapter --gradcheck 6 --json --quiet");
  for (const Json& parameter : Json::parse(gradients.out)["gradcheck"]["parameters"])
    EXPECT_LT(parameter["relative"].get<double>(), 1e-4) << parameter;
}

// An update of the weight would change what another node reads.
TEST_F(Adapters, ARunNamesAProductWithoutAnAdapter) {
  tiny::Model net = Net();
  const std::vector<tiny::Op> tied = {{"MatMul", {"x", "tied.weight"}, {"side"}},
                                      {"ReduceMean", {"tied.weight"}, {"mean"}, {}, {{"keepdims", 0}}},
                                      {"Mul", {"side", "mean"}, {"scaled"}},
                                      {"Add", {"h0", "scaled"}, {"h1"}}};
  net.nodes[1].inputs = {"h1"};
  net.nodes.insert(net.nodes.begin() + 1, tied.begin(), tied.end());
  net.weights.push_back({"tied.weight", {4, 16}, tiny::Uniform(64, 0.5f, 9)});
  net.Save(Path("tied.onnx"));
  const std::string why = "'tied', which shares 'tied.weight' with ReduceMean 'mean_node'";
  const Outcome o = Run("--model tied.onnx --data d.npz --lora-rank 2 --max-steps 1 --out t");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE((o.out + o.err).find(StrCat("none beside ", why)), std::string::npos) << o.out << o.err;
  ExpectRefused(Run("--model tied.onnx --data d.npz --lora-rank 2 --lora-target tied --out n"),
                "--lora-target tied: 'tied' shares 'tied.weight' with ReduceMean 'mean_node': it can have no adapter");
  EXPECT_NE(Run("inspect --adapters --model tied.onnx").out.find("'tied' shares 'tied.weight'"), std::string::npos);
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

// Rows of W + scale·B·A, stretched to the trained lengths.
TEST_F(Adapters, MagnitudesStretchTheOutputs) {
  ASSERT_EQ(Train("--epochs 6 --lora-rank 2 --lora-alpha 3 --lora-variant dora --out r").code, 0);
  EXPECT_LT(Summary("r")["eval"]["loss"], Summary("r")["eval_before"]["loss"]);
  EXPECT_TRUE(Json::parse(ReadAll(Path("r/adapter/adapter_config.json")))["use_dora"]);
  const auto adapter = Adapter("r/adapter");
  const std::string prefix = "base_model.model.net.mid.";
  const HostTensor &a = adapter.at(prefix + "lora_A.weight"), &b = adapter.at(prefix + "lora_B.weight"),
                   &magnitude = adapter.at(prefix + "lora_magnitude_vector");
  const HostTensor before = Weight("m.onnx", "net.mid.weight"), after = Weight("r/model.onnx", "net.mid.weight");
  ASSERT_EQ(magnitude.shape(), (Shape{8}));
  for (int64_t out = 0; out < 8; ++out) {
    std::vector<double> row;
    double squares = 0, first = 0;
    for (int64_t in = 0; in < 16; ++in) {
      row.push_back(before.At(in * 8 + out) + 1.5 * Product(b, a, out, in));
      squares += row.back() * row.back();
      first += before.At(in * 8 + out) * before.At(in * 8 + out);
    }
    EXPECT_GT(std::abs(magnitude.At(out) - std::sqrt(first)), 1e-4);  // it was trained
    for (int64_t in = 0; in < 16; ++in)
      EXPECT_NEAR(after.At(in * 8 + out), row[static_cast<size_t>(in)] * magnitude.At(out) / std::sqrt(squares), 1e-6);
  }
  const Outcome merged = Run("eval --model r/model.onnx --data test.npz --json --quiet");
  const Outcome beside = Run("eval --model m.onnx --adapter r/adapter --data test.npz --json --quiet");
  ASSERT_EQ(beside.code, 0) << beside.err;
  EXPECT_NEAR(Json::parse(beside.out)["loss"], Json::parse(merged.out)["loss"].get<double>(), 1e-6);
}

// A and B hold the weight's largest singular values at first, and what is added to it is zero.
TEST_F(Adapters, SingularValuesStartTheUpdate) {
  ASSERT_EQ(
      Train("--max-steps 1 --lora-rank 2 --lora-init pissa --max-grad-norm 1e-9 --optimizer sgd --out start").code, 0);
  EXPECT_NEAR(Summary("start")["eval"]["loss"], Summary("start")["eval_before"]["loss"].get<double>(), 1e-7);
  const auto adapter = Adapter("start/adapter");
  const std::string prefix = "base_model.model.net.mid.";
  const HostTensor &a = adapter.at(prefix + "lora_A.weight"), &b = adapter.at(prefix + "lora_B.weight");
  ASSERT_EQ(a.shape(), (Shape{4, 16}));  // of twice the rank: the trained and the first values
  ASSERT_EQ(b.shape(), (Shape{8, 4}));
  // W·aᵢ = σᵢ·aᵢ-direction: the residual W − scale·B·A of the first two is orthogonal to both rows of A.
  const HostTensor w = Weight("m.onnx", "net.mid.weight");
  for (int64_t out = 0; out < 8; ++out) {
    for (int64_t r = 0; r < 2; ++r) {
      double dot = 0;
      for (int64_t in = 0; in < 16; ++in) {
        double residual = w.At(in * 8 + out);
        for (int64_t k = 0; k < 2; ++k) residual -= 2 * b.At(out * 4 + k) * a.At(k * 16 + in);
        dot += residual * a.At(r * 16 + in);
      }
      EXPECT_NEAR(dot, 0, 1e-4);
    }
  }
  ASSERT_EQ(Train("--epochs 4 --lora-rank 2 --lora-init pissa --out r").code, 0);
  EXPECT_LT(Summary("r")["eval"]["loss"], Summary("r")["eval_before"]["loss"]);
  const Outcome beside = Run("eval --model m.onnx --adapter r/adapter --data test.npz --json --quiet");
  EXPECT_NEAR(Json::parse(beside.out)["loss"], Summary("r")["eval"]["loss"].get<double>(), 1e-6);
}

// Dropout acts in training alone, on the path of the adapter alone: with B = 0 the first loss is that of the base.
TEST_F(Adapters, DropoutActsOnTheirInputs) {
  ASSERT_EQ(Train("--max-steps 12 --lora-rank 2 --out none").code, 0);
  ASSERT_EQ(Train("--max-steps 12 --lora-rank 2 --lora-dropout 0.5 --out half").code, 0);
  EXPECT_EQ(Summary("none")["eval_before"]["loss"], Summary("half")["eval_before"]["loss"]);
  EXPECT_NE(Summary("none")["final_loss"], Summary("half")["final_loss"]);
  EXPECT_EQ(Json::parse(ReadAll(Path("half/adapter/adapter_config.json")))["lora_dropout"], 0.5);
  const std::string eval = "eval --model m.onnx --adapter half/adapter --data test.npz --json --quiet";
  EXPECT_NEAR(Json::parse(Run(eval).out)["loss"], Summary("half")["eval"]["loss"].get<double>(), 1e-6);
  tiny::Model dropping = Net();
  dropping.nodes[1].outputs = {"kept"};
  dropping.nodes.insert(dropping.nodes.begin() + 2, {"Dropout", {"kept"}, {"h"}});
  dropping.Save(Path("dropping.onnx"));
  const Outcome o =
      Run("--model dropping.onnx --data d.npz --eval-data test.npz --batch-size 16 --lr 0.02 --quiet --max-steps 12 "
          "--lora-rank 2 --lora-dropout 0.5 --dropout 0 --out kept");  // of the file's nodes alone
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Summary("kept")["final_loss"], Summary("half")["final_loss"]);
}

TEST_F(Adapters, VariantsHaveTheGradientsOfFiniteDifferences) {
  for (const std::string flags :
       {"--lora-variant dora", "--lora-init pissa", "--lora-variant dora --lora-init pissa"}) {
    ASSERT_EQ(Train("--max-steps 3 --lora-rank 2 " + flags + " --out r --overwrite").code, 0) << flags;
    const Outcome o = Run("compare --model m.onnx --data d.npz --adapter r/adapter --gradcheck 6 --json --quiet");
    // The lengths that magnitudes are divided by have no gradient, which finite differences of A and B see.
    const bool dora = flags.find("dora") != std::string::npos;
    EXPECT_EQ(o.code, dora ? 2 : 0) << flags << o.out << o.err;
    int magnitudes = 0;
    const Json result = Json::parse(o.out);
    for (const Json& parameter : result["gradcheck"]["parameters"]) {
      if (!parameter["name"].get<std::string>().ends_with("magnitude_vector.weight")) continue;
      ++magnitudes;
      EXPECT_LT(parameter["relative"], 1e-6) << parameter;
    }
    EXPECT_EQ(magnitudes, dora ? 2 : 0) << flags;
  }
}

// x[batch,2,6,6] → conv(w1) [batch,4,6,6] → relu → conv(w2, stride 2) [batch,3,3,3] → mean → [batch,3].
TEST_F(Adapters, ConvolutionsHaveTheirs) {
  tiny::Model net;
  net.input_shape = {-1, 2, 6, 6};
  net.nodes = {{"Conv", {"x", "conv1.weight", "conv1.bias"}, {"h0"}, {{"pads", {1, 1, 1, 1}}}},
               {"Relu", {"h0"}, {"h"}},
               {"Conv", {"h", "conv2.weight"}, {"g"}, {{"strides", {2, 2}}}},
               {"GlobalAveragePool", {"g"}, {"p"}},
               {"Flatten", {"p"}, {"y0"}},
               {"MatMul", {"y0", "head.weight"}, {"y"}}};
  net.weights = {{"conv1.weight", {4, 2, 3, 3}, tiny::Uniform(72, 0.5f, 1)},
                 {"conv1.bias", {4}, tiny::Uniform(4, 0.1f, 2)},
                 {"conv2.weight", {5, 4, 2, 2}, tiny::Uniform(80, 0.5f, 3)},
                 {"head.weight", {5, 3}, tiny::Uniform(15, 0.7f, 4)}};
  net.Save(Path("conv.onnx"));
  HostTensor x({DType::kFloat32, {48, 2, 6, 6}}), labels({DType::kInt64, {48}});
  const std::vector<float> noise = tiny::Uniform(x.size(), 1, 5);
  for (int64_t i = 0; i < labels.size(); ++i) labels.SetInt(i, i % 3);
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, noise[static_cast<size_t>(i)] + (i % 6 / 2 == i / 72 % 3 ? 1 : 0));
  ASSERT_TRUE(WriteNpz(Path("img.npz"), {{"x", x}, {"label", labels}}).ok());
  for (const std::string variant : {"lora", "dora"}) {
    const Outcome o = Run(StrCat("--model conv.onnx --data img.npz --eval-data img.npz --lora-rank 2 --lora-variant ",
                                 variant, " --epochs 10 --lr 0.02 --quiet --out ", variant));
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_LT(Summary(variant)["eval"]["loss"], Summary(variant)["eval_before"]["loss"]);
    const auto adapter = Adapter(variant + "/adapter");
    EXPECT_EQ(adapter.at("base_model.model.conv1.lora_A.weight").shape(), (Shape{2, 2, 3, 3}));
    EXPECT_EQ(adapter.at("base_model.model.conv2.lora_B.weight").shape(), (Shape{5, 2, 1, 1}));
    EXPECT_EQ(adapter.contains("base_model.model.head.lora_A.weight"), false);
    const Outcome merged = Run("eval --model " + variant + "/model.onnx --data img.npz --json --quiet");
    EXPECT_NEAR(Json::parse(merged.out)["loss"], Summary(variant)["eval"]["loss"].get<double>(), 1e-6);
    const Outcome beside =
        Run("eval --model conv.onnx --adapter " + variant + "/adapter --data img.npz --json --quiet");
    EXPECT_NEAR(Json::parse(beside.out)["loss"], Summary(variant)["eval"]["loss"].get<double>(), 1e-6);
  }
}

// onnxruntime-genai names the products of modules, and their attention otherwise than transformers.
TEST_F(Adapters, ModulesHaveTheNamesOfTheExportedProgram) {
  tiny::Model net = Net();
  net.producer = "onnxruntime-genai";
  const auto rename = [&](size_t node, size_t weight, const std::string& name) {
    net.nodes[node].inputs[1] = net.weights[weight].name = name;
  };
  rename(0, 0, "model.layers.0.attn.q_proj.MatMul.weight");
  rename(2, 2, "model.layers.0.mlp.up_proj.MatMul.weight");
  net.Save(Path("genai.onnx"));
  const Outcome o =
      Run("--model genai.onnx --data d.npz --max-steps 2 --lora-rank 2 --lora-target q_proj,up_proj "
          "--batch-size 16 --quiet --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Json::parse(ReadAll(Path("r/adapter/adapter_config.json")))["target_modules"],
            Json({"model.layers.0.mlp.up_proj", "model.layers.0.self_attn.q_proj"}));
}

// A second output, which the loss does not depend on, has an adapter, too.
TEST_F(Adapters, ProductsWithoutLossKeepTheirInitialValues) {
  tiny::Model net = Net();
  net.outputs = {"y", "other"};
  net.nodes.push_back({"MatMul", {"h", "net.other.weight"}, {"other"}});
  net.weights.push_back({"net.other.weight", {16, 5}, tiny::Uniform(80, 0.5f, 7)});
  net.Save(Path("two.onnx"));
  for (const std::string variant : {"lora", "dora"}) {
    const Outcome o =
        Run(StrCat("--model two.onnx --data d.npz --max-steps 3 --batch-size 16 --loss cross_entropy --logits y "
                   "--lora-rank 2 --quiet --lora-variant ",
                   variant, " --out ", variant));
    ASSERT_EQ(o.code, 0) << o.err;
    const auto adapter = Adapter(variant + "/adapter");
    const HostTensor& b = adapter.at("base_model.model.net.other.lora_B.weight");
    for (int64_t i = 0; i < b.size(); ++i) EXPECT_EQ(b.At(i), 0);
    const HostTensor before = Weight("two.onnx", "net.other.weight"),
                     after = Weight(variant + "/model.onnx", "net.other.weight");
    for (int64_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after.At(i), before.At(i), 1e-6);
  }
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
  refused("--lora-rank 2 --lora-dropout 1", "--lora-dropout");
  refused("--lora-alpha 4", "--lora-alpha: has no effect without --lora-rank");
  refused("--adapter nowhere", "nowhere/adapter_config.json");
}

}  // namespace
}  // namespace onnxtrain
