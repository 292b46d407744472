// Models that were exported for one batch and follow another, and models that take one sample at a time. Those that are
// bound to another batch are in trial_test.cc.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

class FrozenBatch : public Scratch {};

TEST_F(FrozenBatch, IsFreedWhereTheModelFollows) {
  for (int64_t batch : {1, 3}) {
    tiny::Model m = tiny::Mlp(3);
    m.input_shape = {batch, 4};
    m.Save(Path("m.onnx"));
    const Outcome o = Run("--model m.onnx --batch-size 8 --max-steps 2 --overwrite --out r");
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.err.find("exported for a batch of"), std::string::npos) << o.err;
  }
}

// Models that run with one sample only.
class SingleSample : public Scratch {
 protected:
  SingleSample() { WriteSamples("d.npz", {4}); }

  // Writes samples x of that shape and labels of 3 classes.
  void WriteSamples(const std::string& file, Shape shape, int64_t samples = kSamples) {
    shape.insert(shape.begin(), samples);
    HostTensor x({DType::kFloat32, shape}), label({DType::kInt64, {samples}});
    const std::vector<float> noise = tiny::Uniform(x.size(), 1, 5);
    for (int64_t i = 0; i < x.size(); ++i) x.Set(i, noise[i]);
    for (int64_t i = 0; i < samples; ++i) label.SetInt(i, i % 3);
    EXPECT_TRUE(WriteNpz(Path(file), {{"x", x}, {"label", label}}).ok());
  }

  NamedArrays Gradients(const tiny::Model& model, const std::string& data = "d.npz", const std::string& flags = "") {
    model.Save(Path("g.onnx"));
    const Outcome o = Run("grad --model g.onnx --data " + data + " --out g.npz " + flags);
    EXPECT_EQ(o.code, 0) << o.err;
    auto arrays = ReadNpz(Path("g.npz"));
    EXPECT_TRUE(arrays.ok()) << arrays.status();
    return arrays.ok() ? *arrays : NamedArrays();
  }

  // Expects a model to have the loss and the gradients of one that takes batches.
  void ExpectGradients(const NamedArrays& got, const NamedArrays& want) {
    int compared = 0;
    for (const auto& [name, tensor] : want) {
      const auto found = std::ranges::find(got, name, &NamedArrays::value_type::first);
      if (found == got.end() || found->second.shape() != tensor.shape()) continue;
      ++compared;
      for (int64_t i = 0; i < tensor.size(); ++i)
        EXPECT_NEAR(found->second.At(i), tensor.At(i), 1e-5 * std::max(1.0, std::abs(tensor.At(i)))) << name;
    }
    EXPECT_GE(compared, 5);  // the loss and four weights
  }

  // Trains without data, with data, and evaluates and predicts with the result.
  void ExpectTrains(const tiny::Model& model, const std::string& data = "d.npz") {
    model.Save(Path("m.onnx"));
    const Outcome trial = Run("--model m.onnx --max-steps 2 --overwrite --out t");
    EXPECT_EQ(trial.code, 0) << trial.err;
    EXPECT_NE((trial.out + trial.err).find("it takes one sample at a time"), std::string::npos)
        << trial.out << trial.err;
    const Outcome run = Run("--model m.onnx --data " + data + " --batch-size 5 --epochs 2 --overwrite --out r");
    ASSERT_EQ(run.code, 0) << run.err;
    const auto summary = nlohmann::json::parse(ReadAll(Path("r/summary.json")));
    EXPECT_EQ(summary["micro_batch"], 1);
    EXPECT_EQ(summary["accumulation"], 5);
    EXPECT_EQ(Run("eval --model r/model.onnx --data " + data).code, 0);
    const Outcome predict = Run("predict --model r/model.onnx --data " + data + " --out p.csv");
    EXPECT_EQ(predict.code, 0) << predict.err;
    const std::string csv = ReadAll(Path("p.csv"));
    EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), kSamples + 1) << csv;
  }

  static constexpr int64_t kSamples = 7;
};

TEST_F(SingleSample, MayHaveNoBatchAxis) {
  tiny::Model vector = tiny::Mlp(3, "Softmax");
  vector.nodes.back().numbers = {{"axis", 0}};
  vector.input_shape = {4};
  ExpectTrains(vector);
  ExpectGradients(Gradients(vector), Gradients(tiny::Mlp(3, "Softmax")));
  // As many outputs as inputs are no batch of numbers.
  tiny::Model square = tiny::Mlp(4);
  square.input_shape = {4};
  ExpectTrains(square);
}

// A policy and a value of a board [2,2], which the model flattens.
TEST_F(SingleSample, MayHaveSeveralOutputsWithoutABatch) {
  tiny::Model m = tiny::Mlp(3);
  m.input_shape = {2, 2};
  m.nodes.insert(m.nodes.begin(), {"Flatten", {"x"}, {"flat"}, {}, {{"axis", 0}}});
  m.nodes[1].inputs[0] = "flat";
  m.nodes.push_back({"MatMul", {"h", "wv"}, {"value"}});
  m.weights.push_back({"wv", {16, 1}, tiny::Uniform(16, 0.5f, 4)});
  m.outputs = {"y", "value"};
  m.Save(Path("m.onnx"));
  const Outcome trial = Run("--model m.onnx --max-steps 2 --out t");
  EXPECT_EQ(trial.code, 0) << trial.err;
  const Outcome run = Run("--model m.onnx --data d.npz --logits y --max-steps 2 --out r");
  EXPECT_EQ(run.code, 0) << run.err;
}

// Classes of an image; `whole`: the model puts the batch axis in front of it.
tiny::Model ImageModel(bool whole) {
  tiny::Model m{.input_shape = {2, 6, 6}};
  m.nodes = {{"Constant", {}, {"front"}, {{"value_ints", {0}}}},
             {"Unsqueeze", {"x", "front"}, {"images"}},
             {"Conv", {"images", "wc", "bc"}, {"c"}},
             {"Relu", {"c"}, {"h"}},
             {"GlobalAveragePool", {"h"}, {"p"}},
             {"Flatten", {"p"}, {"f"}},
             {"MatMul", {"f", "w"}, {"o"}},
             {"Add", {"o", "b"}, {"y"}}};
  m.weights = {{"wc", {4, 2, 3, 3}, tiny::Uniform(72, 0.5f, 1)},
               {"bc", {4}, tiny::Uniform(4, 0.5f, 2)},
               {"w", {4, 3}, tiny::Uniform(12, 0.5f, 3)},
               {"b", {3}, tiny::Uniform(3, 0.5f, 4)}};
  if (whole) return m;
  m.input_shape = {-1, 2, 6, 6};
  m.nodes.erase(m.nodes.begin(), m.nodes.begin() + 2);
  m.nodes[0].inputs[0] = "x";
  return m;
}

TEST_F(SingleSample, MayBeAnImageThatTheModelMakesABatchOf) {
  WriteSamples("images.npz", {2, 6, 6});
  ExpectTrains(ImageModel(true), "images.npz");
  ExpectGradients(Gradients(ImageModel(true), "images.npz"), Gradients(ImageModel(false), "images.npz"));
}

// The model takes rows for features and has no output for each of them: 8 are as many as the first axis has.
TEST_F(SingleSample, IsNoBatchOfItsFirstAxis) {
  tiny::Model m{.input_shape = {8, 4}};
  m.nodes = {{"MatMul", {"x", "w1"}, {"h"}},
             {"Relu", {"h"}, {"r"}},
             {"ReduceMean", {"r"}, {"f"}, {{"axes", {0}}}, {{"keepdims", 0}}},
             {"MatMul", {"f", "w2"}, {"y"}}};
  m.weights = {{"w1", {4, 16}, tiny::Uniform(64, 0.5f, 1)}, {"w2", {16, 3}, tiny::Uniform(48, 0.5f, 2)}};
  WriteSamples("rows.npz", {8, 4});
  ExpectTrains(m, "rows.npz");
}

// The largest of the rows of a cloud of points, whose number is free in the file.
tiny::Model CloudModel(const std::vector<int64_t>& shape) {
  tiny::Model m{.input_shape = shape};
  const int64_t points = static_cast<int64_t>(shape.size()) - 2;  // the axis of the points
  m.nodes = {{"MatMul", {"x", "w1"}, {"h"}}, {"Add", {"h", "b1"}, {"z"}},
             {"Relu", {"z"}, {"r"}},         {"ReduceMax", {"r"}, {"f"}, {{"axes", {points}}}, {{"keepdims", 0}}},
             {"MatMul", {"f", "w2"}, {"o"}}, {"Add", {"o", "b2"}, {"y"}}};
  m.weights = {{"w1", {3, 16}, tiny::Uniform(48, 0.5f, 1)},
               {"b1", {16}, tiny::Uniform(16, 0.5f, 2)},
               {"w2", {16, 5}, tiny::Uniform(80, 0.5f, 3)},
               {"b2", {5}, tiny::Uniform(5, 0.5f, 4)}};
  return m;
}

TEST_F(SingleSample, HasOneAxisMoreInTheDataThanTheRowsOfTheModel) {
  WriteSamples("clouds.npz", {20, 3});
  for (const int64_t points : {-2, 20}) {
    ExpectTrains(CloudModel({points, 3}), "clouds.npz");
    ExpectGradients(Gradients(CloudModel({points, 3}), "clouds.npz"), Gradients(CloudModel({-1, 20, 3}), "clouds.npz"));
  }
}

TEST_F(SingleSample, TakesTheUsualGlobalBatch) {
  ImageModel(true).Save(Path("m.onnx"));
  const Outcome run = Run("--model m.onnx --max-steps 1 --overwrite --out r");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(nlohmann::json::parse(ReadAll(Path("r/summary.json")))["global_batch"], 32);
}

// [20,3] is a batch of 20 rows for the model, unless its user says otherwise.
TEST_F(SingleSample, IsTheWholeInputWithoutABatchAxis) {
  tiny::Model m = CloudModel({20, 3});
  m.nodes.erase(m.nodes.begin() + 3);
  m.nodes[3].inputs[0] = "r";
  m.Save(Path("m.onnx"));
  const auto micro_batch = [&](const std::string& flags) -> int64_t {
    const Outcome run = Run("--model m.onnx --max-steps 1 --overwrite --out r " + flags);
    EXPECT_EQ(run.code, 0) << run.err;
    return nlohmann::json::parse(ReadAll(Path("r/summary.json")))["micro_batch"];
  };
  EXPECT_EQ(micro_batch(""), 20);
  EXPECT_EQ(micro_batch("--batch-axis auto"), 20);
  EXPECT_EQ(micro_batch("--batch-axis none"), 1);
  const Outcome bad = Run("--model m.onnx --batch-axis 0");
  EXPECT_EQ(bad.code, 1);
  EXPECT_NE(bad.err.find("--batch-axis: expected one of auto|none, got '0'"), std::string::npos) << bad.err;
  const Outcome rows = Run("--model m.onnx --data d.npz --batch-axis none --out n");
  EXPECT_EQ(rows.code, 1);
  EXPECT_NE(rows.err.find("a sample is [4]"), std::string::npos) << rows.err;
}

// Those of one sample would be trained with, and replace the running ones.
TEST_F(SingleSample, KeepsTheStatisticsOfBatchNormalization) {
  WriteSamples("images.npz", {2, 6, 6});
  const auto with_norm = [](bool whole) {
    tiny::Model m = ImageModel(whole);
    const auto conv = std::ranges::find(m.nodes, "Conv", &tiny::Op::type);
    conv->outputs = {"d"};
    m.nodes.insert(conv + 1, {"BatchNormalization", {"d", "scale", "shift", "mean", "variance"}, {"c"}});
    m.weights.push_back({"scale", {4}, {1, 2, 0.5f, 1}});
    m.weights.push_back({"shift", {4}, {0, 0.1f, -0.1f, 0}});
    m.weights.push_back({"mean", {4}, {0.1f, 0.2f, -0.1f, 0}});
    m.weights.push_back({"variance", {4}, {1, 2, 0.5f, 1}});
    return m;
  };
  const NamedArrays frozen = Gradients(with_norm(false), "images.npz", "--batch-norm frozen");
  ExpectGradients(Gradients(with_norm(true), "images.npz"), frozen);
  with_norm(true).Save(Path("m.onnx"));
  const Outcome run = Run("--model m.onnx --data images.npz --max-steps 1 --out r");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.err.find("BatchNormalization is frozen"), std::string::npos) << run.err;
  const Outcome train = Run("--model m.onnx --data images.npz --max-steps 1 --batch-norm train --out t");
  EXPECT_EQ(train.code, 0) << train.err;
  EXPECT_EQ(train.err.find("BatchNormalization is frozen"), std::string::npos) << train.err;
}

// A memory [5,3] that all rows of a batch share, another one for each sample.
TEST_F(SingleSample, MayShareAMatrixAmongRows) {
  const auto attention = [](bool shared) {
    tiny::Model m{.input_shape = {-1, 4}};
    m.more_inputs = {{"memory", shared ? std::vector<int64_t>{5, 3} : std::vector<int64_t>{-1, 5, 3}}};
    m.nodes = {{"MatMul", {"x", "q"}, {"query"}}, {"MatMul", {"memory", "k"}, {"keys"}}};
    if (shared) {
      m.nodes.push_back({"Transpose", {"keys"}, {"turned"}, {{"perm", {1, 0}}}});
      m.nodes.push_back({"MatMul", {"query", "turned"}, {"s"}});
    } else {
      m.nodes.push_back({"Constant", {}, {"one"}, {{"value_ints", {1}}}});
      m.nodes.push_back({"Unsqueeze", {"query", "one"}, {"row"}});
      m.nodes.push_back({"Transpose", {"keys"}, {"turned"}, {{"perm", {0, 2, 1}}}});
      m.nodes.push_back({"MatMul", {"row", "turned"}, {"scores"}});
      m.nodes.push_back({"Squeeze", {"scores", "one"}, {"s"}});
    }
    m.nodes.push_back({"MatMul", {"s", "w"}, {"o"}});
    m.nodes.push_back({"Add", {"o", "b"}, {"y"}});
    m.weights = {{"q", {4, 6}, tiny::Uniform(24, 0.5f, 1)},
                 {"k", {3, 6}, tiny::Uniform(18, 0.5f, 2)},
                 {"w", {5, 3}, tiny::Uniform(15, 0.5f, 3)},
                 {"b", {3}, tiny::Uniform(3, 0.5f, 4)}};
    return m;
  };
  HostTensor x({DType::kFloat32, {kSamples, 4}}), memory({DType::kFloat32, {kSamples, 5, 3}}),
      label({DType::kInt64, {kSamples}});
  const std::vector<float> noise = tiny::Uniform(kSamples * 19, 1, 6);
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, noise[i]);
  for (int64_t i = 0; i < memory.size(); ++i) memory.Set(i, noise[x.size() + i]);
  for (int64_t i = 0; i < kSamples; ++i) label.SetInt(i, i % 3);
  ASSERT_TRUE(WriteNpz(Path("m.npz"), {{"x", x}, {"memory", memory}, {"label", label}}).ok());
  ExpectGradients(Gradients(attention(true), "m.npz"), Gradients(attention(false), "m.npz"));
}

// Nodes of a graph: features x[n,4] and edges[2,e] between them.
class GraphNodes : public SingleSample {
 protected:
  static constexpr int64_t kNodes = 40, kEdges = 30;

  GraphNodes() {
    WriteSamples("nodes.npz", {4}, kNodes);
    HostTensor edges({DType::kInt64, {2, kEdges}}), matrix({DType::kFloat32, {kNodes, kNodes}});
    for (int64_t i = 0; i < kEdges; ++i) {
      const int64_t from = i, to = (3 * i + 1) % kNodes;
      edges.SetInt(i, from);
      edges.SetInt(kEdges + i, to);
      matrix.Set(to * kNodes + from, 1);
    }
    WriteNpy("edges.npy", edges);
    WriteNpy("matrix.npy", matrix);
  }

  void WriteNpy(const std::string& file, const HostTensor& array) {
    std::ofstream out(Path(file), std::ios::binary);
    out << NpyPreamble(array.type()).value();
    out.write(reinterpret_cast<const char*>(array.bytes().data()), static_cast<std::streamsize>(array.bytes().size()));
  }

  // Mixes the features of each node with those of the node that has an edge to it.
  static tiny::Model NodeModel(bool edges) {
    tiny::Model m{.input_shape = {-2, 4}};
    m.nodes = {{"MatMul", {"x", "w1"}, {"h"}}};
    if (edges) {
      m.more_inputs = {{"edges", {2, -3}}};
      m.int_inputs = {"edges"};
      m.nodes.insert(m.nodes.end(), {{"Split", {"edges"}, {"from2", "to2"}, {}, {{"axis", 0}}},
                                     {"Constant", {}, {"zero"}, {{"value_ints", {0}}}},
                                     {"Constant", {}, {"one"}, {{"value_ints", {1}}}},
                                     {"Squeeze", {"from2", "zero"}, {"from"}},
                                     {"Squeeze", {"to2", "zero"}, {"to"}},
                                     {"Gather", {"h", "from"}, {"sent"}},
                                     {"Unsqueeze", {"to", "one"}, {"rows"}},
                                     {"Shape", {"sent"}, {"extents"}},
                                     {"Expand", {"rows", "extents"}, {"index"}},
                                     {"ScatterElements", {"h", "index", "sent"}, {"sum"}, {}, {{"axis", 0}}}});
    } else {
      m.more_inputs = {{"matrix", {-2, -2}}};
      m.nodes.insert(m.nodes.end(), {{"MatMul", {"matrix", "h"}, {"got"}}, {"Add", {"h", "got"}, {"sum"}}});
    }
    m.nodes.insert(m.nodes.end(),
                   {{"Relu", {"sum"}, {"r"}}, {"MatMul", {"r", "w2"}, {"o"}}, {"Add", {"o", "b"}, {"y"}}});
    m.weights = {{"w1", {4, 8}, tiny::Uniform(32, 0.5f, 1)},
                 {"w2", {8, 3}, tiny::Uniform(24, 0.5f, 2)},
                 {"b", {3}, tiny::Uniform(3, 0.5f, 3)}};
    return m;
  }

  // Losses do not depend on the seed where samples keep their order and are one batch.
  void ExpectInOrder(const tiny::Model& model, const std::string& constant) {
    model.Save(Path("m.onnx"));
    const std::string run = "--model m.onnx --data nodes.npz --input " + constant + " --overwrite --out r --epochs 5 ";
    double first = 0;
    for (const std::string flags : {"--seed 1", "--seed 2", "--no-shuffle --batch-size 40"}) {
      const Outcome o = Run(run + flags);
      ASSERT_EQ(o.code, 0) << o.err;
      EXPECT_NE(o.err.find("refers to the samples by their places"), std::string::npos) << o.err;
      const auto summary = nlohmann::json::parse(ReadAll(Path("r/summary.json")));
      EXPECT_EQ(summary["micro_batch"], kNodes);
      EXPECT_EQ(summary["steps"], 5);
      if (first == 0) first = summary["final_loss"];
      EXPECT_DOUBLE_EQ(summary["final_loss"], first);
    }
    const std::string same = " --model r/model.onnx --data nodes.npz --input " + constant;
    EXPECT_EQ(Run("eval" + same).code, 0);
    EXPECT_EQ(Run("predict" + same + " --out p.csv").code, 0);
    for (const std::string flags : {"--batch-size 8", "--eval-split 0.2"}) {
      const Outcome o = Run(run + flags);
      EXPECT_EQ(o.code, 1);
      EXPECT_NE(o.err.find("refers to the samples by their places"), std::string::npos) << o.err;
    }
  }
};

TEST_F(GraphNodes, KeepTheirPlacesWhereEdgesAreAConstant) { ExpectInOrder(NodeModel(true), "edges=@edges.npy"); }

TEST_F(GraphNodes, KeepTheirPlacesWhereAMatrixIsAConstant) { ExpectInOrder(NodeModel(false), "matrix=@matrix.npy"); }

TEST_F(GraphNodes, KeepTheirPlacesWhereTheModelHoldsTheMatrix) {
  tiny::Model m = NodeModel(false);
  m.input_shape = {kNodes, 4};
  m.more_inputs.clear();
  std::vector<float> ones(kNodes * kNodes, 0);
  for (int64_t i = 0; i < kEdges; ++i) ones[(3 * i + 1) % kNodes * kNodes + i] = 1;
  m.weights.push_back({"matrix", {kNodes, kNodes}, ones});
  m.Save(Path("m.onnx"));
  std::vector<double> losses;
  for (const std::string seed : {"1", "2"}) {
    const Outcome o =
        Run("--model m.onnx --data nodes.npz --freeze matrix --epochs 5 --overwrite --out r --seed " + seed);
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.err.find("40 samples, in order"), std::string::npos) << o.err;
    losses.push_back(nlohmann::json::parse(ReadAll(Path("r/summary.json")))["final_loss"]);
  }
  EXPECT_DOUBLE_EQ(losses[0], losses[1]);
}

// scores[n] of moves[n,4] with one state[5] for all: rows with a state of their own.
TEST_F(SingleSample, MayShareAnInputAmongRows) {
  tiny::Model m{.input = "moves", .input_shape = {-2, 4}};
  m.more_inputs = {{"state", {5}}};
  m.outputs = {"scores"};
  m.nodes = {
      {"MatMul", {"state", "ws"}, {"s"}}, {"MatMul", {"moves", "wm"}, {"e"}}, {"MatMul", {"e", "s"}, {"scores"}}};
  m.weights = {{"ws", {5, 8}, tiny::Uniform(40, 0.5f, 1)}, {"wm", {4, 8}, tiny::Uniform(32, 0.5f, 2)}};
  HostTensor moves({DType::kFloat32, {kSamples, 4}}), state({DType::kFloat32, {kSamples, 5}}),
      label({DType::kFloat32, {kSamples}});
  const std::vector<float> noise = tiny::Uniform(kSamples * 10, 1, 6);
  for (int64_t i = 0; i < moves.size(); ++i) moves.Set(i, noise[i]);
  for (int64_t i = 0; i < state.size(); ++i) state.Set(i, noise[kSamples * 4 + i]);
  for (int64_t i = 0; i < kSamples; ++i) label.Set(i, noise[kSamples * 9 + i]);
  ASSERT_TRUE(WriteNpz(Path("s.npz"), {{"moves", moves}, {"state", state}, {"label", label}}).ok());
  ExpectTrains(m, "s.npz");
}

// A constant that GatherElements indexes with has a batch of one; the output loses its batch.
TEST_F(SingleSample, MayHaveItInAConstant) {
  tiny::Model m = tiny::Mlp(4);
  m.nodes.back().outputs = {"all"};
  m.nodes.push_back({"Cast", {"places"}, {"index"}, {}, {{"to", 7}}});
  m.nodes.push_back({"GatherElements", {"all", "index"}, {"three"}, {}, {{"axis", 1}}});
  m.nodes.push_back({"Squeeze", {"three"}, {"y"}});
  m.weights.push_back({"places", {1, 3}, {3, 1, 0}});
  ExpectTrains(m);
}

// The graph reshapes to one row, whatever the batch is.
TEST_F(SingleSample, MayJoinTheBatchWithAnotherAxis) {
  tiny::Model m = tiny::Mlp(3);
  m.nodes.back().outputs = {"rows"};
  m.nodes.push_back({"Flatten", {"rows"}, {"y"}, {}, {{"axis", 0}}});
  ExpectTrains(m);
  ExpectGradients(Gradients(m), Gradients(tiny::Mlp(3)));
}

}  // namespace
}  // namespace onnxtrain
