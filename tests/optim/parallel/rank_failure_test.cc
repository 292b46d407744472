// A rank that fails in the middle of an update ends all ranks at once, with its error. Ranks are threads with a session
// and Gloo connections each.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "backends/registry.h"
#include "optim/parallel/data_parallel.h"
#include "optim/parallel/shard.h"
#include "optim/step/session.h"
#include "tests/optim/parallel/blob_batches.h"
#include "tests/optim/parallel/failing_backend.h"
#include "tests/optim/parallel/rank_threads.h"
#include "tests/optim/parallel/small_models.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

constexpr int kSteps = 6;
constexpr double kTimeOut = 60;  // of an operation that nobody releases

enum class Method { kNone, kSyncBatchNorm, kOptimizer, kGradients, kFull, kTensor, kPipeline };

ShardLevel LevelOf(Method method) {
  return method == Method::kOptimizer   ? ShardLevel::kOptimizer
         : method == Method::kGradients ? ShardLevel::kGradients
         : method == Method::kFull      ? ShardLevel::kFull
                                        : ShardLevel::kNone;
}

struct Ended {
  absl::Status status;
  std::vector<double> losses;
  int64_t retries = 0;
  double seconds = 0;  // of the call that failed
};

class RankFailure : public Scratch {
 protected:
  RankFailure() {
    Stack(6, 112).Save(Path("m.onnx"));
    WithBatchNorm().Save(Path("normalized.onnx"));
  }

  SessionOptions MakeOptions(Method method, int rank, int size) const {
    SessionOptions options{.micro_batch = micro_batch_, .sync_batch_norm = method == Method::kSyncBatchNorm};
    options.import.float_type = DType::kFloat64;
    options.labels = {.present = true, .sample = {DType::kInt64, {}}, .min_value = 0, .max_value = 2};
    options.import.input_shapes["x"] = {-1, 4};
    if (method == Method::kTensor) options.tensor = {rank, size};
    if (method == Method::kPipeline) options.pipeline = {rank, size};
    return options;
  }

  // `fault` comes with update `step_` of the rank that fails, or with the evaluation in front of it.
  Ended TrainAs(Method method, int rank, int size, const Fault& planned) const {
    Fault fault;
    FailingBackend backend(CreateBackend("cpu", {.threads = 1}).value(), &fault);
    const char* const file = method == Method::kSyncBatchNorm ? "normalized.onnx" : "m.onnx";
    auto created = Session::Create(OnnxModel::Load(Path(file)).value(), &backend, MakeOptions(method, rank, size));
    if (!created.ok()) return {.status = created.status()};
    Session& session = **created;
    auto met = CreateCollectives(
        {.rank = rank, .size = size, .file = Path("meet"), .interface = "127.0.0.1", .timeout = kTimeOut});
    if (!met.ok()) return {.status = met.status()};
    DataParallel parallel(met->get(), session.ExchangedSums(), {.bucket_bytes = 512});
    if (step_ < 0 && rank == failing_) fault = planned;
    Ended ended{.status = session.Distribute(&parallel, LevelOf(method))};
    if (!parallel.failed_together()) ended.status = parallel.Agree("start", ended.status);
    for (int step = 0; step < kSteps && ended.status.ok(); ++step) {
      if (step == step_ && rank == failing_) fault = planned;
      const auto start = std::chrono::steady_clock::now();
      ended.status = TakeStep(session, step);
      ended.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      if (ended.status.ok()) ended.losses.push_back(session.Report()->loss);
    }
    parallel.EndLoop(ended.status);
    ended.retries = session.oom_retries();
    return ended;
  }

  absl::Status TakeStep(Session& session, int step) const {
    if (step == step_ && evaluates_) RETURN_IF_ERROR(session.Evaluate(MakeBatch(0, DType::kFloat64)).status());
    const int64_t begin = step == short_step_ ? kSamples - kSamples % kBatch : step * kBatch % (kSamples - kBatch);
    return session.Step(MakeBatch(begin, DType::kFloat64));
  }

  std::vector<Ended> TrainAll(Method method, int size, const Fault& fault) const {
    return RunRanks(Path("meet"), size, [&](int rank) { return TrainAs(method, rank, size, fault); });
  }

  void ExpectAllEnd(Method method, const Fault& fault) const {
    for (const int size : sizes_) {
      SCOPED_TRACE(StrCat("method ", static_cast<int>(method), ", fault ", static_cast<int>(fault.of), " in ",
                          fault.calls, " calls, ", size, " ranks"));
      const std::vector<Ended> all = TrainAll(method, size, fault);
      for (int rank = 0; rank < size; ++rank) {
        const std::string message(all[rank].status.message());
        EXPECT_EQ(all[rank].losses.size(), std::max(step_, 0)) << all[rank].status;
        EXPECT_LT(all[rank].seconds, 5) << message;
        EXPECT_NE(message.find("the kernel is broken"), std::string::npos) << message;
        EXPECT_EQ(message.starts_with(StrCat("rank ", failing_, ": ")), rank != failing_) << message;
      }
    }
  }

  std::vector<int> sizes_ = {2, 4};
  int failing_ = 1;
  int64_t micro_batch_ = 2;
  int step_ = 3, short_step_ = -1;  // the one that fails; the one with fewer samples than ranks
  bool evaluates_ = false;
};

constexpr Method kMethods[] = {Method::kNone, Method::kSyncBatchNorm, Method::kOptimizer, Method::kGradients,
                               Method::kFull, Method::kTensor,        Method::kPipeline};

TEST_F(RankFailure, EndsAllWhereAProgramFails) {
  for (const Method method : kMethods) {
    for (const int calls : {0, 1}) ExpectAllEnd(method, {.of = Fault::Of::kRun, .calls = calls});
    ExpectAllEnd(method, {.of = Fault::Of::kEndOfRun});
  }
}

TEST_F(RankFailure, EndsAllWhereARankCannotBegin) {
  step_ = -1;
  for (const Method method : {Method::kOptimizer, Method::kFull, Method::kTensor, Method::kPipeline})
    ExpectAllEnd(method, {.of = Fault::Of::kCompile});
}

TEST_F(RankFailure, EndsAllWhereARankCannotCompile) {
  step_ = 0;
  for (const Method method : kMethods) ExpectAllEnd(method, {.of = Fault::Of::kCompile});
}

// A rank without samples compiles a program of others, to take part in what they exchange.
TEST_F(RankFailure, EndsAllWhereARankCannotCompileAnIdleProgram) {
  step_ = short_step_ = failing_ = 0;
  sizes_ = {4};
  for (const Method method : {Method::kSyncBatchNorm, Method::kFull}) ExpectAllEnd(method, {.of = Fault::Of::kCompile});
}

TEST_F(RankFailure, EndsAllInAnEvaluation) {
  evaluates_ = true;
  for (const Method method : {Method::kFull, Method::kTensor, Method::kPipeline})
    ExpectAllEnd(method, {.of = Fault::Of::kRun});
}

// All go on with smaller micro-batches, and train the same model.
TEST_F(RankFailure, OutOfMemoryHalvesTheMicroBatchesOfAll) {
  micro_batch_ = 4;
  for (const Method method :
       {Method::kNone, Method::kSyncBatchNorm, Method::kOptimizer, Method::kGradients, Method::kFull}) {
    for (const Fault::Of of : {Fault::Of::kRun, Fault::Of::kEndOfRun}) {
      SCOPED_TRACE(StrCat("method ", static_cast<int>(method), ", fault ", static_cast<int>(of)));
      const std::vector<Ended> all = TrainAll(method, 4, {.of = of, .error = absl::ResourceExhaustedError("memory")}),
                               others = TrainAll(method, 4, {});
      for (const Ended& ended : all) {
        EXPECT_TRUE(ended.status.ok()) << ended.status;
        EXPECT_EQ(ended.retries, 1);
        ASSERT_EQ(ended.losses.size(), others[0].losses.size());
        for (int i = 0; i < kSteps; ++i)
          EXPECT_NEAR(ended.losses[i], others[0].losses[i], method == Method::kSyncBatchNorm ? 0.5 : 1e-12);
      }
    }
  }
}

}  // namespace
}  // namespace onnxtrain
