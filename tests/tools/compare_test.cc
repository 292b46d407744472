// compare: judged by the conditioning of the model.
#include <nlohmann/json.hpp>

#include "frontend/data/sources/numpy.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

class Compare : public Scratch {
 protected:
  // y = x·w − x·v, where w and v are equal but for 1e-5: both backends are right, and their y differ in the third
  // digit.
  Compare() {
    tiny::Model m{.input_shape = {-1, 64}};
    std::vector<float> w = tiny::Uniform(64 * 8, 1, 1), v = tiny::Uniform(64 * 8, 1e-5f, 2);
    for (size_t i = 0; i < v.size(); ++i) v[i] += w[i];
    m.weights = {{"w", {64, 8}, w}, {"v", {64, 8}, v}};
    m.nodes = {{"MatMul", {"x", "w"}, {"a"}}, {"MatMul", {"x", "v"}, {"b"}}, {"Sub", {"a", "b"}, {"y"}}};
    m.Save(Path("m.onnx"));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), {{"x", Random({16, 64}, 3)}, {"label", Random({16, 8}, 4)}}).ok());
  }

  static HostTensor Random(const Shape& shape, uint32_t seed) {
    HostTensor tensor({DType::kFloat32, shape});
    const std::vector<float> values = tiny::Uniform(tensor.size(), 1, seed);
    for (int64_t i = 0; i < tensor.size(); ++i) tensor.Set(i, values[i]);
    return tensor;
  }

  Outcome RunCompare(const std::string& flags) const {
    return Run("compare --model m.onnx --data d.npz --loss mse --quiet " + flags);
  }
};

TEST_F(Compare, AllowsWhatRoundingChangesInAnIllConditionedModel) {
  const Outcome o = RunCompare("--json");
  ASSERT_EQ(o.code, 0) << o.err << o.out;
  const Json values = Json::parse(o.out)["comparisons"].back()["values"];
  const auto y = std::ranges::find_if(values, [](const Json& value) { return value["name"] == "y"; });
  ASSERT_NE(y, values.end());
  EXPECT_GT((*y)["nudged"], 1e-3);
  EXPECT_EQ((*y)["allowed"], 3 * (*y)["nudged"].get<double>());
}

TEST_F(Compare, NoticesMoreThanRounding) {
  ASSERT_EQ(Run("grad --model m.onnx --data d.npz --loss mse --out g.npz --quiet").code, 0);
  NamedArrays wrong = *ReadNpz(Path("g.npz"));
  for (auto& [name, value] : wrong) {
    for (int64_t i = 0; i < value.size() && name == "y"; ++i) value.Set(i, 1.5 * value.At(i));
  }
  ASSERT_TRUE(WriteNpz(Path("wrong.npz"), wrong).ok());
  const Outcome o = RunCompare("--reference wrong.npz");
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.out.find("difference    nudged   allowed   largest  value"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("cpu and the reference: DISAGREE"), std::string::npos) << o.out;
}

}  // namespace
}  // namespace onnxtrain
