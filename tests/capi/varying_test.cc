// Batches whose extents vary: texts of several lengths.
#include <limits>

#include "frontend/base/strings.h"
#include "tests/capi/api_handle.h"
#include "tests/paths.h"

namespace onnxtrain {
namespace {

// x[batch, length, 4] → mean over the length → 3 classes.
tiny::Model Mean() {
  tiny::Model m{.input_shape = {-1, -2, 4}};
  m.nodes = {{"MatMul", {"x", "w"}, {"h"}}, {"Tanh", {"h"}, {"t"}}, {"ReduceMean", {"t"}, {"y"}, {{"axes", {1}}}}};
  m.nodes[2].numbers = {{"keepdims", 0}};
  m.weights = {{"w", {4, 3}, tiny::Uniform(12, 0.5f, 3)}};
  return m;
}

// Eight samples of a length.
class TextBatch {
 public:
  explicit TextBatch(int64_t length)
      : shape_{8, length, 4}, values_(tiny::Uniform(8 * length * 4, 1, static_cast<uint32_t>(length))) {
    for (int64_t i = 0; i < 8; ++i) labels_.push_back(i % 3);
    tensors_ = {{"x", ONNXTRAIN_FLOAT, 3, shape_, values_.data(), values_.size() * sizeof(float)},
                {"label", ONNXTRAIN_INT64, 1, label_shape_, labels_.data(), labels_.size() * sizeof(int64_t)}};
  }
  TextBatch(const TextBatch&) = delete;

  OnnxtrainTensor* data() { return tensors_.data(); }
  uint64_t size() const { return tensors_.size(); }

 private:
  int64_t shape_[3], label_shape_[1] = {8};
  std::vector<float> values_;
  std::vector<int64_t> labels_;
  std::vector<OnnxtrainTensor> tensors_;
};

class CApiVarying : public CApi {
 protected:
  CApiVarying() { Mean().Save(Path("mean.onnx")); }

  // `extents`: of one sample of x.
  Ended Create(std::vector<int64_t> extents, OnnxtrainTrainer** trainer) {
    OnnxtrainModel* model = nullptr;
    EXPECT_API_OK(Api().LoadModelFromFile(Path("mean.onnx").c_str(), &model));
    const OnnxtrainTensor sample = {"x", ONNXTRAIN_FLOAT, static_cast<int32_t>(extents.size()), extents.data(), nullptr,
                                    0};
    Ended ended = Take(Api().CreateTrainer(model, kConfig, &sample, 1, trainer));
    Api().ReleaseModel(model);
    return ended;
  }

  static constexpr char kConfig[] =
      R"({"batch_size": 8, "lr": 0.05, "optimizer": "sgd", "threads": 1, "loss": "cross_entropy"})";
};

// Each update is the one of a trainer that is made for that length alone, from the same weights.
TEST_F(CApiVarying, EachLengthTrainsAsByItself) {
  OnnxtrainTrainer* varying = nullptr;
  ASSERT_TRUE(Create({-9, 4}, &varying).ok());
  for (const int64_t length : {9, 3, 5, 3, 1}) {
    OnnxtrainTrainer* fixed = nullptr;
    ASSERT_TRUE(Create({length, 4}, &fixed).ok());
    OnnxtrainTensors* weights = nullptr;
    EXPECT_API_OK(Api().GetParameters(varying, "w", &weights));
    OnnxtrainTensor w;
    EXPECT_API_OK(Api().GetTensor(weights, 0, &w));
    EXPECT_API_OK(Api().SetParameters(fixed, &w, 1));
    Api().ReleaseTensors(weights);
    TextBatch batch(length);
    OnnxtrainStepResult got, want;
    EXPECT_API_OK(Api().TrainStep(varying, batch.data(), batch.size(), &got));
    EXPECT_API_OK(Api().TrainStep(fixed, batch.data(), batch.size(), &want));
    EXPECT_NEAR(got.loss, want.loss, 1e-6) << length;
    EXPECT_NEAR(got.grad_norm, want.grad_norm, 1e-6) << length;
    OnnxtrainEvaluation evaluation;
    EXPECT_API_OK(Api().Evaluate(varying, batch.data(), batch.size(), &evaluation));
    EXPECT_EQ(evaluation.samples, 8);
    Api().ReleaseTrainer(fixed);
  }
  Api().ReleaseTrainer(varying);
}

TEST_F(CApiVarying, RefusesWhatDoesNotFit) {
  OnnxtrainTrainer* trainer = nullptr;
  ASSERT_TRUE(Create({-6, 4}, &trainer).ok());
  TextBatch longer(7), none(0);
  EXPECT_API_FAILS(Api().TrainStep(trainer, longer.data(), longer.size(), nullptr), ONNXTRAIN_INVALID_ARGUMENT,
                   "expected f32[batch,≤6,4]");
  EXPECT_API_FAILS(Api().TrainStep(trainer, none.data(), none.size(), nullptr), ONNXTRAIN_INVALID_ARGUMENT, "'x' is");
  Api().ReleaseTrainer(trainer);
  EXPECT_EQ(Create({std::numeric_limits<int64_t>::min(), 4}, &trainer).code, ONNXTRAIN_INVALID_ARGUMENT);
}

TEST_F(CApi, PluginsThatCannotBeLoadedAreRefused) {
  EXPECT_API_FAILS(Api().LoadPlugin(nullptr), ONNXTRAIN_INVALID_ARGUMENT, "path is null");
  EXPECT_API_FAILS(Api().LoadPlugin("no/libX.so"), ONNXTRAIN_NOT_FOUND, "no/libX.so: no such file");
  EXPECT_API_FAILS(Api().LoadPlugin(BinaryPath("lib/libonnxtrain_c.so").c_str()), ONNXTRAIN_INVALID_ARGUMENT,
                   "exports no OnnxtrainGetOperators");
  OnnxtrainModel* model = nullptr;
  OnnxtrainTrainer* trainer = nullptr;
  EXPECT_API_OK(Api().LoadModelFromFile(Path("m.onnx").c_str(), &model));
  EXPECT_API_FAILS(Api().CreateTrainer(model, R"({"backend": "./libX.so"})", nullptr, 0, &trainer), ONNXTRAIN_NOT_FOUND,
                   "./libX.so: no such file");
  EXPECT_API_FAILS(Api().CreateTrainer(model, R"({"plugin": ["x.so"]})", nullptr, 0, &trainer),
                   ONNXTRAIN_INVALID_ARGUMENT, "LoadPlugin");
  Api().ReleaseModel(model);
}

}  // namespace
}  // namespace onnxtrain
