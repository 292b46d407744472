// LSTM, GRU and RNN in their forms, against numbers that ONNX Runtime computed from the same waves.
#include <gtest/gtest.h>

#include <cmath>

#include "frontend/base/strings.h"
#include "frontend/ops/host_eval.h"
#include "tests/frontend/ops/import/import_fixture.h"

namespace onnxtrain {
namespace {

using Numbers = std::vector<double>;
using Text = std::string;
constexpr int64_t kOne = 1;
constexpr int64_t kSteps = 3, kBatch = 2, kInputs = 2, kUnits = 2;

// sin(1.7·i + phase)
HostTensor Wave(Shape shape, double phase) {
  HostTensor t({DType::kFloat32, std::move(shape)});
  for (int64_t i = 0; i < t.size(); ++i) t.Set(i, std::sin(1.7 * static_cast<double>(i) + phase));
  return t;
}

// Σ x[i]·cos(i)
double Digest(const HostTensor& x) {
  double sum = 0;
  for (int64_t i = 0; i < x.size(); ++i) sum += x.At(i) * std::cos(static_cast<double>(i));
  return sum;
}

struct Row {
  const char* op;
  Attrs attrs;
  std::vector<int64_t> lengths;
  bool peepholes;
  double y, y_h;  // digests of Y and Y_h
};

std::vector<Row> Rows() {
  // clang-format off
  return {
    {"LSTM", {}, {}, false, -0.0464516, 0.2933542},
    {"LSTM", {{"direction", Text("reverse")}}, {3, 1}, false, -0.0097949, 0.2160377},
    {"LSTM", {{"direction", Text("bidirectional")}}, {2, 3}, false, -0.0748345, 0.1180951},
    {"LSTM", {{"direction", Text("bidirectional")}}, {}, true, -0.7014044, 0.3632012},
    {"LSTM", {{"clip", 0.3}}, {3, 2}, true, -0.0072829, 0.0705525},
    {"LSTM", {{"input_forget", kOne}}, {}, false, -0.3390371, 0.4656751},
    {"LSTM", {{"activations", Text("HardSigmoid\nSoftsign\nElu")}, {"activation_alpha", Numbers{0.3, 0.7}},
              {"activation_beta", Numbers{0.4}}}, {}, false, -0.0631790, 0.2669042},
    {"GRU", {}, {3, 2}, false, 0.3172070, -0.2798036},
    {"GRU", {{"direction", Text("bidirectional")}}, {}, false, -0.6872818, -0.3022448},
    {"GRU", {{"linear_before_reset", kOne}}, {}, false, 0.0269733, -0.2425050},
    {"GRU", {{"linear_before_reset", kOne}, {"direction", Text("bidirectional")}}, {1, 3}, false,
     -0.7531271, -0.2509965},
    {"GRU", {{"clip", 0.4}, {"linear_before_reset", kOne}}, {}, false, -0.4730963, 0.0014020},
    {"GRU", {{"activations", Text("Sigmoid\nLeakyRelu")}, {"activation_alpha", Numbers{0.2}}}, {}, false,
     -0.4296472, -0.1930746},
    {"RNN", {{"direction", Text("bidirectional")}}, {2, 3}, false, 0.3745826, -0.5215900},
    {"RNN", {{"activations", Text("Relu")}, {"direction", Text("reverse")}}, {}, false, 0.6365598, 1.0909132},
    {"RNN", {{"activations", Text("Affine")}, {"activation_alpha", Numbers{0.5}},
             {"activation_beta", Numbers{0.1}}, {"clip", 0.8}}, {}, false, 0.3785761, -0.0322429},
  };
  // clang-format on
}

// Gives the node its inputs, the k-th of the float ones with the phase k.
void Fill(const Row& row, SingleNodeImporter& n) {
  const bool lstm = row.op == Text("LSTM");
  const int64_t gates = lstm ? 4 : row.op == Text("GRU") ? 3 : 1;
  const int64_t directions = row.attrs.String("direction") == "bidirectional" ? 2 : 1;
  for (const auto& [name, value] : row.attrs) n.Attr(name, value);
  n.Attr("hidden_size", kUnits).Outputs(2);
  n.Constant(Wave({kSteps, kBatch, kInputs}, 0)).Constant(Wave({directions, gates * kUnits, kInputs}, 1));
  n.Constant(Wave({directions, gates * kUnits, kUnits}, 2)).Constant(Wave({directions, 2 * gates * kUnits}, 3));
  row.lengths.empty() ? n.Absent() : n.Constant(HostTensor::FromInts({DType::kInt32, {kBatch}}, row.lengths));
  n.Constant(Wave({directions, kBatch, kUnits}, 4));
  if (lstm) n.Constant(Wave({directions, kBatch, kUnits}, 5));
  if (row.peepholes) n.Constant(Wave({directions, 3 * kUnits}, 6));
}

TEST(ImportRecurrent, FormsGiveTheNumbersOfOnnxRuntime) {
  int number = 0;
  for (const Row& row : Rows()) {
    SCOPED_TRACE(Text(row.op) + " " + std::to_string(number++));
    SingleNodeImporter n(row.op, 14);
    Fill(row, n);
    const auto outputs = n.Import();
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    for (size_t i : {0, 1}) n.graph().AddOutput(StrCat("y", i), (*outputs)[i].id());
    const auto values = Interpret(n.graph(), {});
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_NEAR(Digest((*values)[0]), row.y, 2e-6);
    EXPECT_NEAR(Digest((*values)[1]), row.y_h, 2e-6);
  }
}

TEST(ImportRecurrent, RefusesWhatDoesNotFit) {
  SingleNodeImporter wrong("LSTM", 14);
  wrong.Input({DType::kFloat32, {3, 2, 2}}).Input({DType::kFloat32, {1, 8, 3}}).Input({DType::kFloat32, {1, 8, 2}});
  EXPECT_EQ(wrong.Import().status().message(), "W should be [1,8,2], got f32[1,8,3]");
  SingleNodeImporter projected("LSTM", 14);  // a state of zeros fits any batch, but no other number of units
  projected.Input({DType::kFloat32, {3, 2, 2}}).Input({DType::kFloat32, {1, 8, 2}});
  projected.Input({DType::kFloat32, {1, 8, 2}})
      .Absent()
      .Absent()
      .Absent()
      .Constant(HostTensor({DType::kFloat32, {1, 2, 4}}));
  EXPECT_EQ(projected.Import().status().message(), "an initial state should be [1,2,2], got f32[1,2,4]");
  SingleNodeImporter unknown("RNN", 14);
  unknown.Input({DType::kFloat32, {3, 2, 2}}).Input({DType::kFloat32, {1, 2, 2}}).Input({DType::kFloat32, {1, 2, 2}});
  EXPECT_TRUE(absl::IsUnimplemented(unknown.Attr("activations", Text("Cosine")).Import().status()));
}

}  // namespace
}  // namespace onnxtrain
