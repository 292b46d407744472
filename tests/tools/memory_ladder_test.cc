// The ways to train within less memory that `plan --ladder` shows and `--memory-budget` takes.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "tests/tools/run_scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

// One sample of a model with many weights: its memory is that of weights, moments and gradients.
class MemoryLadder : public RunScratch {
 protected:
  MemoryLadder() {
    tiny::Wide().Save(Path("m.onnx"));
    constexpr int64_t kRows = 8, kColumns = 1024;
    const std::vector<float> values = tiny::Uniform(kRows * kColumns, 1, 3);
    HostTensor x({DType::kFloat32, {kRows, kColumns}}), label({DType::kInt64, {kRows}});
    for (int64_t i = 0; i < x.size(); ++i) x.Set(i, values[i]);
    for (int64_t i = 0; i < kRows; ++i) label.Set(i, static_cast<double>(i));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"label", label}}).ok());
  }

  const std::string kModel = "--model m.onnx --backend cpu --threads 1 ";

  Json Ladder(const std::string& flags = "", int batch = 1) {
    const Outcome o = RunProcess(StrCat("plan --ladder --json ", kModel, "--batch-size ", batch, " ", flags));
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? Json::parse(o.out)["rungs"] : Json();
  }
  Outcome Train(const std::string& flags, int steps = 4, int batch = 1) {
    return RunProcess(StrCat(kModel, "--data d.npz --batch-size ", batch, " --max-steps ", steps,
                             " --log-every 1 --overwrite --quiet ", flags));
  }
  static Json FindRung(const Json& rungs, const Json& fields) {
    const auto found = std::ranges::find_if(rungs, [&](const Json& rung) { return rung["fields"] == fields; });
    EXPECT_NE(found, rungs.end()) << fields;
    return found == rungs.end() ? Json() : *found;
  }
};

TEST_F(MemoryLadder, EachRungTakesLess) {
  const Json rungs = Ladder();
  const Json given = FindRung(rungs, Json::object()), during = FindRung(rungs, {{"optimizer_in_backward", "yes"}}),
             bits = FindRung(rungs, {{"optimizer", "adamw8bit"}}),
             weights = FindRung(rungs, {{"optimizer", "adamw8bit"}, {"weight_dtype", "bf16"}});
  const auto bytes = [](const Json& rung, const char* kind) { return rung["kept"]["memory"][kind].get<double>(); };
  const double parameters = bytes(given, "parameters");
  EXPECT_LT(bytes(during, "activations"), bytes(given, "activations") - 0.2 * parameters);
  EXPECT_EQ(bytes(during, "moments"), bytes(given, "moments"));
  EXPECT_LT(bytes(bits, "moments"), 0.3 * bytes(given, "moments"));
  EXPECT_LT(bytes(weights, "parameters"), 0.51 * parameters);
  EXPECT_LT(bytes(weights, "activations"), bytes(given, "activations") + 0.8 * parameters)
      << "one widened weight at a time";
  for (const Json& rung : rungs) {
    EXPECT_LE(rung["least_memory_budget"], given["least_memory_budget"]) << rung;
    EXPECT_LE(rung["least"]["peak_bytes"], rung["least_memory_budget"]);
    EXPECT_GE(rung["least"]["seconds"].get<double>(), 0.99 * rung["kept"]["seconds"].get<double>())
        << "no program is evicted: " << rung;
    EXPECT_LT(bytes(rung, "packed"), 0.1 * parameters) << "no widened weight is kept: " << rung;
    EXPECT_EQ(rung["changes"] == "", !rung["fields"].contains("optimizer")) << rung;
  }
  const Json projected = FindRung(rungs, {{"optimizer", "galore_adamw"}, {"weight_dtype", "bf16"}});
  EXPECT_LT(bytes(projected, "moments"), bytes(weights, "moments"));
  EXPECT_EQ(projected["changes"].get<std::string>().find("8 bits"), std::string::npos) << projected["changes"];
  const Json factored = FindRung(rungs, {{"optimizer", "adafactor_unscaled"}, {"weight_dtype", "bf16"}});
  EXPECT_LT(bytes(factored, "moments"), 0.1 * bytes(projected, "moments"));
  EXPECT_EQ(factored["changes"].get<std::string>().find("Adafactor"), 0u) << factored["changes"];
  EXPECT_GT(during["kept"]["seconds"], given["kept"]["seconds"]) << "the norm takes a second backward pass";
  const Json unclipped = Ladder("--max-grad-norm 0");
  EXPECT_LT(FindRung(unclipped, {{"optimizer_in_backward", "yes"}})["kept"]["seconds"],
            1.1 * FindRung(unclipped, Json::object())["kept"]["seconds"].get<double>());
}

// Adafactor has no betas: it does not replace adamw where they are given. It is of adamw alone, whose rate it takes.
TEST_F(MemoryLadder, AdafactorReplacesAdamWOnly) {
  const auto has = [](const Json& rungs) {
    return std::ranges::any_of(
        rungs, [](const Json& rung) { return rung["fields"].value("optimizer", "") == "adafactor_unscaled"; });
  };
  EXPECT_TRUE(has(Ladder("--optimizer adamw8bit")));
  for (const char* flags : {"--betas 0.9,0.95", "--eps 1e-6", "--optimizer lion", "--optimizer galore_adamw"})
    EXPECT_FALSE(has(Ladder(flags))) << flags;
}

// The rung keeps the rate that the run chose for adamw.
TEST_F(MemoryLadder, AdafactorTakesTheRateOfAdamW) {
  ASSERT_EQ(Train("--out adamw").code, 0);
  ASSERT_EQ(Train("--out factored --optimizer adafactor_unscaled").code, 0);
  EXPECT_EQ(Summary("factored")["lr"], Summary("adamw")["lr"]);
}

// Forms of adapters stand beside the rungs, which a budget may take.
TEST_F(MemoryLadder, ShowsAdapters) {
  const std::string plan = StrCat("plan --ladder ", kModel, "--batch-size 1 ");
  const Json ladder = Json::parse(RunProcess(plan + "--json").out);
  const Json given = FindRung(ladder["rungs"], Json::object()), forms = ladder["adapters"];
  ASSERT_EQ(forms.size(), 3u) << forms;
  for (const Json& form : forms) {
    EXPECT_EQ(form["fields"]["lora_rank"], "16");
    EXPECT_LT(form["trained"], form["frozen"]);
    EXPECT_LT(form["least_memory_budget"], given["least_memory_budget"]) << form;
    EXPECT_LT(form["kept"]["memory"]["moments"], given["kept"]["memory"]["moments"]) << form;
  }
  EXPECT_EQ(forms[1]["fields"]["mixed_precision"], "bf16");
  EXPECT_EQ(forms[2]["fields"]["quantize_base"], "nf4");
  const auto parameters = [](const Json& form) { return form["kept"]["memory"]["parameters"].get<double>(); };
  EXPECT_LT(parameters(forms[2]), 0.5 * parameters(forms[0])) << "the file stores weights that are not aligned";
  const std::string page = RunProcess(plan).out;
  EXPECT_NE(page.find("\n adapters, no rungs since they train other weights"), std::string::npos) << page;
  EXPECT_NE(page.find("--lora-rank 16, --quantize-base nf4: trains "), std::string::npos) << page;
  EXPECT_EQ(RunProcess(plan + "--lora-rank 4").out.find("no rungs since they train"), std::string::npos);
}

TEST_F(MemoryLadder, SmallerMicroBatchesAreARung) {
  const Json rungs = Ladder("", 8);
  EXPECT_EQ(FindRung(rungs, {{"micro_batch_size", "1"}})["micro_batch"], 1);
}

// Rungs are in the order of their cost. One that a cheaper rung makes useless is no rung.
TEST_F(MemoryLadder, SavingRungsTakeLessThanAllBeforeThem) {
  const Json rungs = Ladder("", 8);
  int64_t least = std::numeric_limits<int64_t>::max(), saving = 0;
  for (const Json& rung : rungs) {
    const int64_t budget = rung["least_memory_budget"];
    EXPECT_EQ(rung["saves"], budget < least) << rung;
    least = std::min(least, budget);
    saving += rung["saves"] ? 1 : 0;
  }
  ASSERT_LT(saving, std::ssize(rungs)) << "gradients stay between micro-batches: a smaller one saves little here";
  const std::string plan = StrCat("plan --ladder ", kModel, "--batch-size 8");
  const std::string page = RunProcess(plan).out;
  EXPECT_NE(page.find(StrCat("\n ", saving, ". ")), std::string::npos) << page;
  EXPECT_EQ(page.find(StrCat("\n ", saving + 1, ". ")), std::string::npos) << page;
  EXPECT_NE(page.find("\n no rungs, since those before them need no more memory: "), std::string::npos) << page;
}

// Updates in the backward pass take a second pass where the norm of all gradients matters.
TEST_F(MemoryLadder, UpdatesInTheBackwardPassComeFirstWhereTheyTakeNoTime) {
  const auto position = [](const Json& rungs, const char* field) {
    const auto has = [&](const Json& rung) { return rung["fields"].contains(field) && rung["fields"].size() == 1; };
    return std::ranges::find_if(rungs, has) - rungs.begin();
  };
  const Json clipped = Ladder("", 8), free = Ladder("--max-grad-norm 0", 8);
  EXPECT_LT(position(clipped, "micro_batch_size"), position(clipped, "optimizer_in_backward"));
  EXPECT_LT(position(free, "optimizer_in_backward"), position(free, "micro_batch_size"));
}

// The first rung that changes no numbers, with the same losses; those that do only if they are allowed.
TEST_F(MemoryLadder, ABudgetTakesTheFirstThatFits) {
  const Json rungs = Ladder();
  ASSERT_EQ(Train("--out free").code, 0);
  const Json during = FindRung(rungs, {{"optimizer_in_backward", "yes"}});
  // Training holds its samples and the copy of a save besides what a plan holds.
  const auto budget = [](const Json& rung) { return rung["least_memory_budget"].get<int64_t>() + (6 << 20); };
  const Outcome fitted = Train(StrCat("--out fitted --memory-budget ", budget(during)));
  ASSERT_EQ(fitted.code, 0) << fitted.err;
  const Json summary = Summary("fitted");
  EXPECT_EQ(summary["final_loss"], Summary("free")["final_loss"]);
  EXPECT_LE(summary["planned_peak_bytes"], budget(during));
  EXPECT_NE(ReadAll(Path("fitted/config.flags")).find("--optimizer-in-backward=yes"), std::string::npos);
  EXPECT_EQ(ReadAll(Path("fitted/model.onnx")), ReadAll(Path("free/model.onnx")));
  const std::string within =
      StrCat(kModel, "--batch-size 1 --memory-budget ", during["least_memory_budget"].get<int64_t>());
  for (const char* command : {"bench --steps-only --max-steps 1 ", "plan "}) {
    const Outcome page = RunProcess(command + within), json = RunProcess(StrCat(command, "--json ", within));
    ASSERT_EQ(json.code, 0) << json.err;
    const std::string choice = Json::parse(json.out)["budget_choices"][0];
    EXPECT_NE(choice.find("--optimizer-in-backward yes"), std::string::npos) << choice;
    EXPECT_NE(page.out.find(choice), std::string::npos) << page.out << page.err;
  }

  const Json weights = FindRung(rungs, {{"optimizer", "adamw8bit"}, {"weight_dtype", "bf16"}});
  ASSERT_LT(budget(weights), during["least_memory_budget"]);
  const Outcome refused = Train(StrCat("--out refused --memory-budget ", budget(weights)));
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("the smallest that does is"), std::string::npos) << refused.err;
  const Outcome lossy = Train(StrCat("--out lossy --allow-lossy-memory --memory-budget ", budget(weights)));
  ASSERT_EQ(lossy.code, 0) << lossy.err;
  EXPECT_NE(ReadAll(Path("lossy/config.flags")).find("--optimizer=adamw8bit"), std::string::npos);
  EXPECT_LE(Summary("lossy")["planned_peak_bytes"], budget(weights));
}

TEST_F(MemoryLadder, RungsResumeExactly) {
  for (const char* rung : {"--optimizer-in-backward yes", "--optimizer-in-backward yes --max-grad-norm 0",
                           "--optimizer-in-backward yes --optimizer adamw8bit --weight-dtype bf16"}) {
    ASSERT_EQ(Train(StrCat("--out whole ", rung)).code, 0) << rung;
    ASSERT_EQ(Train(StrCat("--out halves ", rung), 2).code, 0) << rung;
    const Outcome resumed = RunProcess("--resume halves --max-steps 4 --quiet");
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(ReadAll(Path("whole/model.onnx")), ReadAll(Path("halves/model.onnx"))) << rung;
  }
}

TEST_F(MemoryLadder, RefusesWhatItDoesNotShow) {
  for (const char* flags : {"--pipeline 2", "--world 2", "--memory-budget 1GiB", "--plot p.svg"}) {
    const Outcome o = RunProcess(StrCat("plan --ladder ", kModel, "--batch-size 2 ", flags));
    EXPECT_EQ(o.code, 1) << flags;
    EXPECT_NE(o.err.find("--ladder"), std::string::npos) << o.err;
  }
}

TEST_F(MemoryLadder, RefusesUpdatesOfSeveralMicroBatches) {
  const Outcome o = Train("--out r --micro-batch-size 2 --optimizer-in-backward yes", 4, 4);
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("--optimizer-in-backward"), std::string::npos) << o.err;
}

#ifndef __SANITIZE_ADDRESS__  // which takes memory for itself
// Each rung, which ends with "}\n", is printed as soon as it is measured.
TEST_F(MemoryLadder, BenchMeasuresEachRung) {
  const std::string command = StrCat("cd '", Path(""), "' && '", BinaryPath("bin/onnxtrain"),
                                     "' bench --ladder --json --quiet --max-steps 1 --batch-size 64 ", kModel);
  std::FILE* const lines = popen(command.c_str(), "r");
  ASSERT_NE(lines, nullptr);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  std::vector<Clock::time_point> ends;
  std::string text;
  for (char line[4096]; std::fgets(line, sizeof line, lines) != nullptr; text += line) {
    if (std::string_view(line) == "}\n") ends.push_back(Clock::now());
  }
  EXPECT_EQ(pclose(lines), 0);
  const Json rungs = Json::parse(text);
  ASSERT_GE(rungs.size(), 4u);
  ASSERT_EQ(ends.size(), rungs.size());
  EXPECT_LT(ends.front() - begin, (ends.back() - begin) / 2);
  for (const Json& rung : rungs) {
    const bool offloads = rung["rung"].get<std::string>().find("activation_offloading") != std::string::npos;
    const std::vector<std::string> forms =
        offloads ? std::vector<std::string>{"offloaded"} : std::vector<std::string>{"kept", "recomputed"};
    for (const std::string& form : forms) {
      const double planned = rung[form]["planned_peak_bytes"], measured = rung[form]["process_peak_bytes"];
      EXPECT_NEAR(planned, measured, std::max(0.02 * measured, 16.0 * (1 << 20))) << rung["rung"] << " " << form;
    }
  }
}
#endif

}  // namespace
}  // namespace onnxtrain
