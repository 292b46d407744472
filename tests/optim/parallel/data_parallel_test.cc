// The same run on 1, 2 and 4 ranks trains the same model. Ranks are threads with a session and Gloo connections each.
#include <cmath>
#include <map>
#include <optional>
#include <thread>

#include "backends/registry.h"
#include "frontend/base/strings.h"
#include "optim/parallel/data_parallel.h"
#include "optim/parallel/shard.h"
#include "optim/parallel/traffic.h"
#include "optim/step/global_batch.h"
#include "optim/step/session.h"
#include "tests/optim/parallel/blob_batches.h"
#include "tests/optim/parallel/local_device.h"
#include "tests/optim/parallel/rank_threads.h"
#include "tests/optim/parallel/small_models.h"
#include "tests/optim/parallel/state_of_parts.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

constexpr int kSteps = 12;

// 4 → 16 → dropout → 3.
tiny::Model WithDropout() {
  tiny::Model m = tiny::Mlp(3);
  m.nodes[3].inputs[0] = "dropped";
  m.nodes.insert(m.nodes.begin() + 3, {"Dropout", {"h"}, {"dropped"}});
  return m;
}

// What a rank has in the end.
struct Trained {
  std::map<std::string, HostTensor> weights;
  std::vector<double> losses, norms;
  absl::Status status;
  CommunicationTime time;
  std::map<std::string, HostTensor> others;  // that are saved: moments, counters
  NamedArrays parts;                         // of what is saved, as this rank writes it
  SessionMemory memory;
  Evaluation evaluated;         // of all ranks
  int64_t gathered_bytes = 0;   // of weights, by a first micro program
  ProgramTraffic traffic = {};  // of that program
};

class Ranks : public Scratch {
 protected:
  absl::StatusOr<std::unique_ptr<Session>> Open(Backend* backend, SessionOptions options) const {
    options.labels = {.present = true, .sample = {DType::kInt64, {}}, .min_value = 0, .max_value = 2};
    options.import.input_shapes["x"] = {-1, 4};
    return Session::Create(OnnxModel::Load(Path("m.onnx")).value(), backend, options);
  }

  Trained TrainAs(int rank, int size, const SessionOptions& options) const {
    const auto backend = MakeTestBackend(library_);
    auto session = Open(backend.get(), options);
    if (!session.ok()) return {.status = session.status()};
    std::unique_ptr<Collectives> ranks;
    std::optional<DataParallel> data_parallel;
    if (size > 1) {
      auto met = CreateCollectives(
          {.rank = rank, .size = size, .file = Path(StrCat("meet", size)), .interface = "127.0.0.1", .timeout = 20});
      if (!met.ok()) return {.status = met.status()};
      ranks = *std::move(met);
      EXPECT_TRUE(ranks->Barrier("met").ok());  // else one may still be connecting when the other has failed
      data_parallel.emplace(ranks.get(), (*session)->ExchangedSums(), parallel_);
      data_parallel->SetScratchFolder(folder_);
      const auto status = (*session)->Distribute(&*data_parallel, shard_);
      if (!status.ok()) return {.status = status};
    }
    Trained trained = Steps(**session, data_parallel ? &*data_parallel : nullptr, rank, options.import.float_type);
    if (data_parallel) trained.time = data_parallel->time();
    trained.memory = (*session)->memory();
    for (const ProgramProfile& profile : (*session)->Profile()) {
      if (std::string(profile.name) != "micro_first") continue;
      trained.gathered_bytes = CountGathered(profile.program->graph());
      trained.traffic = CountTraffic(profile.program->graph());
    }
    if (trained.status.ok() && (*session)->divides_moments()) trained.parts = ReadParts(**session);
    if (trained.status.ok()) trained.status = (*session)->GatherState();
    trained.weights = (*session)->Weights().value();
    const std::vector<StateTensor> state = (*session)->State().value();
    for (const StateTensor& tensor : state) {
      if (!tensor.of_model && tensor.region.view.buffer != nullptr)
        trained.others[tensor.name] = ReadRegion(tensor.region).value();
    }
    (*session)->ReleaseGathered();
    Evaluate(**session, data_parallel ? &*data_parallel : nullptr, options.import.float_type, &trained);
    return trained;
  }

  Trained Steps(Session& session, DataParallel* ranks, int rank, DType dtype) const {
    Trained trained;
    for (int step = 0; step < kSteps && trained.status.ok(); ++step) {
      const bool breaks = step == broken_step_ && rank == 1;
      const DType given = !breaks ? dtype : dtype == DType::kFloat64 ? DType::kFloat32 : DType::kFloat64;
      trained.status = session.Step(MakeBatch(step * kBatch % (kSamples + kSamples % kBatch), given));
      if (ranks != nullptr && trained.status.ok()) {
        if (step == changed_step_ && rank == 1) {
          auto weights = session.Weights().value();
          weights.at("w1").Set(5, weights.at("w1").At(5) + 1e-6);
          EXPECT_TRUE(session.SetWeights(weights).ok());
        }
        trained.status = ranks->CompareWeights(session);
      }
      const auto report = session.Report();
      trained.losses.push_back(report->loss);
      trained.norms.push_back(report->grad_norm);
    }
    return trained;
  }

  // Where the ranks divide weights, they evaluate together; or else each does it alone.
  static void Evaluate(Session& session, DataParallel* ranks, DType dtype, Trained* trained) {
    if (!trained->status.ok()) return;
    const auto evaluated = session.Evaluate(MakeBatch(kBatch, dtype));
    trained->status = evaluated.status();
    if (!evaluated.ok()) return;
    int64_t samples = 0;
    if (ranks == nullptr || !session.holds_partial_weights()) {
      trained->evaluated = *evaluated;
    } else {
      trained->status =
          GatherEvaluation(*ranks, absl::OkStatus(), session.metrics(), *evaluated, 0, &trained->evaluated, &samples);
    }
  }

  // Whatever becomes of them.
  std::vector<Trained> TrainAll(int size, const SessionOptions& options) const {
    return RunRanks(Path(StrCat("meet", size)), size, [&](int rank) { return TrainAs(rank, size, options); });
  }

  std::vector<Trained> Train(int size, const SessionOptions& options) const {
    const std::vector<Trained> trained = TrainAll(size, options);
    for (const Trained& t : trained) EXPECT_TRUE(t.status.ok()) << t.status;
    return trained;
  }

  static double GreatestDifference(const Trained& a, const Trained& b) {
    double greatest = 0;
    for (size_t i = 0; i < a.losses.size(); ++i) {
      greatest = std::max(greatest, std::abs(a.losses[i] - b.losses[i]));
      greatest = std::max(greatest, std::abs(a.norms[i] - b.norms[i]));
    }
    for (const auto& [name, value] : a.weights) {
      if (!b.weights.contains(name)) continue;  // divided, and gathered by rank 0 alone
      for (int64_t i = 0; i < value.size(); ++i)
        greatest = std::max(greatest, std::abs(value.At(i) - b.weights.at(name).At(i)));
    }
    return greatest;
  }

  void ExpectSame(SessionOptions options) const {
    options.import.float_type = DType::kFloat64;
    const Trained one = Train(1, options)[0];
    for (const int size : {2, 4}) {
      const std::vector<Trained> all = Train(size, options);
      EXPECT_EQ(one.weights.size(), all[0].weights.size());
      EXPECT_LT(GreatestDifference(one, all[0]), 1e-12) << size << " ranks";
      EXPECT_NEAR(all[0].evaluated.loss_sums.at(0), one.evaluated.loss_sums.at(0), 1e-11);
      EXPECT_EQ(all[0].evaluated.weights, one.evaluated.weights);
      EXPECT_EQ(all[0].evaluated.correct, one.evaluated.correct);
      EXPECT_EQ(all[0].evaluated.targets, one.evaluated.targets);
      std::map<std::string, HostTensor> saved = all[0].weights;
      saved.insert(all[0].others.begin(), all[0].others.end());
      if (shard_ != ShardLevel::kNone) ExpectParts(ListParts(all), saved);
      for (const Trained& t : all) {
        EXPECT_EQ(GreatestDifference(all[0], t), 0) << size << " ranks";
        EXPECT_EQ(t.time.updates, kSteps - 1);
        EXPECT_GE(t.time.seconds, 0);
        EXPECT_GT(t.time.exposed, 0) << "the exchange of losses hides behind nothing";
      }
    }
  }

  // As ExpectSame; compares all that is saved, too. Expects that each moment, and with kGradients each gradient, is
  // kept once.
  void ExpectDivided(const SessionOptions& options, ShardLevel level) {
    shard_ = ShardLevel::kNone;
    const Trained one = Train(1, options)[0];
    shard_ = level;
    ExpectSame(options);
    for (const int size : {2, 3}) {
      const std::vector<Trained> all = Train(size, options);
      EXPECT_EQ(all[0].others.size(), one.others.size());
      EXPECT_LT(all[1].others.size(), one.others.size()) << "only rank 0 gathers";
      int64_t moments = 0, gradients = 0;
      for (const Trained& t : all) moments += t.memory.moments, gradients += t.memory.gradients;
      EXPECT_LE(moments, one.memory.moments) << "each moment is kept once";
      EXPECT_GT(moments, one.memory.moments * 8 / 10);
      EXPECT_LT(all[0].memory.moments, one.memory.moments);
      if (level >= ShardLevel::kGradients) {
        EXPECT_LE(gradients, one.memory.gradients + size * 64) << "and a norm";
      }
      for (const auto& [name, value] : one.others) {
        for (int64_t i = 0; i < value.size(); ++i)
          EXPECT_NEAR(all[0].others.at(name).At(i), value.At(i), 1e-12) << name;
      }
    }
  }

  std::string library_ = "cpu";
  ShardLevel shard_ = ShardLevel::kNone;
  DataParallelOptions parallel_;
  int broken_step_ = -1;   // rank 1 gets a batch of another type
  int changed_step_ = -1;  // a weight of rank 1 changes after it
};

TEST_F(Ranks, TrainTheModelOfOneWithDropout) {
  WithDropout().Save(Path("m.onnx"));
  const OptimizerSpec sgd{.rule = "sgd", .lr = 0.1, .momentum = 0.9}, adamw{.lr = 0.02, .weight_decay = 0.1};
  for (const OptimizerSpec& optimizer : {sgd, adamw}) {
    for (const int64_t micro : {kBatch, int64_t{4}, int64_t{5}})
      ExpectSame({.optimizer = optimizer, .micro_batch = micro});
  }
}

TEST_F(Ranks, TrainTheModelOfOneOnDevices) {
  library_ = kLocalDevice;
  WithDropout().Save(Path("m.onnx"));
  for (const size_t bytes : {size_t{1}, size_t{1} << 20}) {
    parallel_.bucket_bytes = bytes;
    ExpectSame({.optimizer = {.lr = 0.02}, .micro_batch = 4});
  }
}

// Every gradient is summed by itself, as soon as it is complete.
TEST_F(Ranks, TrainTheModelOfOneWithSmallBuckets) {
  parallel_.bucket_bytes = 1;
  WithDropout().Save(Path("m.onnx"));
  for (const int64_t micro : {kBatch, int64_t{3}}) ExpectSame({.optimizer = {.lr = 0.02}, .micro_batch = micro});
}

// Slices are multiples of 64 elements: with 4 ranks some have nothing to update.
TEST_F(Ranks, TrainTheModelOfOneWithDividedState) {
  WithDropout().Save(Path("m.onnx"));
  const OptimizerSpec sgd{.rule = "sgd", .lr = 0.1, .momentum = 0.9},
      adamw{.lr = 0.02, .weight_decay = 0.1, .max_grad_norm = 0.5};
  for (const OptimizerSpec& optimizer : {sgd, adamw}) {
    for (const ShardLevel level : {ShardLevel::kOptimizer, ShardLevel::kGradients})
      ExpectDivided({.import = {.float_type = DType::kFloat64}, .optimizer = optimizer, .micro_batch = 4}, level);
  }
}

// Pieces of 64 elements, which cut weights; micro-batches of which ranks have different numbers; pieces of them.
TEST_F(Ranks, TrainTheModelOfOneWithGradientsInSmallPieces) {
  shard_ = ShardLevel::kGradients;
  parallel_.bucket_bytes = 1;
  for (const std::string library : {"cpu", "torch"}) {
    library_ = library;
    WithDropout().Save(Path("m.onnx"));
    for (const int64_t micro : {kBatch, int64_t{3}}) ExpectSame({.optimizer = {.lr = 0.02}, .micro_batch = micro});
    WithBatchNorm().Save(Path("m.onnx"));
    ExpectSame({.optimizer = {.rule = "sgd", .lr = 0.01, .momentum = 0.9}, .micro_batch = 2, .fixed_batch = 2});
  }
}

// The memory of a layer's gradient is that of another one's, once it is sent.
TEST_F(Ranks, GradientsThatAreSentShareMemory) {
  tiny::Mlp(3).Save(Path("m.onnx"));
  parallel_.bucket_bytes = 1;
  const auto exchanged = [&](ShardLevel level) {
    shard_ = level;
    return Train(2, {.micro_batch = 8})[0].memory.feeds;
  };
  const int64_t gradients = exchanged(ShardLevel::kGradients) - exchanged(ShardLevel::kNone);
  EXPECT_GE(gradients, 256) << "that of w1";
  EXPECT_LT(gradients, 256 + 64 + 192 + 64);
}

// Weights and gradients of two groups, of 112 and 19 elements, are slices of 64 float32: 1024 bytes. Of the updates
// that count, 10 have two rounds, and one, of two samples, has one.
TEST_F(Ranks, SendWhatTheFormulaSays) {
  tiny::Mlp(3).Save(Path("m.onnx"));
  shard_ = ShardLevel::kGradients;
  const auto sent = [](int64_t rounds, bool rounded) {
    return SentBytes({.ranks = 2,
                      .gradient_bytes = 1024,
                      .send_bf16 = rounded,
                      .shard = ShardLevel::kGradients,
                      .rounds_of_micros = rounds});
  };
  for (const bool rounded : {false, true}) {
    parallel_.send_bf16 = rounded;
    const std::vector<Trained> all = Train(2, {.optimizer = {.rule = "sgd", .lr = 0.1}, .micro_batch = 4});
    EXPECT_EQ(all[0].time.sent_bytes, 10 * sent(2, rounded) + sent(1, rounded));
  }
}

// Rows that are exact and rows that are padded; weights that stay whole beside others; micro-batches of which ranks
// have different numbers, and the last batch, of which some have none.
TEST_F(Ranks, TrainTheModelOfOneWithDividedWeights) {
  const OptimizerSpec sgd{.rule = "sgd", .lr = 0.1, .momentum = 0.9},
      adamw{.lr = 0.02, .weight_decay = 0.1, .max_grad_norm = 0.5};
  for (const std::string library : {"cpu", "torch"}) {
    library_ = library;
    for (const size_t bytes : {1, 512, 4096, 1 << 16}) {
      parallel_.bucket_bytes = bytes;
      // Of the larger layers small pieces would take minutes.
      const auto models = bytes > 4096 ? std::vector{Stack(6, 112)} : std::vector{WithDropout(), Stack(4)};
      for (const tiny::Model& model : models) {
        model.Save(Path("m.onnx"));
        const OptimizerSpec& optimizer = bytes == 512 ? sgd : adamw;
        const int64_t micro = bytes == 1 ? kBatch : 3;
        ExpectDivided({.import = {.float_type = DType::kFloat64}, .optimizer = optimizer, .micro_batch = micro},
                      ShardLevel::kFull);
      }
    }
  }
}

TEST_F(Ranks, TrainTheModelOfOneWithDividedWeightsAndBatchNorm) {
  shard_ = ShardLevel::kFull;
  parallel_.bucket_bytes = 64;
  WithBatchNorm().Save(Path("m.onnx"));
  ExpectSame({.optimizer = {.rule = "sgd", .lr = 0.01, .momentum = 0.9}, .micro_batch = 2, .fixed_batch = 2});
}

// Each weight is kept once, and is whole only around its uses.
TEST_F(Ranks, HoldDividedWeightsOnlyWhereTheyAreRead) {
  constexpr int kLayers = 10;
  constexpr int64_t kWeight = int64_t{48} * 48 * 4;
  Stack(kLayers).Save(Path("m.onnx"));
  parallel_.bucket_bytes = 256;
  const auto memory = [&](ShardLevel level) {
    shard_ = level;
    return Train(2, {.micro_batch = 8})[0].memory;
  };
  const SessionMemory whole = memory(ShardLevel::kGradients), divided = memory(ShardLevel::kFull);
  EXPECT_LT(divided.parameters, whole.parameters * 52 / 100);
  EXPECT_GE(divided.parameters, whole.parameters / 2);
  EXPECT_LT(divided.activations - whole.activations, 3 * kWeight) << "of " << kLayers - 2;
  EXPECT_LE(divided.packed, whole.packed);
}

// What a rank sends is what its plan says.
TEST_F(Ranks, SendWhatTheFormulaSaysWithDividedWeights) {
  Stack(5).Save(Path("m.onnx"));
  shard_ = ShardLevel::kFull;
  parallel_.bucket_bytes = 1024;  // w1, of 768 bytes, and w5, of 576, are whole: two pieces
  const Trained trained = Train(2, {.optimizer = {.rule = "sgd", .lr = 0.1}, .micro_batch = 4})[0];
  constexpr int64_t kDivided = 3 * int64_t{48} * 48 * 4;
  EXPECT_EQ(trained.gathered_bytes, kDivided);
  const auto sent = [&](int64_t rounds) {
    return SentBytes({.ranks = 2,
                      .gradient_bytes = kDivided + 1024 + 1024,
                      .shard = ShardLevel::kFull,
                      .rounds_of_micros = rounds,
                      .divided_bytes = kDivided,
                      .graph_bytes = trained.traffic.bytes});
  };
  EXPECT_EQ(trained.traffic.exchanges, 4) << "those of the end of the forward pass are kept for its gradient";
  EXPECT_EQ(trained.traffic.bytes, 4 * kDivided / 3 / 2);
  EXPECT_EQ(trained.time.sent_bytes, 10 * sent(2) + sent(1));
}

// Slices have whole blocks of 256 elements, so that codes and scales are those of one rank. w1 ends within a block; the
// others have moments of floats.
TEST_F(Ranks, DivideMomentsOf8Bits) {
  constexpr int64_t kInner = 1051;
  tiny::Model m = tiny::Mlp(3);
  m.weights[0] = {"w1", {4, kInner}, tiny::Uniform(4 * kInner, 0.5F, 1)};
  m.weights[1] = {"b1", {kInner}, tiny::Uniform(kInner, 0.1F, 2)};
  m.weights[2] = {"w2", {kInner, 3}, tiny::Uniform(kInner * 3, 0.05F, 3)};
  m.Save(Path("m.onnx"));
  const SessionOptions options{
      .import = {.float_type = DType::kFloat64},
      .optimizer = {.rule = "adamw8bit", .lr = 0.001, .weight_decay = 0.1, .max_grad_norm = 0.5},
      .micro_batch = 4};
  const Trained one = Train(1, options)[0];
  ASSERT_TRUE(one.others.contains("$exp_avg_scale:w1"));
  for (const ShardLevel level : {ShardLevel::kOptimizer, ShardLevel::kGradients, ShardLevel::kFull}) {
    for (const size_t bytes : {size_t{1}, size_t{1} << 14}) {
      SCOPED_TRACE(StrCat(ShardName(level), ", pieces of ", bytes, " bytes"));
      shard_ = level;
      parallel_.bucket_bytes = bytes;
      ExpectSame(options);
      const std::vector<Trained> all = Train(3, options);
      ASSERT_EQ(all[0].others.size(), one.others.size());
      int64_t moments = 0;
      for (const Trained& t : all) moments += t.memory.moments;
      EXPECT_LT(moments, 1.2 * one.memory.moments) << "each moment is kept once, but for padding";
      for (const auto& [name, value] : one.others) {
        ASSERT_EQ(all[0].others.at(name).type(), value.type()) << name;
        for (int64_t i = 0; i < value.size(); ++i)
          ASSERT_NEAR(all[0].others.at(name).At(i), value.At(i), 1e-12) << name << " " << i;
      }
    }
  }
}

TEST_F(Ranks, RefuseToDivideWhatReadsWholeWeights) {
  tiny::Mlp(3).Save(Path("m.onnx"));
  for (const OptimizerSpec& optimizer :
       {OptimizerSpec{.rule = "lamb"}, OptimizerSpec{.agc = 0.1}, OptimizerSpec{.ema_decay = 0.9}}) {
    shard_ = ShardLevel::kOptimizer;
    for (const Trained& t : TrainAll(2, {.optimizer = optimizer, .micro_batch = 4}))
      EXPECT_EQ(t.status.code(), absl::StatusCode::kInvalidArgument) << t.status;
  }
  shard_ = ShardLevel::kGradients;
  for (const Trained& t : TrainAll(2, {.micro_batch = 4, .deterministic = true}))
    EXPECT_EQ(t.status.code(), absl::StatusCode::kInvalidArgument) << t.status;
}

TEST(Shards, CoverEveryElementOnce) {
  for (const int64_t elements : {0, 1, 64, 65, 1000, 4096}) {
    for (const int size : {1, 2, 3, 7}) {
      int64_t next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const ShardRange range = RangeOf(elements, {rank, size});
        EXPECT_EQ(range.begin, next);
        EXPECT_TRUE(range.size() == 0 || range.begin == rank * SliceElements(elements, size));
        next = range.end;
      }
      EXPECT_EQ(next, elements);
    }
  }
}

TEST_F(Ranks, AllFailWithTheRankThatCannotComputeItsGradient) {
  parallel_.bucket_bytes = 1;
  broken_step_ = 3;
  tiny::Mlp(3).Save(Path("m.onnx"));
  for (const ShardLevel level : {ShardLevel::kNone, ShardLevel::kGradients, ShardLevel::kFull}) {
    shard_ = level;
    const std::vector<Trained> all = TrainAll(3, {.micro_batch = 2});
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(all[rank].losses.size(), 4);
      EXPECT_EQ(all[rank].status.code(), absl::StatusCode::kInvalidArgument) << all[rank].status;
      EXPECT_EQ(std::string(all[rank].status.message()).starts_with("rank 1: "), rank != 1) << all[rank].status;
    }
    EXPECT_EQ(GreatestDifference(all[0], all[2]), 0);
  }
}

TEST_F(Ranks, AllFindTheRankWhoseWeightsDiffer) {
  changed_step_ = 4;
  tiny::Mlp(3).Save(Path("m.onnx"));
  const std::vector<Trained> all = TrainAll(3, {.micro_batch = 4});
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(all[rank].losses.size(), 5);
    EXPECT_EQ(all[rank].status.code(), absl::StatusCode::kDataLoss) << all[rank].status;
    EXPECT_EQ(all[rank].status.message(), "after update 5 the weights differ from those of rank 0 on rank 1");
  }
}

TEST_F(Ranks, TrainTheModelOfOneWithClippingAndAverages) {
  tiny::Mlp(3).Save(Path("m.onnx"));
  ExpectSame({.loss = {.class_weights = {1, 2, 3}},
              .optimizer = {.lr = 0.05, .max_grad_norm = 0.1, .ema_decay = 0.9},
              .schedule = {.name = "cosine", .warmup = 2, .total_steps = 12},
              .micro_batch = 8});
}

// Whole micro-batches have the statistics of one rank, and the running ones are made of as many steps. The last batch
// is one micro-batch: with 2 or 4 ranks only one has samples. A large epsilon keeps AdamW from dividing gradients that
// are zero but for rounding by their own size.
TEST_F(Ranks, TrainTheModelOfOneWithBatchNorm) {
  WithBatchNorm().Save(Path("m.onnx"));
  const OptimizerSpec sgd{.rule = "sgd", .lr = 0.01, .momentum = 0.9},
      adamw{.lr = 0.002, .eps = 1e-2, .weight_decay = 0.1};
  for (const std::string library : {"cpu", "torch"}) {
    library_ = library;
    for (const OptimizerSpec& optimizer : {sgd, adamw})
      ExpectSame({.optimizer = optimizer, .micro_batch = 2, .fixed_batch = 2});
  }
}

// Whole batches in one round: their statistics are those of one rank. The last batch leaves 2 of 4 ranks without a
// sample, and ranks with one sample have no variance of their own.
TEST_F(Ranks, TrainTheModelOfOneWithSyncBatchNorm) {
  WithBatchNorm().Save(Path("m.onnx"));
  const OptimizerSpec sgd{.rule = "sgd", .lr = 0.01, .momentum = 0.9},
      adamw{.lr = 0.002, .eps = 1e-2, .weight_decay = 0.1};
  for (const std::string library : {"cpu", "torch"}) {
    library_ = library;
    for (const ShardLevel level : {ShardLevel::kNone, ShardLevel::kGradients}) {
      shard_ = library == "cpu" ? level : ShardLevel::kNone;
      for (const OptimizerSpec& optimizer : {sgd, adamw})
        ExpectSame({.optimizer = optimizer, .micro_batch = kBatch, .sync_batch_norm = true});
    }
  }
}

// Without it, they are those of each rank's samples.
TEST_F(Ranks, SyncBatchNormChangesTheStatistics) {
  WithBatchNorm().Save(Path("m.onnx"));
  const SessionOptions options{.optimizer = {.rule = "sgd", .lr = 0.01}, .micro_batch = kBatch};
  EXPECT_GT(GreatestDifference(Train(1, options)[0], Train(2, options)[0]), 1e-4);
}

// Ranks have one or two micro-batches, or none.
// A row of means, squared deviations and a count of 16 channels, in every round. Of the updates that count, one has
// two: ten samples are two micro-batches, of one of which both ranks have samples.
TEST_F(Ranks, SyncBatchNormCountsItsBytes) {
  WithBatchNorm().Save(Path("m.onnx"));
  const auto sent = [&](bool sync) {
    return Train(2, {.optimizer = {.lr = 0.02}, .micro_batch = 8, .sync_batch_norm = sync})[0].time.sent_bytes;
  };
  EXPECT_EQ(sent(true) - sent(false), kSteps * 2 * int64_t{33} * 4) << "forward and backward";
}

TEST_F(Ranks, SyncBatchNormInRoundsOfMicroBatches) {
  WithBatchNorm().Save(Path("m.onnx"));
  for (const ShardLevel level : {ShardLevel::kNone, ShardLevel::kGradients}) {
    shard_ = level;
    const std::vector<Trained> all = Train(3, {.micro_batch = 4, .sync_batch_norm = true});
    for (const Trained& t : all) {
      EXPECT_EQ(GreatestDifference(all[0], t), 0);
      EXPECT_LT(t.losses.back(), t.losses.front());
    }
  }
}

TEST_F(Ranks, AllFailWithTheRankThatCannotTakePartInSyncBatchNorm) {
  broken_step_ = 3;
  WithBatchNorm().Save(Path("m.onnx"));
  for (const ShardLevel level : {ShardLevel::kNone, ShardLevel::kGradients}) {
    shard_ = level;
    for (const Trained& t : TrainAll(3, {.micro_batch = 4, .sync_batch_norm = true})) {
      EXPECT_EQ(t.losses.size(), 4);
      EXPECT_EQ(t.status.code(), absl::StatusCode::kInvalidArgument) << t.status;
    }
  }
}

// Pieces of a micro-batch make one step together. With weights that stay as they are, their means are those of the
// whole, but their variances are not.
TEST_F(Ranks, AverageThePiecesOfMicroBatches) {
  WithBatchNorm().Save(Path("m.onnx"));
  for (const int64_t micro : {int64_t{3}, int64_t{5}, kBatch}) {
    SessionOptions options{.optimizer = {.rule = "sgd", .lr = 0}, .micro_batch = micro};
    options.import.float_type = DType::kFloat64;
    const Trained one = Train(1, options)[0];
    for (const int size : {2, 3, 4}) {
      const Trained some = Train(size, options)[0];
      for (int64_t i = 0; i < 16; ++i) {
        EXPECT_NEAR(some.weights.at("mean").At(i), one.weights.at("mean").At(i), 1e-12) << micro << ", " << size;
        EXPECT_NEAR(some.weights.at("var").At(i), one.weights.at("var").At(i), 0.3) << micro << ", " << size;
      }
    }
  }
}

// As Step does, which takes both halves at once.
TEST_F(Ranks, InOrderAverageWhatIsAccumulated) {
  WithBatchNorm().Save(Path("m.onnx"));
  const auto average = [&](bool in_order) {
    SessionOptions options{.optimizer = {.lr = 0.02}, .micro_batch = 4, .deterministic = in_order};
    const auto backend = CreateBackend("cpu", {.threads = 1}).value();
    const auto session = Open(backend.get(), options).value();
    for (int step = 0; step < 3; ++step) {
      EXPECT_TRUE(session->Accumulate(MakeBatch(0, DType::kFloat32)).ok());
      EXPECT_TRUE(session->Accumulate(MakeBatch(kBatch, DType::kFloat32)).ok());
      EXPECT_TRUE(session->Apply().ok());
    }
    return session->Weights().value();
  };
  const auto usual = average(false), in_order = average(true);
  for (const auto& [name, value] : usual) {
    for (int64_t i = 0; i < value.size(); ++i) EXPECT_NEAR(in_order.at(name).At(i), value.At(i), 1e-6) << name;
  }
}

// In float32. Of the batches of 16, micro-batches of 3 are 6; the last batch has one, for one rank.
TEST_F(Ranks, TrainTheBitsOfOneInOrder) {
  const OptimizerSpec sgd{.rule = "sgd", .lr = 0.1, .momentum = 0.9}, adamw{.lr = 0.02, .max_grad_norm = 0.5};
  for (const bool normalizes : {false, true}) {
    (normalizes ? WithBatchNorm() : WithDropout()).Save(Path("m.onnx"));
    for (const OptimizerSpec& optimizer : {sgd, adamw}) {
      const SessionOptions options{.optimizer = optimizer, .micro_batch = 3, .deterministic = true};
      shard_ = ShardLevel::kNone;
      const Trained one = Train(1, options)[0];
      for (const int size : {2, 3, 4}) {
        shard_ = size == 3 ? ShardLevel::kOptimizer : ShardLevel::kNone;
        for (const Trained& t : Train(size, options)) EXPECT_EQ(GreatestDifference(one, t), 0) << size << " ranks";
      }
    }
  }
}

TEST_F(Ranks, InOrderTrainTheModelOfOneThatIsNot) {
  for (const bool normalizes : {false, true}) {
    (normalizes ? WithBatchNorm() : WithDropout()).Save(Path("m.onnx"));
    SessionOptions options{
        .import = {.float_type = DType::kFloat64}, .optimizer = {.rule = "sgd", .lr = 0.02}, .micro_batch = 3};
    const Trained usual = Train(1, options)[0];
    options.deterministic = true;
    EXPECT_LT(GreatestDifference(usual, Train(1, options)[0]), 1e-12);
  }
}

TEST_F(Ranks, SendHalfTheBytesRounded) {
  tiny::Mlp(3).Save(Path("m.onnx"));
  const SessionOptions options{.optimizer = {.rule = "sgd", .lr = 0.1}, .micro_batch = 4};
  for (const ShardLevel level : {ShardLevel::kNone, ShardLevel::kGradients}) {
    shard_ = level;
    parallel_.send_bf16 = false;
    const std::vector<Trained> exact = Train(2, options);
    parallel_.send_bf16 = true;
    const std::vector<Trained> rounded = Train(2, options);
    EXPECT_EQ(GreatestDifference(rounded[0], rounded[1]), 0);
    const double difference = GreatestDifference(exact[0], rounded[0]);
    EXPECT_GT(difference, 1e-6) << "nothing was rounded";
    EXPECT_LT(difference, 0.02);
    if (level == ShardLevel::kNone) {
      EXPECT_EQ(2 * rounded[0].time.sent_bytes, exact[0].time.sent_bytes);
    }
  }
}

TEST(ShardChoice, IsTheFirstThatTakesHalfTheMemory) {
  ShardOptions options{.ranks = 4, .whole = {.parameters = 100, .gradients = 100, .moments = 200}};
  const auto choose = [&](int64_t available) {
    options.available = available;
    return ShardName(ChooseShardLevel(options));
  };
  EXPECT_EQ(choose(800), "none");
  EXPECT_EQ(choose(799), "optimizer");
  EXPECT_EQ(choose(500), "optimizer");
  EXPECT_EQ(choose(499), "gradients");
  EXPECT_EQ(choose(350), "gradients");
  EXPECT_EQ(choose(349), "full");
  EXPECT_EQ(choose(1), "full");
  options.may_divide_gradients = false;
  EXPECT_EQ(choose(1), "optimizer");
  options.may_divide = false;
  EXPECT_EQ(choose(1), "none");
}

TEST(Shares, CoverTheBatchInWholeUnits) {
  for (const int64_t unit : {1, 4}) {
    for (const int64_t units : {1, 2, 7, 64}) {
      int64_t next = 0, largest = 0;
      for (int rank = 0; rank < 4; ++rank) {
        const SampleRange share = ShareOfRank(units * unit, unit, rank, 4);
        EXPECT_EQ(share.begin, next);
        EXPECT_EQ((share.end - share.begin) % unit, 0);
        EXPECT_LE(share.end - share.begin, LargestShare(units * unit, unit, 4));
        largest = std::max(largest, share.end - share.begin);
        next = share.end;
      }
      EXPECT_EQ(largest, LargestShare(units * unit, unit, 4));
      EXPECT_EQ(next, units * unit);
    }
  }
}

}  // namespace
}  // namespace onnxtrain
