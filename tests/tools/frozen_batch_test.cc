// Models that were exported for one batch: trained with another where they follow it, refused by node where they do
// not.
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

TEST_F(FrozenBatch, IsRefusedWhereSamplesMix) {
  for (int64_t batch : {1, 3}) {
    tiny::Model m;
    m.input_shape = {batch, 4};
    // The mean over everything: harmless with one sample, another function with more.
    m.nodes = {{"MatMul", {"x", "w"}, {"h"}}, {"ReduceMean", {"h"}, {"m"}}, {"Sub", {"h", "m"}, {"y"}}};
    m.weights = {{"w", {4, 3}, tiny::Uniform(12, 0.5f, 1)}};
    m.Save(Path("m.onnx"));
    const Outcome o = Run("--model m.onnx --batch-size 8 --max-steps 2 --quiet --out r");
    EXPECT_EQ(o.code, 1) << o.err;
    EXPECT_NE(o.err.find("does not follow the batch"), std::string::npos) << o.err;
    EXPECT_NE(o.err.find("'y_node'"), std::string::npos) << o.err;
    EXPECT_FALSE(Exists("r/model.synthetic.onnx"));
  }
}

}  // namespace
}  // namespace onnxtrain
