// A model is imported for two sizes of batches, whoever asks for it.
#include "optim/step/prepared_models.h"

#include <cmath>
#include <fstream>

#include "backends/registry.h"
#include "frontend/base/strings.h"
#include "optim/plan/micro_batch.h"
#include "optim/step/session.h"
#include "tests/optim/parallel/failing_backend.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

constexpr int64_t kSamples = 12;

// Memory of this process in which the file is mapped, in KiB.
int64_t ResidentKib(const std::string& path) {
  int64_t total = 0;
  bool within = false;
  std::ifstream smaps("/proc/self/smaps");
  for (std::string line; std::getline(smaps, line);) {
    if (line.find('-') < line.find(':')) within = line.ends_with(path);
    if (within && line.starts_with("Rss:")) total += std::stoll(line.substr(4));
  }
  return total;
}

class Prepared : public Scratch {
 protected:
  Prepared() {
    tiny::Mlp(3).Save(Path("m.onnx"));
    models_ = std::make_shared<PreparedModels>(OnnxModel::Load(Path("m.onnx")).value());
    options_.labels = {.present = true, .sample = {DType::kInt64, {}}, .min_value = 0, .max_value = 2};
    options_.import.input_shapes["x"] = {-1, 4};
    options_.step_form = StepForm::kMicroAndApply;
  }

  PrepareOptions MakePrepareOptions() const {
    return {options_.import, options_.loss, options_.labels, options_.trainable};
  }

  std::unique_ptr<Session> NewSession(int64_t micro_batch) {
    options_.micro_batch = micro_batch;
    auto session = Session::Create(models_, backend_.get(), options_);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }

  static GlobalBatch MakeBatch(DType dtype) {
    const std::vector<float> numbers = tiny::Uniform(kSamples * 4, 1, 3);
    HostTensor x({dtype, {kSamples, 4}}), labels({DType::kInt64, {kSamples}});
    for (int64_t i = 0; i < x.size(); ++i) x.Set(i, numbers[i]);
    for (int64_t i = 0; i < kSamples; ++i) labels.SetInt(i, i % 3);
    return {{"x", x}, {kLabelFeed, labels}};
  }

  std::unique_ptr<Backend> backend_ = CreateBackend("cpu", {.threads = 1}).value();
  std::shared_ptr<PreparedModels> models_;
  SessionOptions options_;
};

TEST_F(Prepared, TwoImportsServeAllProgramsOfASession) {
  const auto session = NewSession(5);  // micro-batches of 5, 5 and 2
  const GlobalBatch batch = MakeBatch(DType::kFloat32);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(session->Step(batch).ok());
  EXPECT_EQ(models_->imports(), 2);  // the first, the next and the last micro-batch
  ASSERT_TRUE(session->Evaluate(batch).ok());
  ASSERT_TRUE(session->Predict(batch).ok());
  ASSERT_TRUE(session->Gradients(batch, GradientsOf::kWeights).ok());
  for (const int64_t size : {2, 3, 4}) ASSERT_TRUE(NewSession(size)->Evaluate(batch).ok());
  EXPECT_EQ(models_->imports(), 2);
}

TEST_F(Prepared, PlansAndSessionsShareImports) {
  for (int i = 0; i < 2; ++i) {
    for (const int64_t size : {1, 4, 8}) ASSERT_TRUE(PlannedMemory(models_, *backend_, options_, size, size).ok());
  }
  EXPECT_EQ(models_->imports(), 3);
  options_.compute = DType::kBFloat16;
  ASSERT_TRUE(PlannedMemory(models_, *backend_, options_, 8, 8).ok());
  ASSERT_TRUE(NewSession(4)->Step(MakeBatch(DType::kFloat32)).ok());
  EXPECT_EQ(models_->imports(), 3);
}

TEST_F(Prepared, OtherSizesAreDropped) {
  const PrepareOptions options = MakePrepareOptions();
  for (const int64_t batch : {2, 3}) ASSERT_TRUE(models_->ImportForward(options, batch, true, false).ok());
  models_->KeepSize(3);
  ASSERT_TRUE(models_->ImportForward(options, 3, true, false).ok());
  EXPECT_EQ(models_->imports(), 2);
  const auto two = models_->ImportForward(options, 2, true, false);
  ASSERT_TRUE(two.ok());
  EXPECT_EQ((*two)->batch, 2);
  EXPECT_EQ(models_->imports(), 2) << "what follows the batch is known";
}

// Compilation takes memory, and a program that has run keeps its own.
TEST_F(Prepared, AStepIsCompiledBeforeItRuns) {
  Fault fault{.of = Fault::Of::kRun};
  backend_ = std::make_unique<FailingBackend>(std::move(backend_), &fault);
  EXPECT_FALSE(NewSession(5)->Step(MakeBatch(DType::kFloat32)).ok());
  EXPECT_EQ(models_->imports(), 2) << "of the micro-batches of 5 and of the last one";
}

TEST_F(Prepared, OtherOptionsAreOtherImports) {
  PrepareOptions options = MakePrepareOptions();
  ASSERT_TRUE(models_->Prepare(options, 4, true, false).ok());
  options.import.dropout = 0.5;
  ASSERT_TRUE(models_->Prepare(options, 4, true, false).ok());
  options.import.fixed_inputs["none"] = HostTensor::FromInts({1});
  ASSERT_TRUE(models_->Prepare(options, 4, true, false).ok());
  EXPECT_EQ(models_->imports(), 3);
  options.import.fixed_inputs["none"] = HostTensor::FromInts({1});
  options.trainable.freeze = {"w1"};
  ASSERT_TRUE(models_->Prepare(options, 4, true, false).ok());
  EXPECT_EQ(models_->imports(), 3) << "which weights are trained is decided after the import";
}

TEST_F(Prepared, TheLeastRecentlyUsedGoes) {
  const PrepareOptions options = MakePrepareOptions();
  std::vector<std::weak_ptr<const ImportedModel>> models;
  for (int64_t batch = 1; batch <= 17; ++batch) models.push_back(*models_->ImportForward(options, batch, true, false));
  EXPECT_TRUE(models[0].expired());
  EXPECT_EQ(models_->ImportForward(options, 2, true, false).value(), models[1].lock());
}

// Each constant fixes the batch to its number of rows.
TEST_F(Prepared, AFixedBatchIsSearchedForInFewImports) {
  const auto search = [&](const std::vector<int64_t>& rows) {
    tiny::Model m{.input_shape = {-1, 4}};
    m.nodes = {{"MatMul", {"x", "w"}, {"h"}}};
    m.weights = {{"w", {4, 5}, tiny::Uniform(20, 0.5f, 1)}};
    m.outputs = {};
    for (const int64_t r : rows) {
      const std::string name = StrCat("c", r), out = StrCat("y", r);
      m.nodes.push_back({"Add", {"h", name}, {out}});
      m.weights.push_back({name, {r, 5}, tiny::Uniform(r * 5, 0.5f, 2)});
      m.outputs.push_back(out);
    }
    m.Save(Path("m.onnx"));
    models_ = std::make_shared<PreparedModels>(OnnxModel::Load(Path("m.onnx")).value());
    const PrepareOptions options = MakePrepareOptions();
    const auto failed = models_->ImportForward(options, 7, true, false);
    EXPECT_FALSE(failed.ok());
    return models_->FindFixedBatch(options, failed.status(), true);
  };
  EXPECT_EQ(search({3}), 3);
  EXPECT_EQ(search({48}), 48);  // an extent of the node that fails
  std::vector<int64_t> many;
  for (int64_t r = 20; r < 120; ++r) many.push_back(r);
  EXPECT_EQ(search(many), 0);
  EXPECT_LE(models_->imports(), 33) << "the one that failed, and 32";
}

// Values that the import converts (float64 here) are dropped as soon as they are on the device, unless they are small.
TEST_F(Prepared, ConvertedValuesAreNotKept) {
  tiny::Wide().Save(Path("m.onnx"));
  models_ = std::make_shared<PreparedModels>(OnnxModel::Load(Path("m.onnx")).value());
  options_.import.input_shapes["x"] = {-1, 1024};
  const PrepareOptions narrow = MakePrepareOptions();
  options_.import.float_type = DType::kFloat64;
  const PrepareOptions wide = MakePrepareOptions();
  for (const auto& [options, kept] : {std::pair(narrow, true), {wide, false}}) {
    const auto held = models_->ImportForward(options, 4, true, true).value();
    models_->ReleaseValues();
    EXPECT_GT(held->weights[0].value.size(), 0) << "callers keep what they got";
    const int64_t before = models_->imports();
    EXPECT_EQ(models_->ImportForward(options, 4, true, false).value()->weights[0].value.size() > 1, kept);
    EXPECT_EQ(models_->imports(), before);
    EXPECT_GT(models_->ImportForward(options, 4, true, true).value()->weights[0].value.size(), 1);
    EXPECT_EQ(models_->imports(), kept ? before : before + 1);
  }
}

// The first step imports again and looks at weights to decide what is trained.
TEST_F(Prepared, NoPageOfTheFileStaysInMemory) {
  tiny::Model m = tiny::Wide();
  m.weights.push_back({"table", {1024, 64}, tiny::Uniform(1024 * 64, 1, 5)});
  m.nodes.push_back({"MatMul", {"x", "table"}, {"unused"}});
  m.Save(Path("m.onnx"));
  models_ = std::make_shared<PreparedModels>(OnnxModel::Load(Path("m.onnx")).value());
  options_.import.input_shapes["x"] = {-1, 1024};
  options_.labels.max_value = 15;
  const auto session = NewSession(kSamples);
  const std::vector<float> numbers = tiny::Uniform(kSamples * 1024, 1, 3);
  HostTensor x({DType::kFloat32, {kSamples, 1024}}), labels({DType::kInt64, {kSamples}});
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, numbers[i]);
  for (int64_t i = 0; i < kSamples; ++i) labels.SetInt(i, i % 16);
  ASSERT_TRUE(session->Step({{"x", x}, {kLabelFeed, labels}}).ok());
  EXPECT_EQ(ResidentKib("m.onnx"), 0);
}

// Only its values tell a table of positions from a weight.
TEST_F(Prepared, FixedTablesAreKnownWithoutTheValuesOfWeights) {
  tiny::Model m = tiny::Wide();
  std::vector<float> table;
  for (int i = 0; i < 1024; ++i) table.push_back(std::sin(0.3f * static_cast<float>(i)));
  m.weights.push_back({"positions", {1024, 1}, table});
  m.nodes.push_back({"MatMul", {"x", "positions"}, {"shift"}});
  m.nodes.push_back({"Add", {"y", "shift"}, {"z"}});
  m.outputs = {"z"};
  m.Save(Path("m.onnx"));
  models_ = std::make_shared<PreparedModels>(OnnxModel::Load(Path("m.onnx")).value());
  options_.import.input_shapes["x"] = {-1, 1024};
  options_.import.float_type = DType::kFloat64;
  options_.labels.max_value = 15;
  const PrepareOptions options = MakePrepareOptions();
  for (const bool values : {true, false}) {
    const PreparedModel prepared = models_->Prepare(options, 4, true, values).value();
    EXPECT_EQ(prepared.weights.back().reason, WeightReason::kSinusoids) << values;
    EXPECT_TRUE(prepared.weights.front().trained);
    models_->ReleaseValues();
  }
}

}  // namespace
}  // namespace onnxtrain
