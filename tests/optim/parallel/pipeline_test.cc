// A model that is cut into stages trains like the whole one. Ranks are threads with a session and Gloo connections
// each.
#include <cmath>
#include <map>
#include <optional>
#include <thread>

#include "backends/registry.h"
#include "frontend/base/strings.h"
#include "optim/parallel/data_parallel.h"
#include "optim/parallel/pipeline/pipeline_session.h"
#include "optim/step/session.h"
#include "tests/optim/parallel/blob_batches.h"
#include "tests/optim/parallel/rank_threads.h"
#include "tests/optim/parallel/state_of_parts.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

constexpr int kSteps = 8;
constexpr int64_t kWidth = 16;

// x·w1, four blocks of h + dropout(relu(h·w)) that all read the first h too, and a head that reads w1 again,
// transposed.
tiny::Model Residual(bool normalizes) {
  tiny::Model m;
  m.nodes = {{"MatMul", {"x", "w1"}, {"a0"}}, {"Relu", {"a0"}, {"h0"}}};
  m.weights = {{"w1", {4, kWidth}, tiny::Uniform(4 * kWidth, 0.5f, 1)}};
  for (int k = 1; k <= 4; ++k) {
    const std::string n = StrCat(k), before = StrCat("h", k - 1);
    m.nodes.push_back({"MatMul", {before, "v" + n}, {"a" + n}});
    std::string at = "a" + n;
    if (normalizes) {
      m.nodes.push_back({"BatchNormalization", {at, "s" + n, "b" + n, "m" + n, "r" + n}, {"n" + n}});
      at = "n" + n;
      for (const auto& [name, value] : {std::pair("s", 1.0f), {"b", 0.0f}, {"m", 0.1f}, {"r", 0.9f}})
        m.weights.push_back({name + n, {kWidth}, std::vector<float>(kWidth, value)});
    }
    m.nodes.push_back({"Relu", {at}, {"c" + n}});
    m.nodes.push_back({"Dropout", {"c" + n}, {"d" + n}});
    m.nodes.push_back({"Add", {before, "d" + n}, {"e" + n}});
    m.nodes.push_back({"Add", {"e" + n, "h0"}, {"h" + n}});
    m.weights.push_back({"v" + n, {kWidth, kWidth}, tiny::Uniform(kWidth * kWidth, 0.2f, 10 + k)});
  }
  m.nodes.push_back({"Transpose", {"w1"}, {"w1t"}, {{"perm", {1, 0}}}});
  m.nodes.push_back({"MatMul", {"h4", "w1t"}, {"p"}});
  m.nodes.push_back({"MatMul", {"p", "w3"}, {"y"}});
  m.weights.push_back({"w3", {4, 3}, tiny::Uniform(12, 0.5f, 3)});
  return m;
}

// What a rank has in the end.
struct Trained {
  absl::Status status;
  std::map<std::string, HostTensor> weights, state;
  std::vector<double> losses, norms, evaluated;
  std::map<std::string, HostTensor> averages;
  SessionMemory memory;
  NamedArrays parts;  // of the state, as this rank writes it
  int64_t sent_bytes = 0;
};

class Pipeline : public Scratch {
 protected:
  static SessionOptions Complete(SessionOptions options, int rank, int size) {
    options.labels = {.present = true, .sample = {DType::kInt64, {}}, .min_value = 0, .max_value = 2};
    options.import.input_shapes["x"] = {-1, 4};
    options.pipeline = {rank, size};
    return options;
  }

  Trained TrainAs(int rank, int size, SessionOptions options) const {
    options = Complete(std::move(options), rank, size);
    const auto backend = CreateBackend(backend_, {.threads = 1}).value();
    auto created = Session::Create(OnnxModel::Load(Path("m.onnx")).value(), backend.get(), options);
    if (!created.ok()) return {.status = created.status()};
    Session& session = **created;
    Trained trained;
    std::unique_ptr<Collectives> ranks;
    std::optional<DataParallel> parallel;
    const SessionCounters counters{.attempted = kSteps / 2, .micro_batch = options.micro_batch};
    const bool restores = !restored_.empty();
    if (restores && rank == 0) trained.status = session.Restore(restored_, counters);
    if (size > 1) {
      auto met = CreateCollectives(
          {.rank = rank, .size = size, .file = Path(StrCat("meet", size)), .interface = "127.0.0.1", .timeout = 20});
      if (!met.ok()) return {.status = met.status()};
      ranks = *std::move(met);
      parallel.emplace(ranks.get(), session.ExchangedSums());
      const absl::Status joined = session.Distribute(&*parallel, ShardLevel::kNone);
      if (!joined.ok()) return {.status = joined};
    }
    if (restores && rank > 0) trained.status = session.RestoreCounters(counters);
    EXPECT_TRUE(trained.status.ok()) << trained.status;
    trained.status = Steps(session, rank, options.import.float_type, &trained);
    if (!trained.status.ok()) return trained;
    if (parallel) trained.sent_bytes = parallel->time().sent_bytes;
    trained.memory = session.memory();
    if (session.divides_moments()) trained.parts = ReadParts(session);
    trained.status = session.GatherState();
    trained.weights = session.Weights().value();
    const std::vector<StateTensor> state = session.State().value();
    for (const StateTensor& tensor : state) {
      if (tensor.region.view.buffer != nullptr) trained.state[tensor.name] = ReadRegion(tensor.region).value();
    }
    session.ReleaseGathered();
    EXPECT_TRUE(session.UseAverage(true).ok());
    trained.averages = session.Weights().value();
    EXPECT_TRUE(session.UseAverage(false).ok());
    return trained;
  }

  absl::Status Steps(Session& session, int rank, DType dtype, Trained* trained) const {
    for (int64_t step = session.steps(); step < steps_; ++step) {
      const DType given = step == broken_step_ && rank == 0 ? DType::kFloat32 : dtype;
      const absl::Status stepped = session.Step(MakeBatch(step * kBatch % (kSamples + kSamples % kBatch), given));
      if (!stepped.ok()) return stepped;
      const auto report = session.Report();
      trained->losses.push_back(report->loss);
      trained->norms.push_back(report->grad_norm);
      if (step % 3 > 0 || !evaluates_) continue;
      EXPECT_TRUE(session.UseAverage(true).ok());
      const auto evaluation = session.Evaluate(MakeBatch(0, dtype));
      EXPECT_TRUE(session.UseAverage(false).ok());
      if (!evaluation.ok()) return evaluation.status();
      trained->evaluated.insert(trained->evaluated.end(), {evaluation->loss_sums[0], evaluation->correct});
    }
    return absl::OkStatus();
  }

  std::vector<Trained> TrainAll(int size, const SessionOptions& options) const {
    return RunRanks(Path(StrCat("meet", size)), size, [&](int rank) { return TrainAs(rank, size, options); });
  }

  static void ExpectNear(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << i;
  }

  static void ExpectNear(const std::map<std::string, HostTensor>& a, const std::map<std::string, HostTensor>& b,
                         double tolerance) {
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, value] : a) {
      for (int64_t i = 0; i < value.size(); ++i) ASSERT_NEAR(value.At(i), b.at(name).At(i), tolerance) << name;
    }
  }

  void ExpectSame(SessionOptions options) const {
    options.import.float_type = DType::kFloat64;
    const Trained one = TrainAll(1, options)[0];
    ASSERT_TRUE(one.status.ok()) << one.status;
    for (const int size : {2, 3, 4}) {
      const std::vector<Trained> all = TrainAll(size, options);
      for (const Trained& t : all) {
        ASSERT_TRUE(t.status.ok()) << t.status;
        ExpectNear(t.losses, one.losses, 1e-12);
        ExpectNear(t.norms, one.norms, 1e-12);
      }
      ExpectNear(all.back().evaluated, one.evaluated, 1e-12);
      ExpectNear(all[0].weights, one.weights, 1e-12);
      ExpectNear(all[0].state, one.state, 1e-12);
      ExpectParts(ListParts(all), all[0].state);
      ExpectNear(all[0].averages, one.averages, 1e-12);
    }
  }

  std::string backend_ = "cpu";
  int64_t steps_ = kSteps;
  bool evaluates_ = true;
  int64_t broken_step_ = -1;  // the first stage gets a batch of another type
  std::map<std::string, HostTensor> restored_;
};

TEST(Schedule, KeepsNoMoreThanTheStagesBehind) {
  for (const int stages : {1, 2, 4}) {
    for (const int64_t micros : {1, 3, 16}) {
      for (int stage = 0; stage < stages; ++stage) {
        int64_t forward = 0, backward = 0;
        for (const PassOfMicro& pass : OneForwardOneBackward(stage, stages, micros)) {
          EXPECT_EQ(pass.micro, pass.backward ? backward : forward) << "in order";
          ++(pass.backward ? backward : forward);
          EXPECT_LE(forward - backward, InFlight(stage, stages, micros));
          EXPECT_LE(backward, forward);
        }
        EXPECT_EQ(forward, micros);
        EXPECT_EQ(backward, micros);
      }
    }
  }
}

TEST_F(Pipeline, TrainsTheModelOfOne) {
  Residual(false).Save(Path("m.onnx"));
  const OptimizerSpec sgd{.rule = "sgd", .lr = 0.1, .momentum = 0.9},
      adamw{.lr = 0.02, .weight_decay = 0.1, .max_grad_norm = 0.2};
  for (const OptimizerSpec& optimizer : {sgd, adamw}) {
    for (const int64_t micro : {kBatch, int64_t{3}}) ExpectSame({.optimizer = optimizer, .micro_batch = micro});
  }
}

TEST_F(Pipeline, TrainsTheModelOfOneOnTorch) {
  backend_ = "torch";
  Residual(false).Save(Path("m.onnx"));
  ExpectSame({.optimizer = {.lr = 0.02}, .micro_batch = 3});
}

TEST_F(Pipeline, KeepsAveragesAndStatistics) {
  Residual(true).Save(Path("m.onnx"));
  ExpectSame({.metrics = {"f1"}, .optimizer = {.lr = 0.02, .max_grad_norm = 1, .ema_decay = 0.9}, .micro_batch = 4});
}

TEST_F(Pipeline, UpdatesWholeWeights) {
  Residual(false).Save(Path("m.onnx"));
  ExpectSame({.optimizer = {.rule = "lamb", .lr = 0.02}, .micro_batch = 4});
}

TEST_F(Pipeline, FreezesWeightsOfAStage) {
  Residual(false).Save(Path("m.onnx"));
  ExpectSame({.trainable = {.train = {"v4", "w3"}}, .optimizer = {.lr = 0.02}, .micro_batch = 4});
}

TEST_F(Pipeline, KeepsAStageOnEachRank) {
  Residual(false).Save(Path("m.onnx"));
  const SessionOptions options{.optimizer = {.lr = 0.02}, .micro_batch = 4};
  const Trained one = TrainAll(1, options)[0];
  const std::vector<Trained> all = TrainAll(2, options);
  int64_t moments = 0;
  for (const Trained& t : all) {
    ASSERT_TRUE(t.status.ok()) << t.status;
    EXPECT_LT(t.memory.parameters, one.memory.parameters);
    moments += t.memory.moments;
  }
  EXPECT_EQ(moments, one.memory.moments) << "each moment is kept once";
}

// The first update is not counted.
TEST_F(Pipeline, TakesAndSendsWhatIsPlanned) {
  evaluates_ = false;
  steps_ = 3;
  Residual(false).Save(Path("m.onnx"));
  const SessionOptions options{.optimizer = {.lr = 0.02}, .micro_batch = 4};
  const auto backend = CreateBackend("cpu", {.threads = 1}).value();
  for (const int size : {2, 4}) {
    const auto models = std::make_shared<PreparedModels>(OnnxModel::Load(Path("m.onnx")).value());
    const auto plans = PlanStages(models, *backend, Complete(options, 0, size), kBatch);
    ASSERT_TRUE(plans.ok()) << plans.status();
    const std::vector<Trained> all = TrainAll(size, options);
    double share = 0;
    for (int rank = 0; rank < size; ++rank) {
      ASSERT_TRUE(all[rank].status.ok()) << all[rank].status;
      const StagePlan& plan = (*plans)[rank];
      EXPECT_EQ(all[rank].sent_bytes, 2 * plan.sent_bytes) << "stage " << rank << " of " << size;
      for (int64_t SessionMemory::*bytes : {&SessionMemory::parameters, &SessionMemory::gradients,
                                            &SessionMemory::moments, &SessionMemory::activations})
        EXPECT_EQ(all[rank].memory.*bytes, plan.memory.*bytes) << "stage " << rank << " of " << size;
      share += plan.time_share;
    }
    EXPECT_NEAR(share, 1, 1e-9);
  }
}

TEST_F(Pipeline, GoesOnFromTheStateOfOne) {
  Residual(false).Save(Path("m.onnx"));
  const SessionOptions options{.import = {.float_type = DType::kFloat64}, .optimizer = {.lr = 0.02}, .micro_batch = 4};
  const Trained whole = TrainAll(1, options)[0];
  steps_ = kSteps / 2;
  restored_ = TrainAll(1, options)[0].state;
  steps_ = kSteps;
  const Trained resumed = TrainAll(3, options)[0];
  ASSERT_TRUE(resumed.status.ok()) << resumed.status;
  ExpectNear(resumed.weights, whole.weights, 1e-12);
}

TEST_F(Pipeline, AllFailWithTheRankThatCannotComputeItsStage) {
  broken_step_ = 3;
  Residual(false).Save(Path("m.onnx"));
  SessionOptions options{.import = {.float_type = DType::kFloat64}, .micro_batch = 4};
  const std::vector<Trained> all = TrainAll(3, options);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(all[rank].losses.size(), 3);
    EXPECT_EQ(all[rank].status.code(), absl::StatusCode::kInvalidArgument) << all[rank].status;
    EXPECT_EQ(std::string(all[rank].status.message()).starts_with("rank 0: "), rank != 0) << all[rank].status;
  }
}

TEST_F(Pipeline, NeedsAsManyReadersOfWeightsAsStages) {
  tiny::Mlp(3).Save(Path("m.onnx"));
  for (const Trained& t : TrainAll(8, {.micro_batch = 4}))
    EXPECT_EQ(t.status.code(), absl::StatusCode::kInvalidArgument) << t.status;
}

}  // namespace
}  // namespace onnxtrain
