// report.html, monitor and compare-runs.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "backends/registry.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/numpy.h"
#include "optim/record/quality.h"
#include "tests/paths.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"
#include "tools/onnxtrain/report/html_page.h"
#include "tools/onnxtrain/report/html_report.h"
#include "tools/onnxtrain/report/memory_timeline.h"
#include "tools/onnxtrain/report/quality_html.h"
#include "tools/onnxtrain/report/run_table.h"

namespace onnxtrain::cli {
namespace {

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Html, EscapesAnyBytes) {
  EXPECT_EQ(EscapeHtml("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
  EXPECT_EQ(EscapeHtml("caf\xe9 \x01 é"), "caf\xef\xbf\xbd \xef\xbf\xbd é");
}

TEST(Plot, TicksAreRoundNumbers) {
  EXPECT_EQ(Ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(Ticks(0.13, 0.52, 4), (std::vector<double>{0.2, 0.30000000000000004, 0.4, 0.5}));
  EXPECT_EQ(Ticks(-3, 3, 3), (std::vector<double>{-2, 0, 2}));
  EXPECT_EQ(Ticks(0, 0.01f, 4).back(), 0.01);  // which is a little less
}

TEST(Plot, TicksAreShort) {
  const auto svg = [](double x, double y, bool log) {
    return LinePlot({.title = "t", .lines = {{.name = "a", .points = {{0, 0.519}, {x, y}}}}, .log_y = log});
  };
  EXPECT_NE(svg(10, 2e6, false).find(">1.5M</text>"), std::string::npos);
  EXPECT_NE(svg(10, 60000, false).find(">40k</text>"), std::string::npos);
  EXPECT_NE(svg(10, 1.049, true).find(">0.8</text>"), std::string::npos);  // no 1, 2 or 5 but one lies between
  EXPECT_EQ(svg(10, 1.049, true).find("0.519"), std::string::npos);
  // The last number of the axis is not cut off.
  EXPECT_NE(svg(2000, 1, false).find("x=\"544.0\" y=\"246\" text-anchor=\"middle\">2000<"), std::string::npos);
}

TEST(Plot, LongLinesKeepTheirExtremes) {
  Series points;
  for (int i = 0; i < 100000; ++i) points.emplace_back(i, i == 77777 ? 50 : i % 2);
  const std::string svg = LinePlot({.title = "t", .lines = {{.name = "a", .points = points}}});
  EXPECT_LT(svg.size(), 40000);
  EXPECT_NE(svg.find(",34.0 "), std::string::npos);  // the greatest value is at the top
  EXPECT_EQ(LinePlot({.title = "t", .lines = {{.name = "a", .points = {{1, 1}}}}}), "");
}

TEST(Plot, ConstantsAndTwoPointsAreNoDivisionByZero) {
  for (const double y : {0.0, 3.0, -1e-30}) {
    for (const bool log : {false, true}) {
      const std::string svg =
          LinePlot({.title = "t", .lines = {{.name = "a", .points = {{1, y}, {2, y}}}}, .log_y = log});
      EXPECT_EQ(svg.find("nan"), std::string::npos) << y;
      EXPECT_EQ(svg.find("inf"), std::string::npos) << y;
    }
  }
}

TEST(TerminalPlot, DrawsWithDots) {
  Series falling;
  for (int i = 0; i < 40; ++i) falling.emplace_back(i, 40 - i);
  const auto lines = TerminalPlot(falling, 31, 3);
  ASSERT_EQ(lines.size(), 3);
  EXPECT_TRUE(lines[0].starts_with("        40 ")) << lines[0];
  EXPECT_TRUE(lines[2].starts_with("         1 ")) << lines[2];
  EXPECT_EQ(lines[0].substr(11, 3), "\u2809");            // the first two values are in the top row
  EXPECT_TRUE(lines[2].ends_with("\u28c0")) << lines[2];  // the last two in the bottom row
  EXPECT_TRUE(TerminalPlot({}, 31, 3).empty());
  EXPECT_EQ(PlotNumber(35286.7), "35,287");
  EXPECT_EQ(PlotNumber(0.12345678), "0.1235");
  EXPECT_EQ(TerminalPlot({{1, 1}}, 31, 3).size(), 3);
}

Quality TwoClasses() {
  Quality q{.samples = 10, .classes = 2, .confusion = {{{0, 0}, 4}, {{0, 1}, 1}, {{1, 0}, 2}, {{1, 1}, 3}}};
  q.bins[6] = {.samples = 5, .correct = 3, .confidence = 3.25};
  q.bins[9] = {.samples = 5, .correct = 4, .confidence = 4.75};
  for (int64_t i = 0; i < 10; ++i) q.results.push_back({.sample = i, .loss = i % 3 * 1.0});
  return q;
}

TEST(Quality, AccuracyAndCalibration) {
  const Quality q = TwoClasses();
  EXPECT_DOUBLE_EQ(q.accuracy(), 0.7);
  EXPECT_DOUBLE_EQ(q.calibration_error(), (0.25 + 0.75) / 10);
  const auto worst = FindWorst(q, 4);
  ASSERT_EQ(worst.size(), 4);
  EXPECT_EQ(worst[0].sample, 2);
  EXPECT_EQ(worst[3].sample, 1);
}

TEST(Quality, TablesOfClasses) {
  const std::string html = QualityHtml(nullptr, TwoClasses(), {"no", "<yes>"});
  EXPECT_NE(html.find("<td>no</td><td>5</td><td>80.0 %</td><td>66.7 %</td><td>72.7 %</td>"), std::string::npos) << html;
  EXPECT_NE(html.find("&lt;yes&gt;"), std::string::npos);
  EXPECT_EQ(html.find("<yes>"), std::string::npos);
  const Quality many{.samples = 3, .classes = 250000, .confusion = {{{7, 8}, 3}}};  // a vocabulary
  const std::string pairs = QualityHtml(nullptr, many, {});
  EXPECT_NE(pairs.find("<td>7</td><td>8</td><td>3</td>"), std::string::npos);
  EXPECT_EQ(CountOf(pairs, "<tr>"), 1 + 2 + 3 + 2);  // accuracy and calibration, two classes, one pair, with headers
}

TEST(Curves, ShowEveryGpu) {
  RunRecord run{.folder = "r"};
  for (const int gpu : {0, 1}) {
    for (const char* key : {"utilization", "memory_bytes", "watts", "celsius"})
      run.train[StrCat("gpu", gpu, "_", key)] = {{1, 0.25}, {2, 0.5}};
  }
  const std::string html = CurvesHtml({run});
  EXPECT_EQ(CountOf(html, "<svg"), 4);
  EXPECT_EQ(CountOf(html, "● GPU 0</tspan>"), 4);
  EXPECT_EQ(CountOf(html, "● GPU 1</tspan>"), 4);
}

class Report : public Scratch {
 protected:
  Report() {
    tiny::Model m;
    m.nodes = {{"Flatten", {"x"}, {"f"}}, {"MatMul", {"f", "w"}, {"y"}}};
    m.input_shape = {-1, 1, 8, 8};
    m.weights = {{"w", {64, 3}, tiny::Uniform(192, 0.1f, 1)}};
    m.Save(Path("m.onnx"));
    HostTensor x({DType::kUInt8, {60, 1, 8, 8}}), y({DType::kInt64, {60}});
    for (int64_t i = 0; i < 60; ++i) {
      y.SetInt(i, i % 3);
      for (int64_t j = 0; j < 64; ++j) x.Set(i * 64 + j, j / 8 == i % 3 ? 200 : (i * 7 + j) % 50);
    }
    EXPECT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"label", y}}).ok());
  }
  Outcome Train(const std::string& flags) const {
    return Run("--model m.onnx --data d.npz --eval-split last:0.5 --batch-size 10 --threads 1 --quiet " + flags);
  }
};

TEST_F(Report, IsOneSelfContainedPage) {
  const Outcome o = Train("--epochs 8 --lr 0.05 --log-every 1 --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("report.html"), std::string::npos) << o.out;
  const std::string html = ReadAll(Path("r/report.html"));
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("http"), std::string::npos);
  EXPECT_GE(CountOf(html, "<svg class=\"plot\""), 7);
  EXPECT_EQ(CountOf(html, "<figure><img alt=\"sample\" src=\"data:image/png;base64,iVBOR"), 12);
  EXPECT_NE(html.find("30 samples of the evaluation data"), std::string::npos);
  EXPECT_NE(html.find("<td>100.0 %</td>"), std::string::npos);  // three classes that are easy to tell
  EXPECT_NE(html.find("--epochs=8"), std::string::npos);
  EXPECT_NE(html.find("Memory over the step"), std::string::npos);
  int64_t confusion = 0;
  const std::regex cell("transparent\\)\">(\\d+)</td>");
  for (std::sregex_iterator it(html.begin(), html.end(), cell), end; it != end; ++it) confusion += std::stoll((*it)[1]);
  EXPECT_EQ(confusion, 30);
}

// The "best" evaluation is that of the greatest loss: the first, whose accuracy the last weights do not have.
TEST_F(Report, ShowsTheWeightsThatAreExported) {
  const std::string flags = "--epochs 12 --eval-every 1ep --lr 0.0003 --export-weights best --monitor loss:max --out r";
  const Outcome o = Train(flags);
  ASSERT_EQ(o.code, 0) << o.err;
  const auto summary = nlohmann::json::parse(ReadAll(Path("r/summary.json")));
  double exported = -1;
  std::istringstream lines(ReadAll(Path("r/metrics.jsonl")));
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event["event"] == "eval" && event["step"] == summary["exported"]["step"]) exported = event["eval_accuracy"];
  }
  ASSERT_NE(exported, summary["eval"]["accuracy"].get<double>());  // else the test shows nothing
  std::smatch shown;
  const std::string html = ReadAll(Path("r/report.html"));
  ASSERT_TRUE(std::regex_search(html, shown, std::regex("<td>accuracy</td><td>[^<]*</td><td>([0-9.]+) %")));
  EXPECT_NEAR(std::stod(shown[1]), 100 * exported, 0.051);
}

TEST_F(Report, NumbersAndNoEvaluation) {
  std::ofstream(Path("t.csv")) << "a,b,target\n1,2,3.5\n2,3,5.5\n3,4,7.5\n4,5,9.5\n5,6,11\n6,7,13\n7,8,15\n8,9,17\n";
  tiny::Model m;
  m.nodes = {{"MatMul", {"x", "w"}, {"y"}}};
  m.input_shape = {-1, 2};
  m.weights = {{"w", {2, 1}, {0.5f, 0.25f}}};
  m.Save(Path("n.onnx"));
  const std::string flags = "--model n.onnx --data t.csv --label target --max-steps 5 --threads 1 --quiet ";
  const Outcome o = Run(flags + "--eval-split last:0.25 --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(ReadAll(Path("r/report.html")).find("prediction over label"), std::string::npos);
  ASSERT_EQ(Run(flags + "--out s").code, 0);
  EXPECT_EQ(ReadAll(Path("s/report.html")).find("Predictions"), std::string::npos);
}

TEST_F(Report, PathsThatAreNotUtf8) {
  const std::string model = "mod\xe8le.onnx",
                    data =
                        "donn\xe9"
                        "es.npz",
                    out = "r\xe9sultat";
  std::filesystem::copy(Path("m.onnx"), Path(model));
  std::filesystem::copy(Path("d.npz"), Path(data));
  const std::string flags = StrCat(" --model ", model, " --data ", data, " --threads 1 ");
  const std::string train = StrCat("train ", flags, "--quiet --max-steps 4 --save-every 2 --out ", out);
  for (const std::string& words : {train, train + " --resume auto", StrCat("compare-runs ", out, " --json"),
                                   StrCat("bench --json --max-steps 2", flags), StrCat("eval --json", flags),
                                   StrCat("inspect --json --model ", model), StrCat("plan --json --model ", model)}) {
    const Outcome o = Run(words);
    EXPECT_EQ(o.code, 0) << words << o.err;
  }
  EXPECT_TRUE(Exists(out + "/report.html"));
  EXPECT_TRUE(nlohmann::json::accept(ReadAll(Path(out + "/summary.json"))));
}

// The timeline has the peak that the plan of the program has, up to alignment.
TEST_F(Report, MemoryIsThatOfThePlan) {
  tiny::Model m;
  m.nodes = {{"MatMul", {"x", "w1"}, {"a"}}, {"Tanh", {"a"}, {"b"}},     {"MatMul", {"b", "w2"}, {"c"}},
             {"Softmax", {"c"}, {"d"}},      {"Mul", {"d", "c"}, {"e"}}, {"MatMul", {"e", "w3"}, {"y"}}};
  m.weights = {{"w1", {4, 64}, tiny::Uniform(256, 0.1f, 1)},
               {"w2", {64, 200}, tiny::Uniform(12800, 0.1f, 2)},
               {"w3", {200, 3}, tiny::Uniform(600, 0.1f, 3)}};
  m.Save(Path("n.onnx"));
  const LabelInfo labels{.present = true, .sample = {DType::kInt64, {}}, .max_value = 2};
  for (const char* name : {"cpu", "torch"}) {
    const auto model = OnnxModel::Load(Path("n.onnx"));
    const auto backend = CreateBackend(name, {});
    ASSERT_TRUE(backend.ok()) << backend.status();
    const auto session = Session::Create(*model, backend->get(), {.labels = labels, .micro_batch = 128});
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_TRUE((*session)->Plan(256).ok());
    size_t programs = 0;
    for (const ProgramProfile& profile : (*session)->Profile()) {
      if (!profile.name.starts_with("micro")) continue;
      ++programs;
      const auto timeline = TraceMemory(*profile.program);
      ASSERT_TRUE(timeline.has_value());
      int64_t peak = 0, listed = 0;
      for (const int64_t bytes : timeline->live[timeline->peak]) peak += bytes;
      for (const LiveTensor& tensor : timeline->at_peak) listed += tensor.bytes;
      const auto bound = static_cast<int64_t>(profile.program->memory().lower_bound);
      EXPECT_EQ(listed, peak) << name;
      EXPECT_LE(peak, bound) << name;
      EXPECT_GE(peak, bound - 64 * std::ssize(timeline->at_peak)) << name;
      EXPECT_EQ(timeline->arena, static_cast<int64_t>(profile.program->memory().arena)) << name;
      EXPECT_GT(timeline->backward, 0) << name;
      EXPECT_LT(timeline->backward, std::ssize(timeline->live)) << name;
      EXPECT_TRUE(std::ranges::any_of(timeline->at_peak, [](const LiveTensor& t) { return t.type == "f32[128,200]"; }))
          << name;
    }
    EXPECT_EQ(programs, 2) << name;
  }
}

TEST_F(Report, ShowsTheTextOfASample) {
  std::ofstream(Path("t.csv")) << "text,label\ngood <b> film,1\n" << std::string(500, 'x') + "é,0\n";
  const auto data = OpenDataset(Path("t.csv"), {.text = {.names = {"text"}}});
  ASSERT_TRUE(data.ok()) << data.status();
  const TrainData train{.dataset = *data, .specs = {{.feed = "x", .columns = {0}}}};
  EXPECT_EQ(SampleHtml(train, 0, nullptr), "<p class=\"text\">good &lt;b&gt; film</p>");
  EXPECT_LT(SampleHtml(train, 1, nullptr).size(), 450);
  EXPECT_NE(SampleHtml(train, 1, nullptr).find("x …</p>"), std::string::npos);
}

TEST_F(Report, ComparesRuns) {
  ASSERT_EQ(Train("--epochs 2 --lr 0.05 --out a").code, 0);
  ASSERT_EQ(Train("--epochs 3 --lr 0.01 --out b").code, 0);
  const Outcome o = Run("compare-runs a b --out page.html");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(std::regex_search(o.out, std::regex("updates +6 +9\n"))) << o.out;
  EXPECT_TRUE(std::regex_search(o.out, std::regex("--lr +0.05 +0.01\n"))) << o.out;
  EXPECT_EQ(o.out.find("--batch-size"), std::string::npos) << o.out;  // does not differ
  EXPECT_NE(ReadAll(Path("page.html")).find("b evaluation"), std::string::npos);
  EXPECT_NE(Run("compare-runs a b --json").out.find("\"final_loss\""), std::string::npos);
}

TEST_F(Report, MonitorShowsARun) {
  ASSERT_EQ(Train("--epochs 4 --log-every 1 --out a").code, 0);
  const Outcome o = Run("monitor a");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("training loss"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("\u2800"), std::string::npos) << o.out;
  EXPECT_EQ(o.out.find("running"), std::string::npos) << o.out;
}

TEST_F(Report, MonitorSeesARunThatPreparesItsData) {
  std::filesystem::create_directory(Path("a"));
  const int folder = open(Path("a").c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(folder, LOCK_EX), 0);
  const Outcome o = Run("monitor a");
  close(folder);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("a (running)"), std::string::npos) << o.out;
}

TEST_F(Report, MonitorSeesARunThatIsWritten) {
  const Outcome o =
      RunProcess(StrCat("--model m.onnx --data d.npz --epochs 10000000 --log-every 5000 --max-time 4 --quiet ",
                        "--out a > log & pid=$!; sleep 2; cd ", folder_, "; ", BinaryPath(),
                        "/bin/onnxtrain monitor a > seen; wait $pid"));
  EXPECT_NE(ReadAll(Path("seen")).find("a (running)"), std::string::npos) << o.out << o.err;
}

TEST_F(Report, BadInputIsOneLine) {
  const auto fails = [&](const std::string& words, const std::string& part) {
    const Outcome o = Run(words);
    EXPECT_EQ(o.code, 1) << words;
    EXPECT_NE(o.err.find(part), std::string::npos) << o.err;
    EXPECT_EQ(std::ranges::count(o.err, '\n'), 1) << o.err;
  };
  fails("monitor", "name the folder of one run");
  fails("monitor a b", "name the folder of one run");
  fails("monitor nothing", "nothing: holds no run");
  fails("compare-runs", "name the folders of runs");
  fails("eval a", "'a': a word that belongs to no flag");
  std::filesystem::create_directory(Path("bad"));
  std::ofstream(Path("bad/metrics.jsonl")) << "{\"event\":\"step\",\"step\":1,\"loss\":2}\nnonsense\n";
  fails("compare-runs bad", "bad/metrics.jsonl: line 2");
  std::ofstream(Path("bad/metrics.jsonl")) << "{\"event\":\"step\",\"step\":1,\"loss\":2}\n{\"event\":\"st";
  EXPECT_EQ(Run("compare-runs bad").code, 0);  // the last line is still being written
}

}  // namespace
}  // namespace onnxtrain::cli
