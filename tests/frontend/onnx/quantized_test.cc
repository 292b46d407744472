// Trains a quantized network: integers become float weights and, on export, integers again.
#include <gtest/gtest.h>

#include "backends/registry.h"
#include "frontend/base/strings.h"
#include "frontend/onnx/recover/rows.h"
#include "frontend/onnx/write/export.h"
#include "model_builder.h"
#include "optim/step/session.h"

namespace onnxtrain {
namespace {

constexpr int kUInt8 = 2, kInt8 = 3, kInt32 = 6, kInt4 = 22;

// Adds NAME_scale, NAME_zero and DequantizeLinear(NAME) → NAME_float.
void Dequantize(onnx::ModelProto* model, const std::string& name, const std::vector<float>& scale, int64_t axis) {
  FillFloats(AddInitializer(model, name + "_scale", {static_cast<int64_t>(scale.size())}), scale);
  SetInt(AddNode(model, "DequantizeLinear", {name, name + "_scale"}, {name + "_float"}), "axis", axis);
}

// Adds QuantizeLinear and DequantizeLinear around an activation.
void QuantizePair(onnx::ModelProto* model, const std::string& name, float scale, int zero) {
  FillFloats(AddInitializer(model, name + "_scale", {}), {scale});
  AddInitializer(model, name + "_zero", {}, kUInt8)->add_int32_data(zero);
  AddNode(model, "QuantizeLinear", {name, name + "_scale", name + "_zero"}, {name + "_q"});
  AddNode(model, "DequantizeLinear", {name + "_q", name + "_scale", name + "_zero"}, {name + "_dq"});
}

int Noise(int i, int range) {
  return static_cast<int>((static_cast<uint32_t>(i) * 2654435761u >> 16) % (2 * range + 1)) - range;
}

// x [N,1,6,6] → Conv (int8 per channel, int32 bias) → Relu → Gemm (int4 per column) → y [N,3], each with its pairs.
onnx::ModelProto Network() {
  onnx::ModelProto model = NewModel(21);
  AddInput(&model, "x", {-1, 1, 6, 6});
  QuantizePair(&model, "x", 0.02f, 128);
  auto* w = AddInitializer(&model, "w", {4, 1, 3, 3}, kInt8);
  for (int i = 0; i < 36; ++i) w->add_int32_data(Noise(i, 100));
  auto* b = AddInitializer(&model, "b", {4}, kInt32);
  for (int i = 0; i < 4; ++i) b->add_int32_data(Noise(i, 2000));
  auto* v = AddInitializer(&model, "v", {64, 3}, kInt4);
  for (int i = 0; i < 96; ++i) v->add_int32_data((Noise(i, 7) & 15) | (Noise(i + 500, 7) & 15) << 4);
  Dequantize(&model, "w", {0.005f, 0.004f, 0.006f, 0.005f}, 0);
  Dequantize(&model, "b", {0.0001f, 0.00008f, 0.00012f, 0.0001f}, 0);
  Dequantize(&model, "v", {0.05f, 0.06f, 0.05f}, 1);
  AddNode(&model, "Conv", {"x_dq", "w_float", "b_float"}, {"conv"});
  AddNode(&model, "Relu", {"conv"}, {"h"});
  QuantizePair(&model, "h", 0.02f, 0);
  AddNode(&model, "Flatten", {"h_dq"}, {"flat"});
  AddNode(&model, "MatMul", {"flat", "v_float"}, {"y"});
  AddOutput(&model, "y");
  return model;
}

onnx::TensorProto* AddNoise(onnx::ModelProto* model, const std::string& name, const std::vector<int64_t>& dims,
                            int type, int range) {
  auto* tensor = AddInitializer(model, name, dims, type);
  int64_t size = 1;
  for (int64_t extent : dims) size *= extent;
  for (int i = 0; i < size; ++i) tensor->add_int32_data(Noise(i, range));
  return tensor;
}

// The same in operators on integers: QLinearConv with a bias on the grid of its products, and QGemm.
onnx::ModelProto OperatorNetwork() {
  onnx::ModelProto model = NewModel(21);
  auto* contrib = model.add_opset_import();
  contrib->set_domain("com.microsoft");
  contrib->set_version(1);
  AddInput(&model, "x", {-1, 1, 6, 6});
  AddNoise(&model, "w", {4, 1, 3, 3}, kInt8, 100);
  AddNoise(&model, "b", {4}, kInt32, 2000);
  AddNoise(&model, "v", {64, 3}, kInt8, 100);
  AddNoise(&model, "c", {3}, kInt32, 500);
  FillFloats(AddInitializer(&model, "w_scale", {4}), {0.005f, 0.004f, 0.006f, 0.005f});
  FillFloats(AddInitializer(&model, "v_scale", {}), {0.004f});
  FillFloats(AddInitializer(&model, "y_scale", {}), {0.05f});
  AddInitializer(&model, "v_zero", {}, kInt8)->add_int32_data(3);
  AddInitializer(&model, "w_zero", {}, kInt8)->add_int32_data(0);
  AddInitializer(&model, "y_zero", {}, kUInt8)->add_int32_data(128);
  QuantizePair(&model, "x", 0.02f, 128);
  FillFloats(AddInitializer(&model, "h_scale", {}), {0.02f});
  AddInitializer(&model, "h_zero", {}, kUInt8)->add_int32_data(0);
  AddNode(&model, "QLinearConv", {"x_q", "x_scale", "x_zero", "w", "w_scale", "w_zero", "h_scale", "h_zero", "b"},
          {"h_q"});
  AddNode(&model, "Flatten", {"h_q"}, {"flat"});
  AddNode(&model, "QGemm", {"flat", "h_scale", "h_zero", "v", "v_scale", "v_zero", "c", "y_scale", "y_zero"}, {"y_q"})
      ->set_domain("com.microsoft");
  AddNode(&model, "DequantizeLinear", {"y_q", "y_scale", "y_zero"}, {"y"});
  AddOutput(&model, "y");
  return model;
}

// NAME, quantized over its own range, times the integers `weight`, scaled behind.
void AddIntegerProduct(onnx::ModelProto* model, const std::string& op, const std::string& name,
                       const std::string& weight, const std::string& output) {
  AddNode(model, "DynamicQuantizeLinear", {name}, {name + "_q", name + "_scale", name + "_zero"});
  AddNode(model, op, {name + "_q", weight, name + "_zero", weight + "_zero"}, {output + "_sums"});
  SetInt(AddNode(model, "Cast", {output + "_sums"}, {output + "_floats"}), "to", 1);
  AddNode(model, "Mul", {name + "_scale", weight + "_scale"}, {output + "_scales"});
  AddNode(model, "Mul", {output + "_floats", output + "_scales"}, {output});
}

// The same as tools write it that quantize activations at run time.
onnx::ModelProto DynamicNetwork() {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {-1, 1, 6, 6});
  AddNoise(&model, "w", {4, 1, 3, 3}, kInt8, 100);
  AddInitializer(&model, "w_zero", {}, kInt8)->add_int32_data(0);
  FillFloats(AddInitializer(&model, "w_scale", {}), {0.005f});
  auto* v = AddInitializer(&model, "v", {64, 3}, kUInt8);
  for (int i = 0; i < 192; ++i) v->add_int32_data(128 + Noise(i, 100));
  auto* zeros = AddInitializer(&model, "v_zero", {3}, kUInt8);
  for (int zero : {128, 130, 120}) zeros->add_int32_data(zero);
  FillFloats(AddInitializer(&model, "v_scale", {3}), {0.004f, 0.005f, 0.003f});
  FillFloats(AddInitializer(&model, "b", {3}), {0.1f, 0.2f, 0.3f});
  AddIntegerProduct(&model, "ConvInteger", "x", "w", "conv");
  AddNode(&model, "Relu", {"conv"}, {"h"});
  AddNode(&model, "Flatten", {"h"}, {"flat"});
  AddIntegerProduct(&model, "MatMulInteger", "flat", "v", "logits");
  AddNode(&model, "Add", {"logits", "b"}, {"y"});
  AddOutput(&model, "y");
  return model;
}

// x → MatMulInteger with a bias that is rounded to the grid of the products → y [N,3].
onnx::ModelProto RoundedBiasNetwork() {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {-1, 1, 6, 6});
  AddNoise(&model, "v", {36, 3}, kInt8, 100);
  AddInitializer(&model, "v_zero", {}, kInt8)->add_int32_data(0);
  FillFloats(AddInitializer(&model, "v_scale", {}), {0.004f});
  FillFloats(AddInitializer(&model, "b", {3}), {0.5f, -0.25f, 0.75f});
  FillInts(AddInitializer(&model, "row", {2}, 7), {1, 3});
  AddNode(&model, "Flatten", {"x"}, {"flat"});
  AddNode(&model, "DynamicQuantizeLinear", {"flat"}, {"flat_q", "flat_scale", "flat_zero"});
  AddNode(&model, "Mul", {"flat_scale", "v_scale"}, {"scales"});
  AddNode(&model, "Div", {"b", "scales"}, {"b_scaled"});
  AddNode(&model, "Floor", {"b_scaled"}, {"b_rounded"});
  SetInt(AddNode(&model, "Cast", {"b_rounded"}, {"b_q"}), "to", kInt32);
  AddNode(&model, "Reshape", {"b_q", "row"}, {"b_row"});
  AddNode(&model, "MatMulInteger", {"flat_q", "v", "flat_zero", "v_zero"}, {"products"});
  AddNode(&model, "Add", {"products", "b_row"}, {"sums"});
  SetInt(AddNode(&model, "Cast", {"sums"}, {"floats"}), "to", 1);
  AddNode(&model, "Mul", {"floats", "scales"}, {"y"});
  AddOutput(&model, "y");
  return model;
}

// x as 6 steps → DynamicQuantizeLSTM with a scale for each column of W and one for R → its last state → y [N,3].
onnx::ModelProto LstmNetwork() {
  onnx::ModelProto model = NewModel(17);
  auto* contrib = model.add_opset_import();
  contrib->set_domain("com.microsoft");
  contrib->set_version(1);
  AddInput(&model, "x", {-1, 1, 6, 6});
  AddNoise(&model, "w", {1, 6, 16}, kInt8, 100);
  AddNoise(&model, "r", {1, 4, 16}, kInt8, 100);
  std::vector<float> scales;
  for (int i = 0; i < 16; ++i) scales.push_back(0.01f + 0.001f * static_cast<float>(i));
  FillFloats(AddInitializer(&model, "w_scale", {1, 16}), scales);
  AddInitializer(&model, "w_zero", {1, 16}, kInt8);
  for (int i = 0; i < 16; ++i) model.mutable_graph()->mutable_initializer()->rbegin()->add_int32_data(i % 3);
  FillFloats(AddInitializer(&model, "r_scale", {1}), {0.01f});
  AddInitializer(&model, "r_zero", {1}, kInt8)->add_int32_data(0);
  FillFloats(AddInitializer(&model, "b", {1, 32}), std::vector<float>(32, 0.1f));
  FillFloats(AddInitializer(&model, "v", {4, 3}), {3, -3, 1, 1, 4, -2, -3, 2, 4, 1, 1, 5});
  FillInts(AddInitializer(&model, "first", {1}, 7), {0});
  AddNode(&model, "Squeeze", {"x", "one"}, {"rows"});
  FillInts(AddInitializer(&model, "one", {1}, 7), {1});
  SetInts(AddNode(&model, "Transpose", {"rows"}, {"steps"}), "perm", {1, 0, 2});
  onnx::NodeProto* lstm =
      AddNode(&model, "DynamicQuantizeLSTM",
              {"steps", "w", "r", "b", "", "", "", "", "w_scale", "w_zero", "r_scale", "r_zero"}, {"", "last"});
  lstm->set_domain("com.microsoft");
  SetInt(lstm, "hidden_size", 4);
  AddNode(&model, "Squeeze", {"last", "first"}, {"h"});
  AddNode(&model, "MatMul", {"h", "v"}, {"y"});
  AddOutput(&model, "y");
  return model;
}

GlobalBatch Samples() {
  HostTensor x({DType::kFloat32, {12, 1, 6, 6}}), labels({DType::kInt64, {12}});
  for (int64_t i = 0; i < 12; ++i) {
    labels.SetInt(i, i % 3);
    for (int64_t j = 0; j < 36; ++j)
      x.Set(i * 36 + j, Noise(static_cast<int>(i * 36 + j), 50) / 50.0 + (j / 12 == i % 3 ? 1.0 : 0.0));
  }
  return {{"x", x}, {kLabelFeed, labels}};
}

std::unique_ptr<Session> NewSession(std::shared_ptr<const OnnxModel> model, Backend* backend) {
  SessionOptions options{.labels = {.present = true, .sample = {DType::kInt64, {}}, .min_value = 0, .max_value = 2},
                         .micro_batch = 12};
  options.import.input_shapes["x"] = {-1, 1, 6, 6};
  options.optimizer.rule = "adam";
  options.optimizer.lr = 0.02;
  auto session = Session::Create(std::move(model), backend, options);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

int Differences(const HostTensor& a, const HostTensor& b) {
  int count = 0;
  for (int64_t i = 0; i < a.size(); ++i) count += a.IntAt(i) != b.IntAt(i);
  return count;
}

struct NetworkCase {
  const char* name;
  onnx::ModelProto (*build)();
  std::vector<const char*> integers, fixed, floats = {};  // initializers
};

class Quantized : public testing::TestWithParam<std::tuple<const char*, NetworkCase>> {};

TEST_P(Quantized, NetworkTrainsAndItsIntegersMove) {
  const auto& [backend_name, network] = GetParam();
  auto backend = CreateBackend(backend_name, {});
  ASSERT_TRUE(backend.ok()) << backend.status();
  auto model = LoadModel(network.build());
  ASSERT_TRUE(model.ok()) << model.status();
  auto session = NewSession(*model, backend->get());
  ASSERT_NE(session, nullptr);
  const GlobalBatch samples = Samples();
  const double before = MeanLoss(session->loss(), *session->Evaluate(samples));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(session->Step(samples).ok());
  EXPECT_LT(MeanLoss(session->loss(), *session->Evaluate(samples)), before / 2);

  const std::string target = TestFolder() + "/trained.onnx";
  const auto edits = Export(**model, *session->Weights(), target);
  ASSERT_TRUE(edits.ok()) << edits.status();
  const auto trained = OnnxModel::Load(target);
  ASSERT_TRUE(trained.ok()) << trained.status();
  for (const char* name : network.integers) {
    const HostTensor &old = *(*model)->Initializer(name), &now = *(*trained)->Initializer(name);
    EXPECT_EQ(old.type(), now.type());
    EXPECT_GT(Differences(old, now), old.size() / 4) << name;
  }
  for (const char* name : network.floats) {
    EXPECT_FALSE((*model)->Initializer(name)->SameBytes(*(*trained)->Initializer(name))) << name;
  }
  for (const char* name : network.fixed) {
    EXPECT_TRUE((*model)->Initializer(name)->SameBytes(*(*trained)->Initializer(name))) << name;
  }
  // The exported integers encode the trained weights.
  auto again = NewSession(*trained, backend->get());
  ASSERT_NE(again, nullptr);
  const auto got = again->Predict(samples)->outputs.at("y").ToDoubles(),
             want = session->Predict(samples)->outputs.at("y").ToDoubles();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4);
}

// Also where surgery replaces weights: its new ones are floats, too.
TEST_P(Quantized, UntouchedIntegersKeepTheirBytes) {
  const auto& [backend_name, network] = GetParam();
  auto backend = CreateBackend(backend_name, {});
  auto model = LoadModel(network.build());
  ASSERT_TRUE(backend.ok() && model.ok());
  auto session = NewSession(*model, backend->get());
  ASSERT_NE(session, nullptr);
  const auto weights = session->Weights();
  ASSERT_TRUE(weights.ok());
  const std::string target = TestFolder() + "/same.onnx";
  const auto exported = Export(**model, *weights, target);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(ReadFile(target), ReadFile((*model)->path()));

  ModelEdits edits;
  for (const char* name : network.integers) {
    EXPECT_EQ(DescribeForm(**model, name).row, "quantized weight") << name;
    edits.tensors[name] = weights->at(name);
  }
  const auto edited = (*model)->LoadEdited(edits);
  ASSERT_TRUE(edited.ok()) << edited.status();
  for (const char* name : network.integers)
    EXPECT_TRUE((*edited)->Initializer(name)->SameBytes(*(*model)->Initializer(name))) << name;
}

const NetworkCase kNetworks[] = {
    {"Pairs", Network, {"w", "b", "v"}, {"x_scale", "w_scale", "h_zero"}},
    {"Operators", OperatorNetwork, {"w", "b", "v", "c"}, {"x_scale", "w_scale", "v_zero"}},
    {"Dynamic", DynamicNetwork, {"w", "v"}, {"w_scale", "v_scale", "v_zero"}, {"b"}},
    {"RoundedBias", RoundedBiasNetwork, {"v"}, {"v_scale", "v_zero"}, {"b"}},
    {"Lstm", LstmNetwork, {"w", "r"}, {"w_scale", "w_zero", "r_scale"}, {"b", "v"}},
};

INSTANTIATE_TEST_SUITE_P(Backends, Quantized,
                         testing::Combine(testing::Values("cpu", "torch"), testing::ValuesIn(kNetworks)),
                         [](const auto& info) {
                           return StrCat(std::get<0>(info.param), std::get<1>(info.param).name);
                         });

// x [N,2] → MatMul of a Constant node of integers, read and scaled through copies → y [N,2].
TEST(QuantizedCopies, AreFoundBehindIdentityAndConstant) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {-1, 2});
  onnx::TensorProto* w = SetTensor(AddNode(&model, "Constant", {}, {"w"}), "value");
  w->set_data_type(kInt8);
  w->add_dims(2), w->add_dims(2);
  for (int q : {10, 20, -30, 40}) w->add_int32_data(q);
  FillFloats(AddInitializer(&model, "scale", {}), {0.5f});
  AddNode(&model, "Identity", {"w"}, {"w_copy"});
  AddNode(&model, "Identity", {"scale"}, {"scale_copy"});
  AddNode(&model, "Identity", {"scale_copy"}, {"scale_again"});
  AddNode(&model, "DequantizeLinear", {"w_copy", "scale_again"}, {"w_float"});
  AddNode(&model, "MatMul", {"x", "w_float"}, {"y"});
  AddOutput(&model, "y");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(imported->weights.size(), 1u);
  EXPECT_EQ(imported->weights[0].name, "w");
  EXPECT_EQ(imported->weights[0].value.ToDoubles(), (std::vector<double>{5, 10, -15, 20}));
  std::vector<std::string> notes;
  const auto trained = RoundTrip(model, {{"w", Floats({2, 2}, {5, 10.6, -15, 19})}}, &notes);
  ASSERT_TRUE(trained.ok()) << trained.status();
  const auto again = ImportModel(*trained, {.training = true});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->weights[0].value.ToDoubles(), (std::vector<double>{5, 10.5, -15, 19}));
}

// The scale of the product behind MatMulInteger is no parameter; without one, the integers are none either.
TEST(IntegerProducts, FindTheirScaleBehindThem) {
  const auto imported = ImportModel(DynamicNetwork(), {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  std::map<std::string, InputKind> kinds;
  for (const ImportedWeight& w : imported->weights)
    kinds[w.name] = w.fixed == FixedWeight::kNo ? imported->graph.FindInput(w.name)->kind : InputKind::kFrozen;
  EXPECT_EQ(kinds, (std::map<std::string, InputKind>{{"b", InputKind::kParameter},
                                                     {"v", InputKind::kParameter},
                                                     {"v_scale", InputKind::kFrozen},
                                                     {"w", InputKind::kParameter}}));
  const auto model = LoadModel(DynamicNetwork());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(FindUntrainedWeights(**model), "");

  onnx::ModelProto unscaled = NewModel(17);
  AddInput(&unscaled, "x", {-1, 4}, kUInt8);
  AddNoise(&unscaled, "w", {4, 3}, kInt8, 100);
  AddNode(&unscaled, "MatMulInteger", {"x", "w"}, {"y"});
  AddOutput(&unscaled, "y");
  const auto other = LoadModel(unscaled);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(FindUntrainedWeights(**other), "MatMulInteger (1)");
}

}  // namespace
}  // namespace onnxtrain
