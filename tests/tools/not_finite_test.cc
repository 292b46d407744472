// Gradients that are not finite from the first update on: the operator where that arises is named.
#include <limits>

#include "frontend/data/sources/numpy.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

// h = x·w, further nodes, y = f·v.
tiny::Model WithFormula(std::vector<tiny::Op> nodes) {
  tiny::Model m;
  m.nodes = {{"MatMul", {"x", "w"}, {"h"}}};
  for (tiny::Op& op : nodes) m.nodes.push_back(std::move(op));
  m.nodes.push_back({"MatMul", {"f", "v"}, {"y"}});
  m.weights = {{"w", {4, 4}, tiny::Uniform(16, 0.5f, 1)}, {"v", {4, 2}, tiny::Uniform(8, 0.5f, 2)}};
  return m;
}

class NotFinite : public Scratch {
 protected:
  // All inputs are zeros.
  NotFinite() {
    HostTensor x({DType::kFloat32, {40, 4}}), y({DType::kFloat32, {40, 2}});
    EXPECT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"y", y}}).ok());
  }
};

TEST_F(NotFinite, TheOperatorIsNamed) {
  tiny::Model half = WithFormula({{"Mul", {"h", "h"}, {"s"}}, {"Pow", {"s", "half"}, {"f"}}});
  half.weights.push_back({"half", {1}, {0.5f}});
  const std::pair<tiny::Model, const char*> cases[] = {
      {WithFormula({{"Mul", {"h", "h"}, {"s"}}, {"Sqrt", {"s"}, {"f"}}}),
       "[Sqrt 'f_node'] has a finite result and a gradient that is not finite"},
      {half, "'f_node'] has a finite result and a gradient that is not finite"},
      {WithFormula({{"Abs", {"h"}, {"a"}}, {"Log", {"a"}, {"f"}}}), "[Log 'f_node'] gives values that are not finite"},
      {WithFormula({{"Abs", {"h"}, {"a"}}, {"Div", {"h", "a"}, {"f"}}}),
       "[Div 'f_node'] gives values that are not finite"},
  };
  for (const auto& [model, where] : cases) {
    model.Save(Path("m.onnx"));
    for (const char* backend : {"cpu", "torch"}) {
      const Outcome o =
          Run("--model m.onnx --data d.npz --loss mse --batch-size 4 --epochs 4 --overwrite --out r --backend " +
              std::string(backend));
      EXPECT_EQ(o.code, 2) << o.err;
      EXPECT_NE(o.err.find("update 1 is skipped, its gradient is not finite: "), std::string::npos) << o.err;
      EXPECT_NE(o.err.find(where), std::string::npos) << o.err;
      EXPECT_EQ(o.err.find("a lower --lr"), std::string::npos) << o.err;
      EXPECT_EQ(o.err.find("synthetic"), std::string::npos) << o.err;
    }
  }
}

TEST_F(NotFinite, PredictCountsSamplesAndNamesTheOrigin) {
  HostTensor x({DType::kFloat32, {40, 4}});
  for (int64_t i = 0; i < 40; ++i) x.Set(4 * i, i < 7 ? 0 : 1);
  ASSERT_TRUE(WriteNpz(Path("p.npz"), {{"x", x}}).ok());
  WithFormula({{"Abs", {"h"}, {"a"}}, {"Log", {"a"}, {"f"}}}).Save(Path("m.onnx"));
  for (const char* backend : {"cpu", "torch"}) {
    const Outcome o = Run(StrCat("predict --model m.onnx --data p.npz --loss mse --out p.csv --backend ", backend));
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.err.find("warning: 7 of 40 samples have values of output 'y' that are not finite: [Log 'f_node'] gives "
                         "values that are not finite\n"),
              std::string::npos)
        << o.err;
  }
}

// grad ends with the code of a failure and eval warns; both name the origin.
TEST_F(NotFinite, GradAndEvalNameTheOrigin) {
  const float inf = std::numeric_limits<float>::infinity();
  tiny::Model broken = WithFormula({{"Relu", {"h"}, {"f"}}});
  broken.weights[1].values[3] = inf;
  const std::pair<tiny::Model, const char*> cases[] = {
      {WithFormula({{"Abs", {"h"}, {"a"}}, {"Log", {"a"}, {"f"}}}),
       "the loss is not finite: [Log 'f_node'] gives values that are not finite\n"},
      {broken, "the loss is not finite: weight 'v' holds values that are not finite\n"},
  };
  for (const auto& [model, line] : cases) {
    model.Save(Path("m.onnx"));
    for (const char* backend : {"cpu", "torch"}) {
      const std::string words = StrCat("--model m.onnx --data d.npz --loss mse --backend ", backend);
      const Outcome grad = Run(StrCat("grad --out g.npz ", words)), eval = Run(StrCat("eval ", words));
      EXPECT_EQ(grad.code, 2) << grad.err;
      EXPECT_NE(grad.err.find(StrCat("onnxtrain: failed: ", line)), std::string::npos) << grad.err;
      EXPECT_EQ(eval.code, 0) << eval.err;
      EXPECT_NE(eval.err.find(StrCat("onnxtrain: warning: ", line)), std::string::npos) << eval.err;
    }
  }
  WithFormula({{"Mul", {"h", "h"}, {"s"}}, {"Sqrt", {"s"}, {"f"}}}).Save(Path("m.onnx"));
  const Outcome o = Run("grad --model m.onnx --data d.npz --loss mse --out g.npz");
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_NE(o.err.find("the gradient of 'w' is not finite: [Sqrt 'f_node'] has a finite result and a gradient that"),
            std::string::npos)
      << o.err;
}

// log(m − m) of any data.
TEST_F(NotFinite, SyntheticSamplesMayBeTheReason) {
  WithFormula({{"ReduceMax", {"h"}, {"m"}, {{"axes", {1}}}},
               {"Sub", {"h", "m"}, {"d"}},
               {"Abs", {"d"}, {"a"}},
               {"Sqrt", {"a"}, {"f"}}})
      .Save(Path("m.onnx"));
  const Outcome o = Run("--model m.onnx --max-steps 30 --out r");
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_NE(o.err.find("[Sqrt 'f_node'] has a finite result"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("the samples are synthetic, which may be the reason"), std::string::npos) << o.err;
}

// Masks of −∞ are no origin; a softmax of nothing but them is.
TEST_F(NotFinite, InfinitiesOfMasksAreNone) {
  tiny::Model m = WithFormula({{"Add", {"h", "mask"}, {"s"}}, {"Softmax", {"s"}, {"f"}}});
  const float inf = std::numeric_limits<float>::infinity();
  m.weights.push_back({"mask", {1, 4}, {-inf, -inf, -inf, -inf}});
  m.Save(Path("m.onnx"));
  const Outcome o = Run("--model m.onnx --data d.npz --loss mse --freeze mask --batch-size 4 --epochs 4 --out r");
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_NE(o.err.find("[Softmax 'f_node']"), std::string::npos) << o.err;
}

}  // namespace
}  // namespace onnxtrain
