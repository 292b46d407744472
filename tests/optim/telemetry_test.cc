#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "frontend/base/units.h"
#include "optim/record/telemetry/console.h"
#include "optim/record/telemetry/metrics_file.h"
#include "optim/record/telemetry/resources.h"
#include "optim/record/telemetry/statistics.h"
#include "optim/record/telemetry/summary.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

TrainEvent Step(double loss, double weight = 64) {
  return {.kind = TrainEvent::Kind::kStep,
          .step = 120,
          .epoch = 0.5,
          .report = {.updates = 20,
                     .skipped = 2,
                     .loss = loss,
                     .grad_norm = NAN,
                     .learning_rate = 1e-3,
                     .weight = weight,
                     .correct = 48,
                     .targets = weight},
          .samples_per_second = 12345.6};
}

TEST(MetricsFile, EveryLineIsValidJson) {
  const Json step = Json::parse(ToJsonLine(Step(0.25), true));
  EXPECT_EQ(step["event"], "step");
  EXPECT_EQ(step["step"], 120);
  EXPECT_EQ(step["loss"], 0.25);
  EXPECT_EQ(step["accuracy"], 0.75);
  EXPECT_EQ(step["skipped"], 2);
  EXPECT_EQ(step["grad_norm"], nullptr);
  EXPECT_FALSE(Json::parse(ToJsonLine(Step(0.25), false)).contains("accuracy"));
  EXPECT_EQ(Json::parse(ToJsonLine(Step(INFINITY), true))["loss"], nullptr);
  EXPECT_EQ(Json::parse(ToJsonLine(Step(0, 0), true))["loss"],
            nullptr);  // all updates skipped: no loss instead of 0
  const Json eval = Json::parse(ToJsonLine(
      {.kind = TrainEvent::Kind::kEval, .step = 7, .eval = {.loss = 1.5, .accuracy = -1, .samples = 9}}, true));
  EXPECT_EQ(eval["eval_loss"], 1.5);
  EXPECT_EQ(eval["eval_samples"], 9);
  EXPECT_FALSE(eval.contains("eval_accuracy"));
}

TEST(MetricsFile, LinesAreThereAtOnce) {
  const std::string path = (std::filesystem::temp_directory_path() / ("metrics-" + std::to_string(getpid()))).string();
  auto file = MetricsFile::Create(path, true);
  ASSERT_TRUE(file.ok()) << file.status();
  for (int i = 1; i <= 3; ++i) {
    (*file)->Write(Step(i));
    std::ifstream in(path);
    std::string line;
    int lines = 0;
    while (std::getline(in, line)) EXPECT_EQ(Json::parse(line)["loss"], ++lines);
    EXPECT_EQ(lines, i);
  }
  EXPECT_TRUE((*file)->status().ok());
  std::filesystem::remove(path);
  EXPECT_FALSE(MetricsFile::Create("/proc/no/such/folder/metrics.jsonl", true).ok());
}

TEST(MetricsFile, AFullDiskIsRemembered) {
  auto file = MetricsFile::Create("/dev/full", true);
  ASSERT_TRUE(file.ok()) << file.status();
  (*file)->Write(Step(1));
  (*file)->Write(Step(2));
  EXPECT_NE((*file)->status().message().find("/dev/full: No space left"), absl::string_view::npos) << (*file)->status();
}

TEST(Console, LinesAlign) {
  const ProgressContext context{.total_steps = 12000, .has_accuracy = true};
  const std::string a = ProgressLine(Step(0.25), context), b = ProgressLine(Step(1.0 / 3), context);
  EXPECT_EQ(a.size(), b.size());
  EXPECT_TRUE(a.starts_with("  120/12000  epoch  0.50                 loss 0.25")) << a;
  EXPECT_NE(a.find("acc  75.00%"), std::string::npos) << a;
  EXPECT_NE(a.find("12,346 samples/s"), std::string::npos) << a;
  EXPECT_NE(a.find("2 skipped"), std::string::npos) << a;
  EXPECT_EQ(ProgressLine(Step(1), {}).find("acc"), std::string::npos);
}

TEST(Console, TellsTheTimeLeft) {
  const ProgressContext context{.total_steps = 12000};
  EXPECT_NE(ProgressLine(Step(1), context, 64.4).find("eta     01:04  loss"), std::string::npos);
  EXPECT_NE(ProgressLine(Step(1), context, 3600 * 30 + 59.6).find("eta  30:01:00  loss"), std::string::npos);
  EXPECT_EQ(ProgressLine(Step(1), context, 7).size(), ProgressLine(Step(1), context).size());
  EXPECT_EQ(ProgressLine(Step(1), {}, 7).find("eta"), std::string::npos);  // the end is not known
}

TEST(Console, EstimatesFromTheTimeSinceTheFirstReport) {
  std::FILE* file = std::tmpfile();
  {
    Console console(file, {.total_steps = 320});
    TrainEvent event = Step(1);
    event.step = 20;
    event.seconds = 50;  // compiling took most of it
    console.Show(event);
    event.step = 120;
    event.seconds = 60;
    console.Show(event);
  }
  std::rewind(file);
  char text[1024] = {};
  const size_t size = std::fread(text, 1, sizeof(text) - 1, file);
  std::fclose(file);
  EXPECT_NE(std::string(text, size).find("120/320  epoch  0.50  eta     00:20"), std::string::npos) << text;
}

TEST(Console, PlainLinesWhereThereIsNoTerminal) {
  std::FILE* file = std::tmpfile();
  {
    Console console(file, {.total_steps = 200, .has_accuracy = true});
    console.Show(Step(1));
    console.Show(Step(0.5));
  }
  std::rewind(file);
  char text[1024] = {};
  const size_t size = std::fread(text, 1, sizeof(text) - 1, file);
  std::fclose(file);
  EXPECT_EQ(std::count(text, text + size, '\n'), 2);
  EXPECT_EQ(std::count(text, text + size, '\r'), 0);
}

TEST(Summary, AnyNumbersAndAnyBytes) {
  RunSummary summary{.version = "1", .data = "caf\xe9.csv"};
  summary.result = {.stop_reason = "epochs",
                    .steps = 10,
                    .samples = 320,
                    .final_loss = NAN,
                    .eval_before = {.loss = 2, .accuracy = 0.1, .samples = 5},
                    .eval = {.loss = INFINITY, .accuracy = 0.9, .samples = 5},
                    .data_seconds = 1,
                    .compute_seconds = 3};
  const std::string text = ToJson(summary);
  const Json json = Json::parse(text);
  EXPECT_EQ(json["final_loss"], nullptr);
  EXPECT_EQ(json["eval"]["loss"], nullptr);
  EXPECT_EQ(json["exported"], nullptr);
  EXPECT_EQ(json["samples_per_second"], 80);
  EXPECT_EQ(FindSummaryMetric(text, "accuracy"), 0.9);
  EXPECT_EQ(FindSummaryMetric(text, "eval_before.accuracy"), 0.1);
  EXPECT_EQ(FindSummaryMetric(text, "steps"), 10);
  EXPECT_EQ(FindSummaryMetric(text, "time_split.compute"), 3);
  for (const char* none : {"final_loss", "loss", "nope", "eval", "eval.nope", "steps.x", "version", ""})
    EXPECT_FALSE(FindSummaryMetric(text, none).has_value()) << none;
  summary.exported = true;
  summary.exported_step = 9;  // the best
  EXPECT_EQ(Json::parse(ToJson(summary))["exported"]["step"], 9);
  summary.result.eval = {};
  EXPECT_EQ(Json::parse(ToJson(summary))["eval"], nullptr);
}

TEST(Summary, PeakMemoryIsThatOfThisProcess) {
  EXPECT_GT(PeakResidentBytes(), 1 << 20);
  EXPECT_LT(PeakResidentBytes(), int64_t{1} << 40);
}

TEST(Durations, QuantilesToOnePercent) {
  Durations durations;
  EXPECT_EQ(durations.Quantile(0.5), 0);
  for (int i = 1; i <= 1000; ++i) durations.Add(i * 1e-3);
  EXPECT_EQ(durations.count(), 1000);
  EXPECT_NEAR(durations.Quantile(0.5), 0.5, 0.005);
  EXPECT_NEAR(durations.Quantile(0.95), 0.95, 0.0095);
  EXPECT_NEAR(durations.Quantile(1), 1, 0.01);
  for (const double outside : {0.0, -1.0, 1e300}) durations.Add(outside);
  EXPECT_NEAR(durations.Quantile(1e-9), 1e-7, 1e-9);
  EXPECT_GT(durations.Quantile(1), 3600);
}

TEST(Resources, MeasuresThisProcess) {
  ResourceMonitor monitor;
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
       std::chrono::steady_clock::now() < end;) {
  }
  const ResourceReading busy = monitor.Take();
  EXPECT_GT(busy.busy_cpus, 0);
  EXPECT_GT(busy.resident_bytes, 1 << 20);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LT(monitor.Take().busy_cpus, 0.5);
  for (int i = 0; i < 2000; ++i) EXPECT_LE(monitor.Take().machine_busy_cpus, sysconf(_SC_NPROCESSORS_ONLN));
}

// Two threads on one CPU: each waits for the other about half of the time.
TEST(Resources, MeasuresTheWaitForACpu) {
  const auto spin = [](double seconds) {
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
         std::chrono::steady_clock::now() < end;) {
    }
  };
  ResourceReading queued;
  std::thread both([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    std::thread other([&] { spin(0.6); });  // inherits the CPU
    ResourceMonitor monitor;
    spin(0.5);
    queued = monitor.Take();
    other.join();
  });
  both.join();
  EXPECT_GT(queued.queued_share, 0.2);
  EXPECT_LE(queued.queued_share, 1);
}

TEST(Diagnosis, NamesWhatLimitsTheRun) {
  TrainResult r{.steps = 100, .seconds = 100, .compute_seconds = 90, .step_median_seconds = 1};
  const RunConditions busy{.threads = 2, .busy_cpus = 1.9};
  const auto limit = [&](const TrainResult& result, RunConditions conditions = {.threads = 2, .busy_cpus = 1.9}) {
    return Diagnose(result, conditions).limit;
  };
  EXPECT_EQ(limit(r), "compute");
  EXPECT_NE(Diagnose(r, busy).text.find("90 %"), std::string::npos);
  EXPECT_NE(Diagnose(r, busy).text.find("`mixed_precision`"), std::string::npos);
  EXPECT_EQ(Diagnose(r, {.threads = 1, .full_precision = false}).text.find("mixed"), std::string::npos);
  EXPECT_EQ(limit(r, {.threads = 2, .busy_cpus = 1}), "threads");
  EXPECT_EQ(limit(r, {.threads = 2, .busy_cpus = 1, .queued_share = 0.4}), "machine");
  EXPECT_NE(Diagnose(r, {.threads = 2, .queued_share = 0.4}).text.find("40 %"), std::string::npos);
  EXPECT_EQ(limit(r, {.threads = 2, .busy_cpus = 1.9, .recompute_share = 0.2}), "memory");
  r.data_seconds = 20;
  EXPECT_EQ(limit(r), "data");
  r.step_median_seconds = 1e-4;
  EXPECT_EQ(limit(r), "overhead");
  r.checkpoint_seconds = 20;
  EXPECT_EQ(limit(r), "checkpoints");
  r.eval_seconds = 50;
  EXPECT_EQ(limit(r), "evaluation");
  r.compile_seconds = 60;
  EXPECT_EQ(limit(r), "compilation");
  r.seconds = 0.5;
  EXPECT_EQ(limit(r), "duration");
  EXPECT_EQ(limit({}), "");
}

TEST(Format, ForPeople) {
  EXPECT_EQ(FormatWithCommas(0), "0");
  EXPECT_EQ(FormatWithCommas(999), "999");
  EXPECT_EQ(FormatWithCommas(1000), "1,000");
  EXPECT_EQ(FormatWithCommas(-1234567), "-1,234,567");
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(3.0 * (1 << 30)), "3.0 GiB");
  EXPECT_EQ(FormatSeconds(0.421), "0.42 s");
  EXPECT_EQ(FormatSeconds(75), "1:15");
  EXPECT_EQ(FormatSeconds(4000), "1:06:40");
  EXPECT_EQ(FormatNumber(0.00012345), "0.0001234");
}

}  // namespace
}  // namespace onnxtrain
