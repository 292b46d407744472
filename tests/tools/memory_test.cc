// Budgets, plans, micro-batches that fit, and memory that runs out.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "backends/registry.h"
#include "frontend/base/strings.h"
#include "optim/step/program/planning_backend.h"
#include "optim/step/session.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

using tiny::kDeepLayers, tiny::kDeepWidth;

class Memory : public Scratch {
 protected:
  Memory() { tiny::Deep(false).Save(Path("m.onnx")); }

  Json Planned(const std::string& flags) {
    const Outcome o = RunProcess("plan --model m.onnx --backend cpu --threads 1 --json " + flags);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? Json::parse(o.out) : Json();
  }
  // Synthetic data, three updates.
  Json Trained(const std::string& flags) {
    const Outcome o = RunProcess(
        "--model m.onnx --backend cpu --threads 1 --max-steps 3 --json --quiet --overwrite --out r " + flags);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? Json::parse(o.out) : Json();
  }
};

TEST_F(Memory, PlanCountsEverything) {
  const Json plan = Planned("--batch-size 4096 --plot live.svg");
  int64_t sum = 0;
  for (const auto& [name, bytes] : plan["memory"].items()) sum += bytes.get<int64_t>();
  EXPECT_EQ(plan["peak_bytes"], sum);
  const int64_t weights = (kDeepLayers * (kDeepWidth + 1) * kDeepWidth + (kDeepWidth + 1) * 4) * 4;
  EXPECT_NEAR(plan["memory"]["parameters"].get<double>(), weights, 64 * 30);
  EXPECT_NEAR(plan["memory"]["moments"].get<double>(), 2 * weights, 2 * 64 * 30);
  EXPECT_LE(plan["arena_bytes"].get<double>(), 1.02 * plan["arena_lower_bound_bytes"].get<double>());
  EXPECT_GT(plan["budgets"].size(), 3u);
  for (size_t i = 1; i < plan["budgets"].size(); ++i) {
    EXPECT_LT(plan["budgets"][i]["bytes"], plan["budgets"][i - 1]["bytes"]);
    EXPECT_GE(plan["budgets"][i]["time"], plan["budgets"][i - 1]["time"]);
  }
  const std::string svg = ReadAll(Path("live.svg"));
  EXPECT_TRUE(svg.starts_with("<svg") && svg.find("saved for backward") != std::string::npos);
  EXPECT_NE(RunProcess("plan --model m.onnx --batch-size 64").out.find("parameters"), std::string::npos);
}

// The variable limits our kernels as it does those of oneDNN.
TEST_F(Memory, TilesAreTurnedOffWithThoseOfOneDnn) {
  tiny::Wide().Save(Path("m.onnx"));
  setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", 1);
  const Outcome o = RunProcess("bench --model m.onnx --batch-size 2048 --backend cpu --steps-only --max-steps 1");
  unsetenv("ONEDNN_MAX_CPU_ISA");
  EXPECT_NE(o.out.find("vector kernels for "), std::string::npos) << o.err;
  EXPECT_EQ(o.out.find("AMX"), std::string::npos) << o.out;
}

#ifndef __SANITIZE_ADDRESS__  // which takes memory for itself
TEST_F(Memory, MeasuredIsPredicted) {
  tiny::Wide().Save(Path("m.onnx"));
  // With AVX2, products take memory from the heap.
  for (const char* isa : {"ALL", "AVX2"}) {
    setenv("ONEDNN_MAX_CPU_ISA", isa, 1);
    for (const char* flags : {"--batch-size 2048", "--batch-size 4096 --micro-batch-size 2048",
                              "--batch-size 2048 --memory-budget 260MiB"}) {
      const Json run = Trained(flags);
      const double planned = run["planned_peak_bytes"], measured = run["measured_peak_bytes"];
      EXPECT_GT(measured, 150 << 20) << flags;
      EXPECT_NEAR(planned, measured, std::max(0.02 * measured, 16.0 * (1 << 20))) << isa << " " << flags;
    }
  }
  unsetenv("ONEDNN_MAX_CPU_ISA");
}
#endif

TEST_F(Memory, PlanIsThatOfOneOfSeveralRanks) {
  const std::string step = "--batch-size 16384 --micro-batch-size 1024 ";
  const Json one = Planned(step + "--save-every end")["memory"], four = Planned(step + "--world 4")["memory"];
  const Json divided = Planned(step + "--world 4 --shard optimizer");
  EXPECT_EQ(four["moments"], one["moments"]);
  EXPECT_NEAR(divided["memory"]["moments"].get<double>(), one["moments"].get<double>() / 4, 16 * 1024);
  EXPECT_EQ(divided["memory"]["gradients"], four["gradients"]);
  EXPECT_EQ(divided["wire_bytes"], 3 * four["gradients"].get<int64_t>() * 3 / 4);
  const Json gradients = Planned(step + "--world 4 --shard gradients");
  EXPECT_NEAR(gradients["memory"]["gradients"].get<double>(), four["gradients"].get<double>() / 4, 16 * 1024);
  EXPECT_GT(gradients["memory"]["sums"], 0) << "pieces that are sent";
  EXPECT_LE(four["activations"], one["activations"]);
  EXPECT_LT(Planned("--batch-size 4096 --world 4")["memory"]["activations"],
            Planned("--batch-size 4096")["memory"]["activations"]);
  // Rank 0 copies weights and moments, which are twice as large, for a checkpoint; else each rank its part of them.
  // All have the library of communication.
  const double state = 3 * one["moments"].get<double>() / 2, alone = one["host"].get<double>() + (140 << 20);
  EXPECT_NEAR(four["host"].get<double>() - alone, state, 0.02 * state);
  EXPECT_NEAR(divided["memory"]["host"].get<double>() - alone, state / 4, 0.02 * state);
  EXPECT_NE(RunProcess("plan --model m.onnx --shard optimizer").err.find("has no effect on one rank"),
            std::string::npos);
  EXPECT_NE(RunProcess("plan --model m.onnx --world 2 --shard optimizer").out.find("moments divided"),
            std::string::npos);
}

TEST_F(Memory, PlanOfDividedWeights) {
  tiny::Wide().Save(Path("m.onnx"));
  const std::string step = "--batch-size 64 --world 4 --shard ";
  const Json gradients = Planned(step + "gradients"), full = Planned(step + "full");
  const double whole = gradients["memory"]["parameters"];
  EXPECT_NEAR(full["memory"]["parameters"].get<double>(), whole / 4, 64 * 1024);
  EXPECT_EQ(full["memory"]["packed"], 0) << "packed weights would be whole";
  EXPECT_LT(full["peak_bytes"], gradients["peak_bytes"]);
  EXPECT_NEAR(full["gathered_bytes"].get<double>(), whole, 64 * 1024) << "for the model that rank 0 writes";
  EXPECT_EQ(full["wire_bytes"], gradients["wire_bytes"]) << "gathered once in a step, and not after it";
}

TEST_F(Memory, RecomputingChangesNoBit) {
  const Json plan = Planned("--batch-size 4096");
  const Json none = Trained("--batch-size 4096 --gradient-checkpointing none");
  const auto& budgets = plan["budgets"];
  for (size_t i : {budgets.size() / 2, budgets.size() - 1}) {
    // Training holds more batches than a plan: they are part of the budget.
    const int64_t batches = none["planned_peak_bytes"].get<int64_t>() - plan["peak_bytes"].get<int64_t>();
    const int64_t budget = (budgets[i]["bytes"].get<int64_t>() + batches) * 100 / 95 + 64;
    const Json run = Trained(StrCat("--batch-size 4096 --memory-budget ", budget));
    EXPECT_EQ(run["final_loss"], none["final_loss"]);
    EXPECT_LT(run["planned_peak_bytes"], none["planned_peak_bytes"]);
    EXPECT_LE(run["planned_peak_bytes"], budget);
  }
  for (const char* mode : {"sqrt", "all"}) {
    const Json run = Trained(StrCat("--batch-size 4096 --gradient-checkpointing ", mode));
    EXPECT_EQ(run["final_loss"], none["final_loss"]) << mode;
  }
}

// Gradients wait for the norm of all, in a file if memory has no room for them.
class Offloading : public Memory {
 protected:
  Offloading() { tiny::Wide({1024, 1024, 1024, 1024, 1024, 1024, 1024, 16}).Save(Path("m.onnx")); }

  const std::string kFlags = "--batch-size 16 --micro-batch-size 16 --optimizer-in-backward no ";
  // Returns the MiB that a run whose budget is too small names.
  int64_t LeastBudget(const std::string& flags) {
    const Outcome o =
        RunProcess(StrCat("--model m.onnx --backend cpu --threads 1 --max-steps 3 --quiet --overwrite --out r ", kFlags,
                          "--memory-budget 1MiB --activation-offloading ", flags));
    const std::string_view says = "the smallest that does is ";
    const size_t at = o.err.find(says);
    EXPECT_NE(at, std::string::npos) << o.err;
    return at == std::string::npos ? 0 : std::stoll(o.err.substr(at + says.size()));
  }
};

TEST_F(Offloading, ChangesNoBit) {
  const Json none = Trained(kFlags + "--activation-offloading yes");
  EXPECT_EQ(none["offloaded_bytes"], 0) << "there is room";
  const std::string weights = ReadAll(Path("r/model.synthetic.onnx"));
  const int64_t recomputed = LeastBudget("no"), least = LeastBudget("yes");
  ASSERT_LT(least, recomputed - 8);
  for (const int64_t mebibytes : {least, (least + recomputed) / 2}) {
    const int64_t budget = mebibytes << 20;
    const Json run = Trained(StrCat(kFlags, "--memory-budget ", budget));
    EXPECT_GT(run["offloaded_bytes"], 4 << 20);
    EXPECT_LE(run["planned_peak_bytes"], budget);
    EXPECT_LE(run["measured_peak_bytes"], budget);
    EXPECT_EQ(run["final_loss"], none["final_loss"]);
    EXPECT_TRUE(ReadAll(Path("r/model.synthetic.onnx")) == weights);
    EXPECT_NE(ReadAll(Path("r/config.flags")).find("--activation-offloading=yes"), std::string::npos);
  }
}

TEST_F(Offloading, NeedsAFolderAndTheBackend) {
  const std::string flags = StrCat("--model m.onnx --threads 1 --max-steps 2 --overwrite --out r --quiet ", kFlags,
                                   "--activation-offloading yes ");
  const Outcome torch = RunProcess(flags + "--backend torch --device cpu");
  EXPECT_EQ(torch.code, 1);
  EXPECT_NE(torch.err.find("--activation-offloading yes: the backend torch keeps"), std::string::npos) << torch.err;
  const int64_t least = LeastBudget("yes");
  setenv("TMPDIR", "/nowhere", 1);
  const Outcome missing = RunProcess(StrCat(flags, "--backend cpu --memory-budget ", least, "MiB"));
  unsetenv("TMPDIR");
  EXPECT_EQ(missing.code, 2);
  EXPECT_NE(missing.err.find("temporary file in /nowhere: No such file"), std::string::npos) << missing.err;
}

// Masks are drawn again from their keys, on every backend.
TEST_F(Memory, RecomputingRepeatsDropoutMasks) {
  tiny::Deep(true).Save(Path("m.onnx"));
  for (const char* backend : {"cpu", "torch"}) {
    const auto trained = [&](const std::string& flags, int seed) {
      const Outcome o =
          RunProcess(StrCat("--model m.onnx --backend ", backend,
                            " --device cpu --threads 1 --max-steps 3 --batch-size 4096 --dropout 0.3 --seed ", seed,
                            " --json --quiet --overwrite --out r ", flags));
      EXPECT_EQ(o.code, 0) << o.err;
      return o.code == 0 ? Json::parse(o.out) : Json();
    };
    const Json none = trained("--gradient-checkpointing none", 1);
    const std::string weights = ReadAll(Path("r/model.synthetic.onnx"));
    ASSERT_FALSE(weights.empty());
    const int64_t peak = none["planned_peak_bytes"];
    for (const std::string& mode :
         {std::string("all"), std::string("sqrt"), StrCat("budget --memory-budget ", peak - (4 << 20))}) {
      const Json run = trained("--gradient-checkpointing " + mode, 1);
      EXPECT_LT(run["planned_peak_bytes"], peak) << backend << " " << mode;
      EXPECT_EQ(run["final_loss"], none["final_loss"]) << backend << " " << mode;
      EXPECT_TRUE(ReadAll(Path("r/model.synthetic.onnx")) == weights) << backend << " " << mode;
    }
    EXPECT_NE(trained("--gradient-checkpointing none", 2)["final_loss"], none["final_loss"]) << "there are masks";
  }
}

TEST_F(Memory, ABudgetThatIsTooSmallNamesOneThatIsNot) {
  const Outcome o = RunProcess(
      "--model m.onnx --backend cpu --threads 1 --max-steps 3 --batch-size 4096 --micro-batch-size "
      "4096 --out r --quiet --memory-budget 13MiB");
  EXPECT_EQ(o.code, 1) << o.err;
  const size_t at = o.err.find("the smallest that does is ");
  ASSERT_NE(at, std::string::npos) << o.err;
  const std::string budget = o.err.substr(at + 26, o.err.find("MiB", at) + 3 - at - 26);
  const Json run = Trained(StrCat("--batch-size 4096 --micro-batch-size 4096 --memory-budget ", budget));
  EXPECT_EQ(run["steps"], 3);
  EXPECT_NE(o.err.find("(or a smaller --micro-batch-size)"), std::string::npos) << o.err;
  const Outcome one = RunProcess(
      "--model m.onnx --backend cpu --threads 1 --max-steps 3 --batch-size 1 --out q --quiet --memory-budget 3KiB");
  EXPECT_NE(one.err.find("--memory-budget 3KiB: the smallest that does is "), std::string::npos) << one.err;
  EXPECT_EQ(one.err.find("--micro-batch-size"), std::string::npos) << one.err;
  EXPECT_EQ(RunProcess("--model m.onnx --max-steps 1 --out q --gradient-checkpointing budget").code, 1);
  EXPECT_EQ(RunProcess("--model m.onnx --max-steps 1 --out q --memory-budget 12parsecs").code, 1);
}

TEST_F(Memory, MicroBatchesThatFit) {
  const Json run = Trained("--batch-size 20000 --micro-batch-size auto --memory-budget 60MiB");
  EXPECT_EQ(run["global_batch"], 20000);
  EXPECT_EQ(run["oom_retries"], 0);
  const auto micro = run["micro_batch"].get<int64_t>();
  EXPECT_LT(micro, 20000);
  const auto count = run["accumulation"].get<int64_t>();
  EXPECT_EQ(count, (20000 + micro - 1) / micro);
  EXPECT_EQ(micro, (20000 + count - 1) / count);  // equal parts
  EXPECT_GE(run["planned_peak_bytes"].get<double>(), 0.85 * (60 << 20));
  EXPECT_LE(run["planned_peak_bytes"].get<double>(), 60 << 20);
  EXPECT_EQ(RunProcess("--model m.onnx --micro-batch-size auto --gradient-accumulation-steps 2 --out q").code, 1);
  EXPECT_EQ(RunProcess("--model m.onnx --micro-batch-size many --out q").code, 1);
  EXPECT_EQ(
      RunProcess("--model m.onnx --batch-size 10 --micro-batch-size 4 --gradient-accumulation-steps 2 --out q").code,
      1);
}

// Most of the memory is inputs: those of a window, which are given, and those of a micro-batch, which count once for
// all programs.
// A model whose inputs take most of the memory, and a batch for it under a budget that holds no second copy.
constexpr int64_t kWideBudget = int64_t{256} << 20;

void SaveWideModel(const std::string& path, int64_t inputs) {
  tiny::Model wide{.input_shape = {-1, inputs}};
  wide.weights.push_back({"w", {inputs, 4}, tiny::Uniform(inputs * 4, 0.1f, 3)});
  wide.nodes.push_back({"MatMul", {"x", "w"}, {"p"}});
  wide.nodes.push_back({"Softmax", {"p"}, {"y"}});
  wide.Save(path);
}

std::string WideBatch(int64_t samples) {
  return StrCat(" --model wide.onnx --backend cpu --threads 1 --json --batch-size ", samples,
                " --micro-batch-size auto --memory-budget ");
}

// Rows that are no multiple of the alignment are copied into the program.
TEST_F(Memory, MicroBatchesThatFitWhereInputsAreLarge) {
  constexpr int64_t kInputs = 2047, kSamples = 20001;
  SaveWideModel(Path("wide.onnx"), kInputs);
  const Outcome o = RunProcess(StrCat("bench --steps-only --max-steps 1", WideBatch(kSamples), kWideBudget));
  ASSERT_EQ(o.code, 0) << o.err;
  const Json run = Json::parse(o.out);
  EXPECT_GT(run["micro_batch"], 1000);
  EXPECT_LT(run["micro_batch"], kSamples);
  for (const char* peak : {"planned_peak_bytes", "process_peak_bytes"}) {
    EXPECT_GE(run[peak].get<double>(), 0.85 * kWideBudget) << peak;
    EXPECT_LE(run[peak].get<double>(), kWideBudget) << peak;
  }
  const Outcome none = RunProcess(StrCat("bench --max-steps 1", WideBatch(kSamples), "16MiB"));
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.err.find("--micro-batch-size auto: not even one sample fits"), std::string::npos) << none.err;
}

// Aligned rows are read in place: the whole batch fits, for which a copy of it would leave no room.
TEST_F(Memory, LargeInputsAreReadInPlace) {
  constexpr int64_t kInputs = 2048, kSamples = 20000;
  constexpr double kBatchBytes = 4.0 * kInputs * kSamples;
  static_assert(2 * kBatchBytes > kWideBudget);
  SaveWideModel(Path("wide.onnx"), kInputs);
  const Outcome o = RunProcess(StrCat("bench --steps-only --max-steps 1", WideBatch(kSamples), kWideBudget));
  ASSERT_EQ(o.code, 0) << o.err;
  const Json run = Json::parse(o.out);
  EXPECT_EQ(run["micro_batch"], kSamples);
  const double planned = run["planned_peak_bytes"], process = run["process_peak_bytes"];
  EXPECT_GE(process, kBatchBytes);
  EXPECT_LE(std::max(planned, process), kWideBudget);
  EXPECT_NEAR(planned, process, 0.05 * process);
}

TEST_F(Memory, TimingTwoPrecisionsStaysWithinTheBudget) {
  const auto bench = [&](const std::string& flags) {
    const Outcome o = RunProcess(
        "bench --model m.onnx --backend cpu --threads 1 --steps-only --max-steps 1 --json --batch-size 60000 " + flags);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? Json::parse(o.out) : Json();
  };
  const Json none = bench("--gradient-checkpointing none");
  const auto budget = static_cast<int64_t>(0.75 * none["process_peak_bytes"].get<double>());
  const Json within = bench(StrCat("--mixed-precision auto --memory-budget ", budget));
  EXPECT_LE(within["process_peak_bytes"], budget);
}

// A device of so many bytes: what does not fit is refused by type.
class SmallDevice : public PlanningBackend {
 public:
  SmallDevice(Backend& backend, size_t largest) : PlanningBackend(backend), backend_(backend), largest_(largest) {}

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    if (bytes > largest_) return absl::ResourceExhaustedError("the device is full");
    return backend_.Allocate(bytes);
  }

 private:
  Backend& backend_;
  const size_t largest_;
};

TEST_F(Memory, OutOfMemoryRetriesTheBatchInSmallerMicroBatches) {
  auto cpu = CreateBackend("cpu", {.threads = 1});
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  const auto model = OnnxModel::Load(Path("m.onnx"));
  ASSERT_TRUE(model.ok()) << model.status();
  constexpr int64_t kSamples = 1000;
  HostTensor x({DType::kFloat32, {kSamples, kDeepWidth}}), labels({DType::kInt64, {kSamples}});
  const std::vector<float> numbers = tiny::Uniform(kSamples * kDeepWidth, 1, 5);
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, numbers[i]);
  for (int64_t i = 0; i < kSamples; ++i) labels.SetInt(i, i % 4);
  const GlobalBatch global_batch{{"x", x}, {kLabelFeed, labels}};
  const auto train = [&](Backend* backend, int64_t* retries, int64_t* micro) {
    SessionOptions options{.labels = {.present = true, .sample = {DType::kInt64, {}}, .min_value = 0, .max_value = 3},
                           .micro_batch = kSamples};
    options.import.input_shapes["x"] = {-1, kDeepWidth};
    auto session = Session::Create(*model, backend, options);
    EXPECT_TRUE(session.ok()) << session.status();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE((*session)->Step(global_batch).ok());
    *retries = (*session)->oom_retries();
    *micro = (*session)->micro_batch();
    return (*session)->Report()->loss;
  };
  int64_t retries, micro;
  const double whole = train(cpu->get(), &retries, &micro);
  EXPECT_EQ(retries, 0);
  SmallDevice small(**cpu, 1 << 20);
  const double parts = train(&small, &retries, &micro);
  EXPECT_GT(retries, 0);
  EXPECT_LT(micro, kSamples);
  EXPECT_NEAR(parts, whole, 1e-5 * whole);

  // Nothing helps where one sample does not fit.
  SmallDevice tiny(**cpu, 100'000);
  SessionOptions options{.labels = {.present = true, .sample = {DType::kInt64, {}}, .min_value = 0, .max_value = 3},
                         .micro_batch = 8};
  options.import.input_shapes["x"] = {-1, kDeepWidth};
  auto session = Session::Create(*model, &tiny, options);
  EXPECT_TRUE(!session.ok() || absl::IsResourceExhausted((*session)->Step(global_batch)));
}

}  // namespace
}  // namespace onnxtrain
