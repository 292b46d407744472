// Models that were exported for one batch and follow another. Those that do not are in trial_test.cc.
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

}  // namespace
}  // namespace onnxtrain
