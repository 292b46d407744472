// Wrong calls of the C interface end with a status of one line.
#include <limits>

#include "tests/capi/api_handle.h"

namespace onnxtrain {
namespace {

class CApiBadInput : public CApi {
 protected:
  CApiBadInput() : trainer_(Open()) {}
  ~CApiBadInput() override { Api().ReleaseTrainer(trainer_); }

  // Fails, and leaves a trainer behind that works.
  void ExpectStepFails(const std::string& text) {
    EXPECT_API_FAILS(Api().TrainStep(trainer_, batch_.data(), batch_.size(), nullptr), ONNXTRAIN_INVALID_ARGUMENT,
                     text);
    BlobBatch good(24);
    EXPECT_API_OK(Api().TrainStep(trainer_, good.data(), good.size(), nullptr));
  }
  void ExpectConfigFails(const char* config, const std::string& text) {
    OnnxtrainModel* model = nullptr;
    EXPECT_API_OK(Api().LoadModelFromFile(Path("m.onnx").c_str(), &model));
    OnnxtrainTrainer* trainer = trainer_;
    EXPECT_API_FAILS(Api().CreateTrainer(model, config, nullptr, 0, &trainer), ONNXTRAIN_INVALID_ARGUMENT, text);
    EXPECT_EQ(trainer, nullptr);
    Api().ReleaseModel(model);
  }

  OnnxtrainTrainer* trainer_;
  BlobBatch batch_{24};
};

constexpr OnnxtrainCode kInvalid = ONNXTRAIN_INVALID_ARGUMENT;

TEST_F(CApiBadInput, NullPointers) {
  const OnnxtrainApi& api = Api();
  OnnxtrainModel* model = nullptr;
  OnnxtrainTrainer* trainer = nullptr;
  OnnxtrainTensors* tensors = nullptr;
  OnnxtrainBytes* bytes = nullptr;
  OnnxtrainTensor tensor;
  EXPECT_API_FAILS(api.LoadModelFromFile(nullptr, &model), kInvalid, "path is null");
  EXPECT_API_FAILS(api.LoadModelFromFile("m.onnx", nullptr), kInvalid, "out is null");
  EXPECT_API_FAILS(api.LoadModelFromBytes(nullptr, 3, nullptr, &model), kInvalid, "bytes is null");
  EXPECT_API_FAILS(api.CreateTrainer(nullptr, nullptr, nullptr, 0, &trainer), kInvalid, "the model is null");
  EXPECT_API_FAILS(api.TrainStep(nullptr, batch_.data(), 2, nullptr), kInvalid, "the trainer is null");
  EXPECT_API_FAILS(api.TrainStep(trainer_, nullptr, 2, nullptr), kInvalid, "array of tensors is null");
  EXPECT_API_FAILS(api.Evaluate(trainer_, batch_.data(), 2, nullptr), kInvalid, "result is null");
  EXPECT_API_FAILS(api.Predict(trainer_, batch_.data(), 1, nullptr), kInvalid, "out is null");
  EXPECT_API_FAILS(api.GetParameters(nullptr, nullptr, &tensors), kInvalid, "the trainer is null");
  EXPECT_API_FAILS(api.SetParameters(trainer_, nullptr, 1), kInvalid, "array of tensors is null");
  EXPECT_API_FAILS(api.GetLearningRate(trainer_, nullptr), kInvalid, "rate is null");
  EXPECT_API_FAILS(api.ExportToFile(trainer_, nullptr), kInvalid, "path is null");
  EXPECT_API_FAILS(api.ExportToBytes(nullptr, &bytes), kInvalid, "the trainer is null");
  EXPECT_API_FAILS(api.GetTensor(nullptr, 0, &tensor), kInvalid, "the tensors is null");
  EXPECT_API_FAILS(api.Cancel(nullptr), kInvalid, "the trainer is null");
  EXPECT_EQ(api.GetTensorCount(nullptr), 0u);
  EXPECT_EQ(api.GetBytesData(nullptr), nullptr);
  EXPECT_EQ(api.GetBytesSize(nullptr), 0u);
  EXPECT_STREQ(api.GetStatusMessage(nullptr), "");
  api.ReleaseStatus(nullptr);
  api.ReleaseModel(nullptr);
  api.ReleaseTrainer(nullptr);
  api.ReleaseTensors(nullptr);
  api.ReleaseBytes(nullptr);
}

TEST_F(CApiBadInput, HandlesThatWereReleased) {
  OnnxtrainTrainer* trainer = Open();
  Api().ReleaseTrainer(trainer);
  EXPECT_API_FAILS(Api().TrainStep(trainer, batch_.data(), 2, nullptr), kInvalid, "released");
  EXPECT_API_FAILS(Api().Cancel(trainer), kInvalid, "released");
  Api().ReleaseTrainer(trainer);
  OnnxtrainTensors* tensors = nullptr;
  EXPECT_API_OK(Api().GetParameters(trainer_, "w1", &tensors));
  Api().ReleaseTensors(tensors);
  OnnxtrainTensor tensor;
  EXPECT_API_FAILS(Api().GetTensor(tensors, 0, &tensor), kInvalid, "released");
  EXPECT_EQ(Api().GetTensorCount(tensors), 0u);
  // A handle of another kind.
  EXPECT_API_FAILS(Api().Cancel(reinterpret_cast<OnnxtrainTrainer*>(tensors)), kInvalid, "of no trainer");
  EXPECT_API_FAILS(Api().CreateTrainer(reinterpret_cast<OnnxtrainModel*>(trainer_), nullptr, nullptr, 0, &trainer),
                   kInvalid, "of no model");
}

TEST_F(CApiBadInput, StatusesThatWereReleased) {
  OnnxtrainStatus* status = Api().Cancel(nullptr);
  Api().ReleaseStatus(status);
  Api().ReleaseStatus(status);
  EXPECT_EQ(Api().GetStatusCode(status), kInvalid);
  EXPECT_STREQ(Api().GetStatusMessage(status), "a status that was released");
}

TEST_F(CApiBadInput, Models) {
  OnnxtrainModel* model = nullptr;
  EXPECT_API_FAILS(Api().LoadModelFromFile(Path("none.onnx").c_str(), &model), ONNXTRAIN_NOT_FOUND, "no such file");
  WriteAll(Path("text.onnx"), "not a model");
  EXPECT_API_FAILS(Api().LoadModelFromFile(Path("text.onnx").c_str(), &model), kInvalid, "text.onnx");
  EXPECT_API_FAILS(Api().LoadModelFromBytes("", 0, "m", &model), kInvalid, "m: is empty");
  EXPECT_EQ(model, nullptr);
}

TEST_F(CApiBadInput, TruncatedBytes) {
  const std::string bytes = ReadAll(Path("m.onnx"));
  for (size_t size = 1; size < bytes.size(); size += 7) {
    OnnxtrainModel* model = nullptr;
    OnnxtrainStatus* status = Api().LoadModelFromBytes(bytes.data(), size, "cut", &model);
    EXPECT_EQ(model == nullptr, status != nullptr) << size;
    EXPECT_TRUE(status == nullptr || Take(status).message.starts_with("cut: ")) << size;
    Api().ReleaseModel(model);
  }
}

// A model in memory reads no files, whatever it refers to.
TEST_F(CApiBadInput, ExternalDataOfBytes) {
  tiny::Message tensor, entry, graph, model;
  WriteAll(Path("w.bin"), std::string(16, '\0'));
  entry.Bytes(1, "location").Bytes(2, "w.bin");
  tensor.Int(1, 4).Int(2, 1).Bytes(8, "w").Sub(13, entry).Int(14, 1);
  graph.Sub(1, tiny::Message().Bytes(1, "w").Bytes(2, "y").Bytes(3, "n").Bytes(4, "Relu")).Bytes(2, "g");
  graph.Sub(5, tensor).Sub(12, tiny::Message().Bytes(1, "y"));
  model.Int(1, 7).Sub(7, graph).Sub(8, tiny::Message().Bytes(1, "").Int(2, 13));
  OnnxtrainModel* loaded = nullptr;
  EXPECT_API_FAILS(Api().LoadModelFromBytes(model.text().data(), model.text().size(), "m", &loaded), kInvalid,
                   "a model in memory has no folder");
}

TEST_F(CApiBadInput, Configurations) {
  ExpectConfigFails("{", "JSON object");
  ExpectConfigFails("[]", "JSON object");
  ExpectConfigFails(R"({"learning_rate": 1})", "'learning_rate'");
  ExpectConfigFails(R"({"batch_size": -3})", "`batch_size`");
  ExpectConfigFails(R"({"batch_size": "many"})", "`batch_size`");
  ExpectConfigFails(R"({"optimizer": "best"})", "`optimizer`");
  ExpectConfigFails(R"({"loss": "mean"})", "`loss`");
  ExpectConfigFails(R"({"freeze": ["nothing*"]})", "nothing*");
  ExpectConfigFails(R"({"epochs": 3})", "`epochs`");
  ExpectConfigFails(R"({"data": "d.npz"})", "`data`: has no effect: the program hands over batches");
  ExpectConfigFails(R"({"comm_interface": "lo"})", "`comm_interface`: has no effect");
  ExpectConfigFails(R"({"comm_timeout": 5})", "`comm_timeout`: has no effect");
  ExpectConfigFails(R"({"gradcheck": 3})", "`gradcheck`");
  ExpectConfigFails(R"({"log_every": 3})", "`log_every`");
  ExpectConfigFails(R"({"lr_scheduler": "cosine"})", "`max_steps`");
}

TEST_F(CApiBadInput, Samples) {
  OnnxtrainModel* model = nullptr;
  OnnxtrainTrainer* trainer = nullptr;
  EXPECT_API_OK(Api().LoadModelFromFile(Path("m.onnx").c_str(), &model));
  const int64_t five[] = {5};
  OnnxtrainTensor sample = {"other", ONNXTRAIN_FLOAT, 1, five, nullptr, 0};
  EXPECT_API_FAILS(Api().CreateTrainer(model, nullptr, &sample, 1, &trainer), kInvalid, "'other'");
  sample.name = "label";
  EXPECT_API_FAILS(Api().CreateTrainer(model, nullptr, &sample, 1, &trainer), kInvalid, "label");
  sample.type = 99;
  EXPECT_API_FAILS(Api().CreateTrainer(model, nullptr, &sample, 1, &trainer), kInvalid, "element type 99");
  Api().ReleaseModel(model);
}

TEST_F(CApiBadInput, Batches) {
  const OnnxtrainTensor x = batch_.x(), label = batch_.label();
  const int64_t wide[] = {24, 5}, flat[] = {96}, none[] = {0, 4}, negative[] = {-1, 4}, half[] = {12, 4};
  batch_.x().shape = wide, batch_.x().bytes = 480;
  ExpectStepFails("'x' is f32[24,5], expected f32[batch,4]");
  batch_.x() = x, batch_.x().shape = flat, batch_.x().rank = 1;
  ExpectStepFails("'x' is f32[96], expected f32[batch,4]");
  batch_.x() = x, batch_.x().shape = none, batch_.x().bytes = 0;
  ExpectStepFails("'x' has no samples");
  batch_.x() = x, batch_.x().shape = negative;
  ExpectStepFails("'x'");
  batch_.x() = x, batch_.x().shape = half, batch_.x().bytes = 192;
  ExpectStepFails("'label' has 24 samples, 'x' has 12");
  batch_.x() = x, batch_.x().bytes = 100;
  ExpectStepFails("'x' f32[24,4]: has 100 bytes, expected 384");
  batch_.x() = x, batch_.x().data = nullptr;
  ExpectStepFails("its data is null");
  batch_.x() = x, batch_.x().shape = nullptr;
  ExpectStepFails("its shape is null");
  batch_.x() = x, batch_.x().name = nullptr;
  ExpectStepFails("tensor 0: its name is null");
  batch_.x() = x, batch_.x().name = "input";
  ExpectStepFails("'input' is no tensor of a batch, which has 'x', 'label'");
  batch_.x() = x, batch_.x().rank = 1 << 30;
  ExpectStepFails("rank");
  batch_.x() = x, batch_.label() = x;
  ExpectStepFails("'x' is there twice");
  batch_.label() = label, batch_.label().type = 8;
  ExpectStepFails("there is no element type 8");
}

TEST_F(CApiBadInput, MissingLabels) {
  EXPECT_API_FAILS(Api().TrainStep(trainer_, batch_.data(), 1, nullptr), kInvalid, "'label' is missing");
  OnnxtrainTensors* out = nullptr;
  EXPECT_API_FAILS(Api().Predict(trainer_, &batch_.label(), 1, &out), kInvalid, "'x' is missing");
}

TEST_F(CApiBadInput, LabelsOutOfRange) {
  batch_.values(1).SetInt(5, 3);
  ExpectStepFails("'label': sample 5: 3 is outside of the 3 classes");
  batch_.values(1).SetInt(5, -1);
  ExpectStepFails("'label': sample 5: -1");
  std::vector<float> floats(24, 0.5f);
  batch_.label().type = ONNXTRAIN_FLOAT, batch_.label().data = floats.data(), batch_.label().bytes = 96;
  ExpectStepFails("'label'");
}

TEST_F(CApiBadInput, Parameters) {
  const std::string before = ParameterBytes(trainer_);
  const float zeros[64] = {};
  const int64_t shape[] = {4, 16}, turned[] = {16, 4};
  OnnxtrainTensor set[] = {{"w1", ONNXTRAIN_FLOAT, 2, shape, zeros, 256},
                           {"none", ONNXTRAIN_FLOAT, 2, shape, zeros, 256}};
  EXPECT_API_FAILS(Api().SetParameters(trainer_, set, 2), ONNXTRAIN_NOT_FOUND, "'none'");
  set[0].shape = turned;
  EXPECT_API_FAILS(Api().SetParameters(trainer_, set, 1), kInvalid, "'w1' is f32[4,16], got f32[16,4]");
  set[0] = {"w1", ONNXTRAIN_INT32, 2, shape, zeros, 256};
  EXPECT_API_FAILS(Api().SetParameters(trainer_, set, 1), kInvalid, "got i32[4,16]");
  EXPECT_EQ(ParameterBytes(trainer_), before);
  OnnxtrainTensors* tensors = nullptr;
  EXPECT_API_FAILS(Api().GetParameters(trainer_, "none", &tensors), ONNXTRAIN_NOT_FOUND, "'none'");
  EXPECT_EQ(tensors, nullptr);
}

TEST_F(CApiBadInput, LearningRates) {
  for (const double rate : {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    EXPECT_API_FAILS(Api().SetLearningRate(trainer_, rate), kInvalid, "learning rate");
}

TEST_F(CApiBadInput, Exports) {
  EXPECT_API_FAILS(Api().ExportToFile(trainer_, Path("m.onnx").c_str()), kInvalid, "still needed");
  EXPECT_API_FAILS(Api().ExportToFile(trainer_, Path("no/folder/x.onnx").c_str()), ONNXTRAIN_UNAVAILABLE, "x.onnx");
  tiny::Mlp(4).Save(Path("m.onnx"));  // replaced by another model: the trainer's is gone
  EXPECT_API_FAILS(Api().ExportToFile(trainer_, Path("x.onnx").c_str()), ONNXTRAIN_UNAVAILABLE, "has changed");
}

TEST_F(CApiBadInput, SkippedUpdates) {
  tiny::SquaredMlp(3).Save(Path("squared.onnx"));
  OnnxtrainTrainer* trainer = OpenModel("squared.onnx", kBlobConfig);
  const std::string before = ParameterBytes(trainer);
  batch_.values(0).Set(0, 3e38);
  OnnxtrainStepResult result;
  EXPECT_API_OK(Api().TrainStep(trainer, batch_.data(), batch_.size(), &result));
  EXPECT_EQ(result.skipped, 1);
  EXPECT_TRUE(std::isnan(result.loss));
  EXPECT_EQ(ParameterBytes(trainer), before);
  Api().ReleaseTrainer(trainer);
}

}  // namespace
}  // namespace onnxtrain
