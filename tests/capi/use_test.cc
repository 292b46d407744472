// The C interface in use: a program in C, several trainers at once, cancellation, memory.
#include <gmock/gmock.h>
#include <malloc.h>

#include <cstdio>
#include <thread>

#include "tests/capi/api_handle.h"
#include "tests/paths.h"

namespace onnxtrain {
namespace {

std::string ReadCommand(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  char part[4096];
  while (const size_t n = fread(part, 1, sizeof(part), pipe)) text.append(part, n);
  pclose(pipe);
  return text;
}

TEST_F(CApi, TrainsFromC) {
  const std::string command = BinaryPath("bin/capi_use") + " " + Path("m.onnx") + " " + Path("out.onnx") + " 2>&1";
  EXPECT_EQ(ReadCommand(command + "; echo $?"), "0\n");  // and prints nothing
  EXPECT_TRUE(Exists("out.onnx"));
}

// The line that runs a script of this folder on the model, with the Python package of the sources.
std::string PythonLine(const std::string& folder, const std::string& script) {
  const std::string source = RepoPath();
  return "cd " + folder + " && PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=" + source +
         "/python ONNXTRAIN_LIBRARY=" + BinaryPath("lib/libonnxtrain_c.so") +
         " ONNXTRAIN_PROGRAM=" + BinaryPath("bin/onnxtrain") + " /usr/bin/python3 " + source + "/tests/capi/" + script +
         " m.onnx 2>&1; echo $?";
}

TEST_F(CApi, TrainsFromPython) { EXPECT_EQ(ReadCommand(PythonLine(folder_, "python_use.py")), "0\n"); }

TEST_F(CApi, RunsTheProgramFromPython) { EXPECT_EQ(ReadCommand(PythonLine(folder_, "python_runs.py")), "0\n"); }

// A symbol that is added or removed changes what programs link against.
TEST(CApiSymbols, AreTheListed) {
  const std::string library = BinaryPath("lib/libonnxtrain_c.so");
  // Some linkers list the version itself, too.
  const std::string symbols = ReadCommand("nm -D --defined-only " + library + " | cut -d' ' -f2- | grep -v '^A '");
  EXPECT_EQ(symbols, "T OnnxtrainGetApi@@ONNXTRAIN_1\n");
}

TEST(CApiSymbols, TableIsOfTheVersion) {
  EXPECT_EQ(OnnxtrainGetApi(0), nullptr);
  EXPECT_EQ(OnnxtrainGetApi(ONNXTRAIN_API_VERSION + 1), nullptr);
  EXPECT_EQ(Api().version, ONNXTRAIN_API_VERSION);
  const auto* entries = reinterpret_cast<void* const*>(&Api());
  for (size_t i = 1; i < sizeof(OnnxtrainApi) / sizeof(void*); ++i) EXPECT_NE(entries[i], nullptr) << i;
}

std::string TrainAlone(OnnxtrainTrainer* trainer, uint32_t seed) {
  BlobBatch batch(24, seed);
  for (int i = 0; i < 30; ++i) EXPECT_API_OK(Api().TrainStep(trainer, batch.data(), batch.size(), nullptr));
  return ParameterBytes(trainer);
}

TEST_F(CApi, FourThreadsTrainAsOne) {
  constexpr int kTrainers = 4;
  std::vector<std::string> serial(kTrainers), parallel(kTrainers);
  for (int i = 0; i < kTrainers; ++i) {
    OnnxtrainTrainer* trainer = Open();
    serial[i] = TrainAlone(trainer, i);
    Api().ReleaseTrainer(trainer);
  }
  EXPECT_NE(serial[0], serial[1]);
  std::vector<std::thread> threads;
  for (int i = 0; i < kTrainers; ++i) {
    threads.emplace_back([&, i] {
      OnnxtrainTrainer* trainer = Open();
      parallel[i] = TrainAlone(trainer, i);
      Api().ReleaseTrainer(trainer);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(serial, parallel);
}

size_t AllocatedBytes() { return mallinfo2().uordblks; }

TEST_F(CApi, RepeatedUseDoesNotGrow) {
  BlobBatch batch(24);
  const auto use = [&] {
    OnnxtrainTrainer* trainer = Open();
    EXPECT_API_OK(Api().TrainStep(trainer, batch.data(), batch.size(), nullptr));
    EXPECT_API_FAILS(Api().TrainStep(trainer, nullptr, 0, nullptr), ONNXTRAIN_INVALID_ARGUMENT, "missing");
    Api().ReleaseTrainer(trainer);
  };
  for (int i = 0; i < 10; ++i) use();
  const size_t before = AllocatedBytes();
  for (int i = 0; i < 100; ++i) use();
  EXPECT_LT(AllocatedBytes(), before + 16384);
}

TEST_F(CApi, CancelEndsAStepThatChangesNothing) {
  OnnxtrainTrainer* trainer = Open(R"({"batch_size": 100000, "micro_batch_size": 8, "threads": 1})");
  BlobBatch small(16), large(100000);
  EXPECT_API_OK(Api().TrainStep(trainer, small.data(), small.size(), nullptr));
  const std::string before = ParameterBytes(trainer);
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_API_OK(Api().Cancel(trainer));
  });
  EXPECT_API_FAILS(Api().TrainStep(trainer, large.data(), large.size(), nullptr), ONNXTRAIN_CANCELLED, "cancelled");
  canceller.join();
  EXPECT_API_FAILS(Api().TrainStep(trainer, small.data(), small.size(), nullptr), ONNXTRAIN_CANCELLED, "cancelled");
  EXPECT_API_OK(Api().ClearCancel(trainer));
  EXPECT_EQ(ParameterBytes(trainer), before);
  OnnxtrainStepResult result;
  EXPECT_API_OK(Api().TrainStep(trainer, small.data(), small.size(), &result));
  EXPECT_EQ(result.step, 2);
  Api().ReleaseTrainer(trainer);
}

TEST_F(CApi, CancelEndsAnEvaluation) {
  OnnxtrainTrainer* trainer = Open(R"({"batch_size": 8, "threads": 1})");
  BlobBatch large(2'000'000);  // takes half a second, unless it is cancelled
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_API_OK(Api().Cancel(trainer));
  });
  OnnxtrainEvaluation result;
  EXPECT_API_FAILS(Api().Evaluate(trainer, large.data(), large.size(), &result), ONNXTRAIN_CANCELLED, "cancelled");
  canceller.join();
  Api().ReleaseTrainer(trainer);
}

TEST_F(CApi, OtherTrainersAreNotCancelled) {
  OnnxtrainTrainer *a = Open(), *b = Open();
  BlobBatch batch(24);
  EXPECT_API_OK(Api().Cancel(a));
  EXPECT_API_OK(Api().TrainStep(b, batch.data(), batch.size(), nullptr));
  Api().ReleaseTrainer(a);
  Api().ReleaseTrainer(b);
}

TEST_F(CApi, OneCallAtATime) {
  OnnxtrainTrainer* trainer = Open(R"({"batch_size": 100000, "micro_batch_size": 8, "threads": 1})");
  BlobBatch small(16), large(100000);
  EXPECT_API_OK(Api().TrainStep(trainer, small.data(), small.size(), nullptr));
  Ended step;
  std::thread worker([&] { step = Take(Api().TrainStep(trainer, large.data(), large.size(), nullptr)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_API_FAILS(Api().TrainStep(trainer, small.data(), small.size(), nullptr), ONNXTRAIN_BUSY, "another call");
  Api().ReleaseTrainer(trainer);  // lives until the call ends
  worker.join();
  EXPECT_TRUE(step.ok()) << step;
}

TEST_F(CApi, NumbersOfOtherTypesAreConverted) {
  OnnxtrainTrainer *a = Open(), *b = Open();
  BlobBatch batch(24);
  EXPECT_API_OK(Api().TrainStep(a, batch.data(), batch.size(), nullptr));
  std::vector<double> x = batch.values(0).ToDoubles();
  const std::vector<int64_t> labels = batch.values(1).ToInts();
  std::vector<uint8_t> bytes(labels.begin(), labels.end());
  const int64_t column[] = {24, 1};
  batch.x() = {"x", ONNXTRAIN_DOUBLE, 2, batch.x().shape, x.data(), x.size() * sizeof(double)};
  batch.label() = {"label", ONNXTRAIN_UINT8, 2, column, bytes.data(), bytes.size()};
  EXPECT_API_OK(Api().TrainStep(b, batch.data(), batch.size(), nullptr));
  EXPECT_EQ(ParameterBytes(a), ParameterBytes(b));
  Api().ReleaseTrainer(a);
  Api().ReleaseTrainer(b);
}

TEST_F(CApi, ScheduleFollowsTheRateThatWasSet) {
  OnnxtrainTrainer* trainer =
      Open(R"({"batch_size": 24, "lr": 0.01, "threads": 1, "lr_scheduler": "linear", "max_steps": 4})");
  BlobBatch batch(24);
  std::vector<double> rates;
  for (int i = 0; i < 4; ++i) {
    if (i == 2) EXPECT_API_OK(Api().SetLearningRate(trainer, 0.1));
    double next = 0;
    EXPECT_API_OK(Api().GetLearningRate(trainer, &next));
    OnnxtrainStepResult result;
    EXPECT_API_OK(Api().TrainStep(trainer, batch.data(), batch.size(), &result));
    EXPECT_NEAR(next, result.learning_rate, 1e-7);
    rates.push_back(next);
  }
  EXPECT_THAT(rates, testing::Pointwise(testing::DoubleNear(1e-9), std::vector{0.01, 0.0075, 0.05, 0.025}));
  Api().ReleaseTrainer(trainer);
}

}  // namespace
}  // namespace onnxtrain
