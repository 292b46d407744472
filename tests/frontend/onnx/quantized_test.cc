// Trains a quantized network: integers become float weights and, on export, integers again.
#include <gtest/gtest.h>

#include "backends/registry.h"
#include "frontend/base/strings.h"
#include "frontend/onnx/export.h"
#include "model_builder.h"
#include "optim/session.h"

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

class Quantized : public testing::TestWithParam<const char*> {};

TEST_P(Quantized, NetworkTrainsAndItsIntegersMove) {
  auto backend = CreateBackend(GetParam(), {});
  ASSERT_TRUE(backend.ok()) << backend.status();
  auto model = LoadModel(Network());
  ASSERT_TRUE(model.ok()) << model.status();
  auto session = NewSession(*model, backend->get());
  ASSERT_NE(session, nullptr);
  const GlobalBatch samples = Samples();
  const double before = MeanLoss(session->loss(), *session->Evaluate(samples));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(session->Step(samples).ok());
  EXPECT_LT(MeanLoss(session->loss(), *session->Evaluate(samples)), before / 2);

  const std::string target = TestFolder() + "/trained.onnx";
  const auto edits = Export((*model)->path(), (*model)->sha256(), *session->Weights(), target);
  ASSERT_TRUE(edits.ok()) << edits.status();
  const auto trained = OnnxModel::Load(target);
  ASSERT_TRUE(trained.ok()) << trained.status();
  for (const char* name : {"w", "b", "v"}) {
    const HostTensor &old = *(*model)->Initializer(name), &now = *(*trained)->Initializer(name);
    EXPECT_EQ(old.type(), now.type());
    EXPECT_GT(Differences(old, now), old.size() / 4) << name;
  }
  for (const char* name : {"x_scale", "w_scale", "h_zero"}) {
    EXPECT_TRUE((*model)->Initializer(name)->SameBytes(*(*trained)->Initializer(name))) << name;
  }
  // The exported integers encode the trained weights.
  auto again = NewSession(*trained, backend->get());
  ASSERT_NE(again, nullptr);
  const auto got = again->Predict(samples)->outputs.at("y").ToDoubles(),
             want = session->Predict(samples)->outputs.at("y").ToDoubles();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4);
}

TEST_P(Quantized, UntouchedIntegersKeepTheirBytes) {
  auto backend = CreateBackend(GetParam(), {});
  auto model = LoadModel(Network());
  ASSERT_TRUE(backend.ok() && model.ok());
  auto session = NewSession(*model, backend->get());
  ASSERT_NE(session, nullptr);
  const std::string target = TestFolder() + "/same.onnx";
  const auto edits = Export((*model)->path(), (*model)->sha256(), *session->Weights(), target);
  ASSERT_TRUE(edits.ok()) << edits.status();
  EXPECT_EQ(ReadFile(target), ReadFile((*model)->path()));
}

INSTANTIATE_TEST_SUITE_P(Backends, Quantized, testing::Values("cpu", "torch"));

}  // namespace
}  // namespace onnxtrain
