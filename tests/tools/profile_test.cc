// --profile: what the threads of a run do and when.
#include <cmath>
#include <nlohmann/json.hpp>

#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "optim/record/telemetry/trace.h"
#include "tests/tools/blobs.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

TEST(StepRange, ReadsOneOrTwoNumbers) {
  EXPECT_EQ(ParseStepRange("20-29")->last, 29);
  EXPECT_EQ(ParseStepRange("7")->first, 7);
  EXPECT_EQ(ParseStepRange("7")->last, 7);
  for (const char* text : {"", "-", "3-", "-3", "0-3", "5-4", "a", "1-2-3", "1.5"})
    EXPECT_FALSE(ParseStepRange(text).ok()) << text;
}

class Profile : public Scratch {
 protected:
  Profile() {
    tiny::Model m;
    m.nodes = {{"MatMul", {"x", "w1"}, {"h0"}}, {"Tanh", {"h0"}, {"h"}}, {"MatMul", {"h", "w2"}, {"y"}}};
    m.weights = {{"w1", {4, 16}, tiny::Uniform(64, 0.5f, 1)}, {"w2", {16, 3}, tiny::Uniform(48, 0.5f, 2)}};
    m.Save(Path("m.onnx"));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Blobs(64)).ok());
  }

  static constexpr const char* kTrain =
      "--model m.onnx --data d.npz --eval-split last:0.25 --batch-size 8 --epochs 2 --save-every 4 --threads 1 "
      "--num-workers 1 ";

  Json Trace(const std::string& file) const { return Json::parse(ReadAll(Path(file))); }
};

double End(const Json& e) { return e["ts"].get<double>() + e["dur"].get<double>(); }

// Is `inner` within a span of this name and thread? By one nanosecond, as times are rounded.
bool IsWithin(const Json& inner, const Json& events, const std::string& name) {
  return std::any_of(events.begin(), events.end(), [&](const Json& e) {
    return e["ph"] == "X" && e["name"] == name && e["tid"] == inner["tid"] &&
           e["ts"].get<double>() <= inner["ts"].get<double>() + 2e-3 && End(inner) <= End(e) + 2e-3;
  });
}

int64_t Nanoseconds(const Json& microseconds) { return std::llround(1000 * microseconds.get<double>()); }

bool HasKeys(const Json& event, const std::set<std::string>& required, const std::set<std::string>& optional) {
  for (const auto& [key, value] : event.items()) {
    if (!required.contains(key) && !optional.contains(key)) return false;
  }
  return std::ranges::all_of(required, [&](const std::string& key) { return event.contains(key); });
}

// The spans of a thread nest: each lies within the one before it that has not ended, or begins at its end or later.
void CheckNesting(std::vector<Json> spans) {
  std::ranges::stable_sort(spans, {},
                           [](const Json& e) { return std::pair(Nanoseconds(e["ts"]), -Nanoseconds(e["dur"])); });
  std::vector<int64_t> open;  // ends
  for (const Json& e : spans) {
    const int64_t begin = Nanoseconds(e["ts"]), end = begin + Nanoseconds(e["dur"]);
    while (!open.empty() && open.back() <= begin) open.pop_back();
    EXPECT_TRUE(open.empty() || end <= open.back()) << e << " overlaps the end of the span around it";
    open.push_back(end);
  }
}

// What chrome://tracing and Perfetto need: the object form of the Trace Event Format.
void CheckFormat(const Json& trace) {
  ASSERT_TRUE(HasKeys(trace, {"traceEvents"}, {"displayTimeUnit", "otherData"}));
  EXPECT_TRUE(trace["displayTimeUnit"] == "ms" || trace["displayTimeUnit"] == "ns");
  std::map<std::string, std::set<std::pair<int64_t, int64_t>>> named;
  std::map<std::pair<int64_t, int64_t>, std::vector<Json>> spans;
  for (const Json& e : trace["traceEvents"]) {
    const std::pair thread(e["pid"].get<int64_t>(), e.value("tid", int64_t{0}));
    ASSERT_TRUE(e["name"].is_string()) << e;
    if (e["ph"] == "M") {
      EXPECT_TRUE(HasKeys(e, {"ph", "name", "pid", "args"}, {"tid"})) << e;
      EXPECT_TRUE(e["args"]["name"].is_string()) << e;
      EXPECT_TRUE(named[e["name"]].insert(thread).second) << e << " is there twice";
      continue;
    }
    ASSERT_EQ(e["ph"], "X") << e;
    EXPECT_TRUE(HasKeys(e, {"ph", "name", "cat", "pid", "tid", "ts", "dur"}, {"args"})) << e;
    EXPECT_GE(e["ts"].get<double>(), 0) << e;
    EXPECT_GE(e["dur"].get<double>(), 0) << e;
    spans[thread].push_back(e);
  }
  EXPECT_EQ(named.size(), 2);
  for (const auto& [thread, list] : spans) {
    EXPECT_TRUE(named["thread_name"].contains(thread)) << thread.second;
    EXPECT_TRUE(named["process_name"].contains({thread.first, 0}));
    CheckNesting(list);
  }
}

void CheckTrace(const Json& trace, const std::vector<std::string>& updates) {
  std::set<std::string> names, threads, nodes, within;
  for (const Json& e : trace["traceEvents"]) {
    if (e["ph"] == "M") threads.insert(e["args"]["name"].get<std::string>());
    if (e["ph"] != "X") continue;
    names.insert(e["name"].get<std::string>());
    EXPECT_GE(e["dur"].get<double>(), 0);
    if (e["cat"] != "operator") continue;
    nodes.insert(e["args"]["node"].get<std::string>());
    EXPECT_NE(e["args"]["types"].get<std::string>().find(" → "), std::string::npos) << e;
    EXPECT_GT(e["args"]["bytes"].get<double>(), 0) << e;
    for (const std::string& update : updates) {
      if (IsWithin(e, trace["traceEvents"], update)) within.insert(update);
    }
    EXPECT_TRUE(std::any_of(updates.begin(), updates.end(), [&](const std::string& update) {
      return IsWithin(e, trace["traceEvents"], update);
    })) << e;
    EXPECT_TRUE(IsWithin(e, trace["traceEvents"], "forward") || IsWithin(e, trace["traceEvents"], "backward") ||
                IsWithin(e, trace["traceEvents"], "update") || IsWithin(e, trace["traceEvents"], "pack weights"))
        << e;
  }
  EXPECT_EQ(within, std::set<std::string>(updates.begin(), updates.end()));
  for (const char* name : {"data wait", "copy", "forward", "backward", "update", "checkpoint", "write checkpoint",
                           "evaluation", "fill batch", "update 1", "update 12"})
    EXPECT_TRUE(names.contains(name)) << name;
  for (const char* name : {"training", "loader 1", "checkpoint writer"}) EXPECT_TRUE(threads.contains(name)) << name;
  for (const char* node : {"h0_node", "h_node", "y_node"}) EXPECT_TRUE(nodes.contains(node)) << node;
}

TEST_F(Profile, HoldsTheOperatorsOfTheUpdates) {
  for (const std::string backend : {"cpu", "torch"}) {
    const Outcome plain = RunProcess(StrCat(kTrain, "--quiet --overwrite --out a --backend ", backend));
    ASSERT_EQ(plain.code, 0) << plain.err;
    const Outcome run = RunProcess(StrCat(kTrain, "--overwrite --out b --profile p.json --backend ", backend));
    ASSERT_EQ(run.code, 0) << run.err;
    CheckFormat(Trace("p.json"));
    CheckTrace(Trace("p.json"), {"update 3", "update 4", "update 5"});
    EXPECT_EQ(ReadAll(Path("a/model.onnx")), ReadAll(Path("b/model.onnx"))) << "a profile changes no number";
    EXPECT_NE(run.err.find("3 recorded"), std::string::npos) << run.err;
    EXPECT_NE(run.err.find("MatMul"), std::string::npos) << run.err;
  }
}

TEST_F(Profile, OfChosenUpdatesAndOfARunThatGoesOn) {
  ASSERT_EQ(RunProcess(StrCat(kTrain, "--quiet --out a --max-steps 6")).code, 0);
  const Outcome run = RunProcess("--resume a --quiet --max-steps 12 --profile p.json --profile-steps 8-9");
  ASSERT_EQ(run.code, 0) << run.err;
  std::set<int64_t> recorded;
  const Json trace = Trace("p.json");
  for (const Json& e : trace["traceEvents"]) {
    if (e["ph"] != "X" || e["cat"] != "operator") continue;
    for (int64_t update = 7; update <= 12; ++update) {
      if (IsWithin(e, trace["traceEvents"], StrCat("update ", update))) recorded.insert(update);
    }
  }
  EXPECT_EQ(recorded, (std::set<int64_t>{8, 9}));
}

// Without a profile, too: with and without accumulation, of a run that goes on.
TEST_F(Profile, TheSummaryDividesComputing) {
  for (const std::string flags : {"--backend cpu", "--backend torch --micro-batch-size 4"}) {
    const Outcome run = RunProcess(StrCat(kTrain, "--overwrite --out a --max-steps 6 ", flags));
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_NE(run.out.find("(forward "), std::string::npos) << run.out;
    EXPECT_NE(run.out.find("(an update waited "), std::string::npos) << run.out;
    EXPECT_NE(ReadAll(Path("a/report.html")).find("the backward pass"), std::string::npos);
    ASSERT_EQ(RunProcess("--resume a --quiet --max-steps 12").code, 0);
    const Json summary = Json::parse(ReadAll(Path("a/summary.json")));
    const Json& split = summary["time_split"];
    double parts = 0;
    for (const char* part : {"copy", "forward", "backward", "optimizer"}) {
      EXPECT_GT(split[part], 0) << part << " " << flags;
      parts += split[part].get<double>();
    }
    EXPECT_LE(parts, split["compute"]) << flags;
    EXPECT_GT(summary["checkpoint_pause"], 0);
    EXPECT_LE(summary["checkpoint_pause"], split["checkpoint"]);
  }
  ASSERT_EQ(RunProcess(StrCat(kTrain, "--quiet --overwrite --out a --max-steps 1")).code, 0);
  const Json summary = Json::parse(ReadAll(Path("a/summary.json")));
  EXPECT_EQ(summary["time_split"]["forward"], nullptr) << "one update tells nothing";
  EXPECT_EQ(summary["checkpoint_pause"], nullptr);
}

TEST_F(Profile, BadFlagsAreOneLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--profile-steps 2-3", "--profile-steps: has no effect without --profile"},
      {"--profile p.json --profile-steps 9-3", "--profile-steps: expected updates like 20-29"},
      {"--profile p.json --profile-steps 13-20", "--profile-steps 13-20: the run has 12 updates"},
      {"--profile d.npz", "--profile"},
      {"--profile no/p.json", "--profile"},
  };
  for (const auto& [flags, message] : cases) {
    const Outcome run = RunProcess(StrCat(kTrain, "--quiet --out c ", flags));
    EXPECT_EQ(run.code, 1) << flags;
    EXPECT_NE(run.err.find(message), std::string::npos) << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

}  // namespace
}  // namespace onnxtrain
