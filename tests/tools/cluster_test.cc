// The simulator of clusters, tools/bench/cluster.py, against the formulas of a ring.
#include <nlohmann/json.hpp>

#include "frontend/base/strings.h"
#include "tests/paths.h"
#include "tests/tools/run_scratch.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

class Cluster : public RunScratch {
 protected:
  // One bucket, of 1 MB. Of a 12 Gbit/s link, headers leave 1448/1514.
  static constexpr double kBytes = 1e6, kRate = 12e9 / 8 * 1448 / 1514, kLatency = 1e-3;

  Json Predict(const std::string& flags, int64_t gradient_bytes = static_cast<int64_t>(kBytes), double handling = 0) {
    const Json pieces = {{"batch", 8},
                         {"accumulation", 2},
                         {"forward", 0.2},
                         {"backward", 0.4},
                         {"update", 0.05},
                         {"other", 0.01},
                         {"gradient_bytes", gradient_bytes},
                         {"handling", handling}};
    WriteAll(Path("pieces.json"), pieces.dump());
    const std::string command =
        StrCat("python3 ", RepoPath("tools/bench/cluster.py"), " predict '", Path("pieces.json"),
               "' --link 12gbit --latency 1ms --json '", Path("out.json"), "' ", flags, " >'", Path("table"), "'");
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return Json::parse(ReadAll(Path("out.json")));
  }
};

TEST_F(Cluster, StepsAreThoseOfARing) {
  const Json rows = Predict("--ranks 1,4");
  EXPECT_NEAR(rows[0]["seconds"], 0.66, 1e-12) << "alone";
  EXPECT_EQ(rows[0]["exposed"], 0);
  const double reduce = 6 * (kLatency + kBytes / 4 / kRate), losses = 3 * (kLatency + 64 / kRate);
  EXPECT_NEAR(rows[1]["seconds"], 0.66 + reduce + losses, 1e-9) << "a single bucket is ready with the last gradient";
  EXPECT_NEAR(rows[1]["sent_bytes"], 1.5e6, 1e-6);
  EXPECT_NEAR(rows[1]["samples_per_second"], 32 / rows[1]["seconds"].get<double>(), 1e-9);
}

TEST_F(Cluster, MomentsThatAreDividedCostAGather) {
  const Json rows = Predict("--ranks 4 --shard optimizer --comm-dtype bf16");
  const double reduce = 6 * (kLatency + kBytes / 8 / kRate), losses = 3 * (kLatency + 64 / kRate);
  const double weights = 3 * (kLatency + kBytes / 4 / kRate);
  EXPECT_NEAR(rows[0]["seconds"], 0.61 + 0.05 / 4 + reduce + losses + weights, 1e-9);
  EXPECT_NEAR(rows[0]["sent_bytes"], 1.5e6, 1e-6);
}

// A nanosecond of its CPUs for each byte that a rank sends: 1.5 MB of gradients, or four times 0.75 MB of sums and
// gathers.
TEST_F(Cluster, HandlingBytesTakesTimeFromComputing) {
  const auto added = [&](const std::string& flags) {
    const double without = Predict(flags)[0]["seconds"];
    return Predict(flags, static_cast<int64_t>(kBytes), 1e-9)[0]["seconds"].get<double>() - without;
  };
  EXPECT_NEAR(added("--ranks 4"), 1.5e-3, 1e-9);
  EXPECT_NEAR(added("--ranks 4 --shard optimizer"), 1.5e-3 + 0.75e-3, 1e-9);
  EXPECT_NEAR(added("--ranks 4 --shard full"), 4 * 0.75e-3, 1e-9);
  EXPECT_NEAR(added("--ranks 1"), 0, 1e-12);
}

// Ten buckets of 4 MiB, each of which takes less than the backward pass between them.
TEST_F(Cluster, BucketsHideBehindTheBackwardPass) {
  const int64_t bucket = int64_t{4} << 20;
  const Json rows = Predict("--ranks 2", 10 * bucket);
  const double last = 2 * (kLatency + static_cast<double>(bucket) / 2 / kRate), losses = kLatency + 64 / kRate;
  EXPECT_NEAR(rows[0]["exposed"], last + losses, 1e-9);
  EXPECT_NEAR(rows[0]["communication"], 10 * last + losses, 1e-9);
}

// Two micro-batches, each of which sums the bucket that its end completes.
TEST_F(Cluster, GradientsThatAreDividedAreSummedInEveryMicroBatch) {
  const Json rows = Predict("--ranks 4 --shard gradients");
  const double sum = 3 * (kLatency + kBytes / 4 / kRate), losses = 3 * (kLatency + 64 / kRate);
  EXPECT_NEAR(rows[0]["seconds"], 0.61 + 0.05 / 4 + 2 * sum + losses + sum, 1e-9) << "and the weights";
  EXPECT_NEAR(rows[0]["sent_bytes"], 3 * 0.75e6, 1e-6);
}

// One weight, which is gathered before the forward pass and kept for the backward pass.
TEST_F(Cluster, OneWeightIsGatheredOncePerMicroBatch) {
  const Json rows = Predict("--ranks 4 --shard full");
  const double gather = 3 * (kLatency + kBytes / 4 / kRate), losses = 3 * (kLatency + 64 / kRate);
  EXPECT_NEAR(rows[0]["seconds"], 0.61 + 0.05 / 4 + 4 * gather + losses, 1e-9);
  EXPECT_NEAR(rows[0]["sent_bytes"], 4 * 0.75e6, 1e-6);
}

// Ten weights: all gathers but the first one hide behind the readers of the one before, and all sums but the last one.
TEST_F(Cluster, GathersHideBehindTheReadersOfTheWeightsBefore) {
  const int64_t bucket = int64_t{4} << 20;
  const Json rows = Predict("--ranks 2 --shard full", 10 * bucket);
  const double one = kLatency + static_cast<double>(bucket) / 2 / kRate, losses = kLatency + 64 / kRate;
  EXPECT_NEAR(rows[0]["exposed"], 2 * 2 * one + losses, 1e-9) << "in each of two micro-batches";
  EXPECT_NEAR(rows[0]["communication"], 2 * (19 + 10) * one + losses, 1e-9);
}

TEST_F(Cluster, PartsOfLayersWaitForEachSum) {
  WriteAll(Path("plan.json"), Json({{"tensor", 2},
                                    {"batch", 8},
                                    {"divided_elements", 75},
                                    {"trained_elements", 100},
                                    {"exchanges", 4},
                                    {"wire_bytes", 4e6}})
                                  .dump());
  const Json rows = Predict(StrCat("--plan '", Path("plan.json"), "'"));
  const double sum = 2 * (kLatency + 0.5e6 / kRate), losses = kLatency + 64 / kRate;
  EXPECT_NEAR(rows[0]["seconds"], 0.65 * (0.25 + 0.75 / 2) + 0.01 + 4 * sum + losses, 1e-9);
}

// Two stages of equal times and eight micro-batches: nine slots, and two messages until the first one is back.
TEST_F(Cluster, PipelinesFillAndDrain) {
  const Json stage = {{"time_share", 0.5}, {"wire_bytes", 16e6}};
  WriteAll(Path("plan.json"), Json({{"batch", 8}, {"accumulation", 8}, {"stages", {stage, stage}}}).dump());
  const Json rows = Predict(StrCat("--plan '", Path("plan.json"), "'"));
  const double message = kLatency + 1e6 / kRate, losses = kLatency + 64 / kRate;
  EXPECT_NEAR(rows[0]["seconds"], 0.3 / 8 * 9 + 2 * message + losses + 0.05 / 2 + 0.01, 1e-9);
}

// Eight ranks on one machine never use its link; sixteen cross it once.
TEST_F(Cluster, RanksOfAMachineUseTheirOwnEdges) {
  const Json rows = Predict("--ranks 8,16 --per-machine 8 --inside 120gbit --inside-latency 1us");
  EXPECT_NEAR(rows[0]["exposed"], 14 * (1e-6 + kBytes / 8 / (10 * kRate)) + 7 * (1e-6 + 64 / (10 * kRate)), 1e-9);
  EXPECT_NEAR(rows[1]["exposed"], 30 * (kLatency + kBytes / 16 / kRate) + 15 * (kLatency + 64 / kRate), 1e-9);
}

}  // namespace
}  // namespace onnxtrain
