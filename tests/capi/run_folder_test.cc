// The folder of a run whose updates a program makes.
#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"
#include "frontend/onnx/import.h"
#include "tests/capi/api_handle.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

class CApiRunFolder : public CApi {
 protected:
  std::string Config(const std::string& more) const {
    return StrCat(
        R"({"batch_size": 24, "lr": 0.01, "threads": 1, "seed": 3, "lr_scheduler": "cosine", "max_steps": 7, )",
        R"("log_every": 2, "save_every": 2, )", more, "}");
  }
  OnnxtrainTrainer* OpenRun(const std::string& folder, const std::string& more = "") {
    return Open(Config(StrCat(R"("out": ")", Path(folder), "\"", more)).c_str());
  }
  void ExpectConfigFails(const std::string& config, const std::string& text) {
    OnnxtrainModel* model = nullptr;
    OnnxtrainTrainer* trainer = nullptr;
    EXPECT_API_OK(Api().LoadModelFromFile(Path("m.onnx").c_str(), &model));
    EXPECT_API_FAILS(Api().CreateTrainer(model, config.c_str(), nullptr, 0, &trainer), ONNXTRAIN_INVALID_ARGUMENT,
                     text);
    Api().ReleaseModel(model);
  }
  std::vector<Json> ReadMetrics(const std::string& folder) {
    std::vector<Json> lines;
    for (const absl::string_view line :
         absl::StrSplit(ReadAll(Path(folder + "/metrics.jsonl")), '\n', absl::SkipEmpty()))
      lines.push_back(Json::parse(line));
    return lines;
  }
};

// Update i is made on batch i.
void Train(OnnxtrainTrainer* trainer, int first, int last, bool reports = false) {
  for (int i = first; i < last; ++i) {
    BlobBatch batch(24, i);
    OnnxtrainStepResult result;
    EXPECT_API_OK(Api().TrainStep(trainer, batch.data(), batch.size(), reports ? &result : nullptr));
  }
}

int64_t CountSteps(OnnxtrainTrainer* trainer) {
  int64_t steps = -1;
  EXPECT_API_OK(Api().GetStepCount(trainer, &steps));
  return steps;
}

Json Finish(OnnxtrainTrainer* trainer) {
  OnnxtrainBytes* bytes = nullptr;
  EXPECT_API_OK(Api().FinishRun(trainer, &bytes));
  const std::string text(static_cast<const char*>(Api().GetBytesData(bytes)), Api().GetBytesSize(bytes));
  Api().ReleaseBytes(bytes);
  return Json::parse(text);
}

TEST_F(CApiRunFolder, HoldsMetricsCheckpointsModelAndSummary) {
  OnnxtrainTrainer* trainer = OpenRun("run");
  EXPECT_EQ(CountSteps(trainer), 0);
  Train(trainer, 0, 5, true);
  const OnnxtrainEvaluation evaluation = {.loss = 0.5, .weight = 10, .correct = 9, .targets = 10, .samples = 10};
  EXPECT_API_OK(Api().RecordEvaluation(trainer, &evaluation));
  const Json summary = Finish(trainer);
  EXPECT_EQ(summary["steps"], 5);
  EXPECT_EQ(summary["samples"], 120);
  EXPECT_EQ(summary["stop_reason"], "end_of_data");
  EXPECT_EQ(Json::parse(ReadAll(Path("run/summary.json"))), summary);
  const std::vector<Json> metrics = ReadMetrics("run");
  ASSERT_EQ(metrics.size(), 4u);  // after 2, 4 and 5 updates, and the evaluation
  EXPECT_EQ(metrics[0]["step"], 2);
  EXPECT_EQ(metrics[1]["step"], 4);
  EXPECT_TRUE(std::ranges::any_of(metrics, [](const Json& line) { return line.contains("eval_loss"); })) << metrics;
  EXPECT_TRUE(std::filesystem::exists(Path("run/checkpoints")));
  EXPECT_TRUE(std::filesystem::exists(Path("run/tensorboard")));
  OnnxtrainBytes* bytes = nullptr;
  EXPECT_API_OK(Api().ExportToBytes(trainer, &bytes));
  EXPECT_EQ(ReadAll(Path("run/model.onnx")),
            std::string(static_cast<const char*>(Api().GetBytesData(bytes)), Api().GetBytesSize(bytes)));
  Api().ReleaseBytes(bytes);
  BlobBatch batch(24);
  EXPECT_API_FAILS(Api().TrainStep(trainer, batch.data(), batch.size(), nullptr), ONNXTRAIN_INVALID_ARGUMENT,
                   "is finished");
  EXPECT_API_FAILS(Api().FinishRun(trainer, nullptr), ONNXTRAIN_INVALID_ARGUMENT, "is finished");
  Api().ReleaseTrainer(trainer);
}

// The mean of a line is that of all updates since the one before, whoever asked for their results.
TEST_F(CApiRunFolder, MetricsDoNotDependOnReports) {
  for (const bool reports : {false, true}) {
    OnnxtrainTrainer* trainer = OpenRun(reports ? "told" : "silent");
    Train(trainer, 0, 4, reports);
    Api().ReleaseTrainer(trainer);
  }
  const std::vector<Json> told = ReadMetrics("told"), silent = ReadMetrics("silent");
  ASSERT_EQ(told.size(), 2u);
  ASSERT_EQ(silent.size(), 2u);
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_NEAR(told[i]["loss"].get<double>(), silent[i]["loss"].get<double>(), 1e-6);
    EXPECT_EQ(told[i]["grad_norm"], silent[i]["grad_norm"]);
  }
}

TEST_F(CApiRunFolder, GoesOnWithTheSameBits) {
  OnnxtrainTrainer* whole = OpenRun("whole");
  Train(whole, 0, 7);
  Finish(whole);
  OnnxtrainTrainer* cut = OpenRun("cut", R"(, "resume": "auto")");  // there is nothing yet
  EXPECT_EQ(CountSteps(cut), 0);
  Train(cut, 0, 5);
  Api().ReleaseTrainer(cut);  // the fifth update is lost
  OnnxtrainTrainer* resumed = OpenRun("cut", R"(, "resume": "auto")");
  EXPECT_EQ(CountSteps(resumed), 4);
  Train(resumed, 4, 7);
  EXPECT_EQ(ParameterBytes(resumed), ParameterBytes(whole));
  const Json summary = Finish(resumed);
  EXPECT_EQ(summary["steps"], 7);
  EXPECT_EQ(summary["resumed_from"], 4);
  EXPECT_EQ(summary["stop_reason"], "max_steps");
  EXPECT_EQ(ReadAll(Path("cut/model.onnx")), ReadAll(Path("whole/model.onnx")));
  std::vector<int64_t> steps;
  for (const Json& line : ReadMetrics("cut")) steps.push_back(line["step"]);
  EXPECT_THAT(steps, testing::ElementsAre(2, 4, 6, 7));
  Api().ReleaseTrainer(whole);
  Api().ReleaseTrainer(resumed);
}

TEST_F(CApiRunFolder, KeepsTheLearningRateThatWasSet) {
  OnnxtrainTrainer* first = OpenRun("run");
  EXPECT_API_OK(Api().SetLearningRate(first, 0.003));
  Train(first, 0, 2);
  double before = 0, after = 1;
  EXPECT_API_OK(Api().GetLearningRate(first, &before));
  Api().ReleaseTrainer(first);
  OnnxtrainTrainer* second = OpenRun("run", R"(, "resume": "auto")");
  EXPECT_API_OK(Api().GetLearningRate(second, &after));
  EXPECT_NEAR(before, after, 1e-8);
  Api().ReleaseTrainer(second);
}

TEST_F(CApiRunFolder, AccumulatedSamplesCount) {
  OnnxtrainTrainer* trainer = OpenRun("run");
  BlobBatch batch(24);
  for (int i = 0; i < 2; ++i) EXPECT_API_OK(Api().Accumulate(trainer, batch.data(), batch.size()));
  EXPECT_API_OK(Api().Apply(trainer, nullptr));
  EXPECT_EQ(Finish(trainer)["samples"], 48);
  Api().ReleaseTrainer(trainer);
}

TEST_F(CApiRunFolder, RefusesWhatItCannotDo) {
  OnnxtrainTrainer* trainer = OpenRun("run");
  const std::string same = StrCat(R"("out": ")", Path("run"), "\"");
  ExpectConfigFails(Config(same + R"(, "resume": "auto")"), "run");  // another trainer writes to it
  Train(trainer, 0, 2);
  Api().ReleaseTrainer(trainer);
  ExpectConfigFails(Config(same), "`overwrite`");
  ExpectConfigFails(Config(same + R"(, "resume": "auto", "optimizer": "sgd")"), "`optimizer`");
  ExpectConfigFails(R"({"out": "r", "save_every": "1ep"})", "`save_every` 1ep: a program's batches have no epochs");
  ExpectConfigFails(R"({"save_every": 5})", "`save_every`: has no effect without the folder of a run (`out`)");
  ExpectConfigFails(R"({"out": "r", "epochs": 3})", "`epochs`");
  ExpectConfigFails(R"({"out": "r", "keep_best": 1})", "`keep_best`: has no effect");
  OnnxtrainTrainer* plain = Open();
  OnnxtrainTrainer* recorded = OpenRun("loads");
  EXPECT_API_OK(Api().SaveStateToFile(plain, Path("state").c_str()));
  EXPECT_API_FAILS(Api().LoadStateFromFile(recorded, Path("state").c_str()), ONNXTRAIN_INVALID_ARGUMENT, "`resume`");
  Api().ReleaseTrainer(recorded);
  EXPECT_API_FAILS(Api().FinishRun(plain, nullptr), ONNXTRAIN_INVALID_ARGUMENT, "no folder of a run (`out`)");
  Api().ReleaseTrainer(plain);
}

}  // namespace
}  // namespace onnxtrain
