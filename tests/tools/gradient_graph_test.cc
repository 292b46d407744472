// grad --out g.onnx: loss and gradients as an ONNX model.
#include <gmock/gmock.h>

#include "frontend/data/formats/npz.h"
#include "tests/tools/blobs.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

class GradientGraph : public Scratch {
 protected:
  GradientGraph() {
    tiny::Mlp(3).Save(Path("m.onnx"));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Blobs(24)).ok());
  }

  std::map<std::string, HostTensor> Read(const std::string& name) const {
    std::map<std::string, HostTensor> arrays;
    NamedArrays stored = *ReadNpz(Path(name));
    for (auto& [array, value] : stored) arrays.emplace(array, std::move(value));
    return arrays;
  }
};

void ExpectNear(const HostTensor& got, const HostTensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  for (int64_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got.At(i), want.At(i), 1e-6) << i;
}

// The model that is written is read again: its outputs are the gradients, and so are the gradients of its loss.
TEST_F(GradientGraph, HoldsTheGradients) {
  const std::string batch = " --data d.npz --batch-size 24 --quiet";
  ASSERT_EQ(Run("grad --model m.onnx --out g.npz" + batch).code, 0);
  ASSERT_EQ(Run("grad --model m.onnx --out g.onnx" + batch).code, 0);
  const Outcome o = Run("grad --model g.onnx --loss output:loss --out again.npz" + batch);
  ASSERT_EQ(o.code, 0) << o.err;
  const auto want = Read("g.npz"), again = Read("again.npz");
  int weights = 0;
  for (const auto& [name, gradient] : want) {
    if (!name.starts_with("grad:")) continue;
    ++weights;
    ExpectNear(again.at(name.substr(5) + "_grad"), gradient);
    ExpectNear(again.at(name), gradient);
  }
  EXPECT_EQ(weights, 4);
  ExpectNear(again.at("y"), want.at("y"));
  EXPECT_NEAR(again.at("loss").At(0), want.at("loss").At(0), 1e-6);
}

TEST_F(GradientGraph, OfChosenWeights) {
  ASSERT_EQ(Run("grad --model m.onnx --data d.npz --quiet --train w2 --out g.onnx").code, 0);
  ASSERT_EQ(Run("grad --model g.onnx --data d.npz --quiet --loss output:loss --out again.npz").code, 0);
  const auto again = Read("again.npz");
  EXPECT_TRUE(again.contains("w2_grad"));
  EXPECT_FALSE(again.contains("w1_grad"));
}

TEST_F(GradientGraph, NeverReplacesTheModel) {
  EXPECT_EQ(Run("grad --model m.onnx --data d.npz --quiet --out m.onnx").code, 1);
  EXPECT_EQ(Run("inspect --model m.onnx").code, 0);
}

}  // namespace
}  // namespace onnxtrain
