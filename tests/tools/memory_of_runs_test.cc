// The memory of whole runs: saves, evaluations and the exported model stay within what was planned.
#include <nlohmann/json.hpp>

#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

constexpr int64_t kSamples = 512, kInputs = 1024, kClasses = 16;
constexpr double kMebibyte = 1 << 20;
constexpr char kFlags[] = " --model m.onnx --backend cpu --threads 1 ";

class MemoryOfRuns : public Scratch {
 protected:
  MemoryOfRuns() {
    tiny::Wide().Save(Path("m.onnx"));
    HostTensor x({DType::kFloat32, {kSamples, kInputs}}), y({DType::kInt64, {kSamples}});
    const std::vector<float> numbers = tiny::Uniform(kSamples * kInputs, 1, 5);
    for (int64_t i = 0; i < x.size(); ++i) x.Set(i, numbers[i]);
    for (int64_t i = 0; i < kSamples; ++i) y.SetInt(i, i % kClasses);
    EXPECT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"label", y}}).ok());
  }

  static std::string WithBatch(const std::string& flags) {
    return flags.find("--batch-size") == std::string::npos ? StrCat("--batch-size 128 ", flags) : flags;
  }
  Json Trained(const std::string& flags) {
    const Outcome o = RunProcess(StrCat(kFlags, "--data d.npz --json --quiet --overwrite --out r ", WithBatch(flags)));
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? Json::parse(o.out) : Json();
  }
  Json Planned(const std::string& flags) {
    const Outcome o = RunProcess(StrCat("plan", kFlags, "--data d.npz --json ", WithBatch(flags)));
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? Json::parse(o.out) : Json();
  }
  // The budget that a refusal names, in MiB.
  static int64_t LeastNamed(const std::string& message) {
    constexpr std::string_view kText = "the smallest that does is ";
    const size_t at = message.find(kText);
    EXPECT_NE(at, std::string::npos) << message;
    return at == std::string::npos ? 0 : std::atoll(message.c_str() + at + kText.size());
  }
};

#ifndef __SANITIZE_ADDRESS__  // which takes memory for itself
TEST_F(MemoryOfRuns, PlanStartAndPeakAgree) {
  for (const char* flags :
       {"--epochs 1 --save-every end", "--epochs 2 --save-every 2", "--epochs 1 --save-every 2 --eval-split 0.25",
        "--epochs 1 --save-every end --optimizer sgd --ema-decay 0.9 --lr 1e-3"}) {
    const Json plan = Planned(flags), run = Trained(flags);
    const double planned = run["planned_peak_bytes"], measured = run["measured_peak_bytes"];
    EXPECT_NEAR(plan["peak_bytes"].get<double>(), planned, 0.02 * planned) << flags;
    EXPECT_NEAR(planned, measured, std::max(0.02 * measured, 16 * kMebibyte)) << flags;
  }
}

TEST_F(MemoryOfRuns, TheMeasuredPeakStaysBelowTheBudget) {
  const std::string flags = "--epochs 2 --save-every 2 --eval-split 0.25 --memory-budget ";
  const int64_t least =
      LeastNamed(RunProcess(StrCat(kFlags, "--data d.npz --batch-size 128 --out q ", flags, "20MiB")).err);
  for (const int64_t budget : {least, least + 30, least + 120}) {
    const Json run = Trained(StrCat(flags, budget, "MiB"));
    EXPECT_LE(run["planned_peak_bytes"].get<double>(), static_cast<double>(budget) * kMebibyte);
    EXPECT_LE(run["measured_peak_bytes"].get<double>(), static_cast<double>(budget) * kMebibyte);
  }
}
#endif

TEST_F(MemoryOfRuns, APlanChoosesHowToSave) {
  const std::string flags = "--save-every 2 ";
  const Json copies = Planned(flags), end = Planned("--save-every end");
  const auto state = copies["save_bytes"].get<double>() - end["save_bytes"].get<double>();
  EXPECT_GE(state, 3 * copies["memory"]["parameters"].get<double>() * 0.99) << "weights and two moments";
  EXPECT_GT(copies["peak_bytes"], end["peak_bytes"]);
  const auto budget = static_cast<int64_t>(copies["peak_bytes"].get<double>() - 0.5 * state);
  const Json within = Planned(StrCat(flags, "--memory-budget ", budget));
  EXPECT_EQ(within["save_bytes"], end["save_bytes"]) << "no room for a copy: saves are made in place";
  EXPECT_EQ(within["repeated_nodes"], 0);
  EXPECT_GT(within["save_pause_seconds"], copies["save_pause_seconds"]);
  EXPECT_EQ(Planned(StrCat(flags, "--memory-budget 4GiB"))["save_bytes"], copies["save_bytes"]);
}

TEST_F(MemoryOfRuns, SavesInPlaceAreThoseOfACopy) {
  const std::string flags = "--epochs 2 --save-every 3 --keep-last 9 ";
  const auto budget = Planned("--save-every end")["peak_bytes"].get<int64_t>() * 108 / 100;
  Trained(flags);
  std::vector<std::string> files;
  for (const char* step : {"step-00000003", "step-00000006", "step-00000008"}) {
    for (const char* name : {"model.safetensors", "optimizer.safetensors"})
      files.push_back(StrCat("r/checkpoints/", step, "/", name));
  }
  std::vector<std::string> copied;
  for (const std::string& file : files) copied.push_back(ReadAll(Path(file)));
  const std::string model = ReadAll(Path("r/model.onnx"));
  Trained(StrCat(flags, "--memory-budget ", budget));
  for (size_t i = 0; i < files.size(); ++i) {
    ASSERT_FALSE(copied[i].empty()) << files[i];
    EXPECT_TRUE(ReadAll(Path(files[i])) == copied[i]) << files[i];
  }
  EXPECT_TRUE(ReadAll(Path("r/model.onnx")) == model);
}

TEST_F(MemoryOfRuns, TheLeastThatIsNamedIsTheLeastThatWorks) {
  for (const char* flags : {"--micro-batch-size 128 ", ""}) {
    const std::string line =
        StrCat(kFlags, "--data d.npz --batch-size 128 --eval-split 0.25 --max-steps 3 --quiet --overwrite ", flags);
    const int64_t least = LeastNamed(RunProcess(StrCat(line, "--out q --memory-budget 30MiB")).err);
    EXPECT_EQ(LeastNamed(RunProcess(StrCat(line, "--out q --memory-budget 60MiB")).err), least);
    EXPECT_EQ(RunProcess(StrCat(line, "--out q --memory-budget ", least, "MiB")).code, 0);
    EXPECT_EQ(LeastNamed(RunProcess(StrCat(line, "--out q --memory-budget ", least - 1, "MiB")).err), least);
  }
}

TEST_F(MemoryOfRuns, ABudgetChoosesTheMicroBatch) {
  tiny::Model narrow{.input_shape = {-1, kInputs}};  // activations take most of the memory
  narrow.weights.push_back({"w", {4 * kInputs, kClasses}, tiny::Uniform(4 * kInputs * kClasses, 0.1f, 3)});
  for (const char* op : {"Exp", "Tanh", "Sigmoid", "Sin"}) narrow.nodes.push_back({op, {"x"}, {op}});
  narrow.nodes.push_back({"Concat", {"Exp", "Tanh", "Sigmoid", "Sin"}, {"h"}, {}, {{"axis", 1}}});
  narrow.nodes.push_back({"MatMul", {"h", "w"}, {"p"}});
  narrow.nodes.push_back({"Softmax", {"p"}, {"y"}});
  narrow.Save(Path("m.onnx"));
  const Json whole = Trained("--batch-size 512 --max-steps 1 --save-every end");
  const int64_t budget = whole["planned_peak_bytes"].get<int64_t>() - 1'000'000;
  const std::string flags = StrCat("--batch-size 512 --max-steps 1 --save-every end --memory-budget ", budget);
  const Json parts = Trained(flags);
  EXPECT_EQ(parts["global_batch"], 512);
  EXPECT_LT(parts["micro_batch"], 512);
  EXPECT_LE(parts["planned_peak_bytes"], budget);
  EXPECT_NEAR(parts["final_loss"].get<double>(), whole["final_loss"].get<double>(), 1e-5);
  const Outcome told = RunProcess(StrCat(kFlags, "--data d.npz --overwrite --out r ", flags));
  EXPECT_NE(told.err.find("those of 512 do not fit the budget (--micro-batch-size, --memory-budget)"),
            std::string::npos)
      << told.err;
  const Outcome given = RunProcess(StrCat(kFlags, "--data d.npz --out q --micro-batch-size 512 ", flags));
  EXPECT_EQ(given.code, 1);
  EXPECT_NE(given.err.find("(or a smaller --micro-batch-size)"), std::string::npos) << given.err;
}

TEST_F(MemoryOfRuns, AutoChoosesNothingThatThePlanRefuses) {
  for (const int64_t megabytes : {230, 260, 400}) {
    const std::string flags = StrCat("--eval-split 0.25 --micro-batch-size auto --memory-budget ", megabytes, "MiB");
    const Json run = Trained("--max-steps 2 " + flags);
    EXPECT_LE(run["planned_peak_bytes"].get<double>(), static_cast<double>(megabytes) * kMebibyte);
    EXPECT_EQ(Planned(flags)["micro_batch"], run["micro_batch"]);
  }
}

TEST_F(MemoryOfRuns, APlanListsBudgetsThatDiffer) {
  tiny::Deep(false).Save(Path("m.onnx"));
  const Outcome page = RunProcess("plan --model m.onnx --backend cpu --batch-size 4096 --save-every end");
  ASSERT_EQ(page.code, 0) << page.err;
  const Outcome json = RunProcess("plan --model m.onnx --backend cpu --batch-size 4096 --save-every end --json");
  const Json plan = Json::parse(json.out);
  int64_t before = std::numeric_limits<int64_t>::max();
  for (const Json& row : plan["budgets"]) {
    const auto budget = row["memory_budget"].get<int64_t>();
    EXPECT_LT(budget >> 20, before >> 20) << "rows that a budget does not tell apart";
    before = budget;
  }
  const auto least = plan["least_memory_budget"].get<int64_t>(),
             one = plan["least_memory_budget_of_one_sample"].get<int64_t>();
  EXPECT_LT(one, least);
  EXPECT_NE(page.out.find(StrCat("--memory-budget ", least >> 20, "MiB with micro-batches of 4096, ", one >> 20,
                                 "MiB with micro-batches of 1")),
            std::string::npos)
      << page.out;
  const std::string fits =
      StrCat("plan --model m.onnx --backend cpu --batch-size 4096 --save-every end --memory-budget ");
  EXPECT_EQ(RunProcess(StrCat(fits, least)).code, 0);
  EXPECT_EQ(RunProcess(StrCat(fits, least - (1 << 20), " --micro-batch-size 4096 --optimizer-in-backward no")).code, 1);
}

}  // namespace
}  // namespace onnxtrain
