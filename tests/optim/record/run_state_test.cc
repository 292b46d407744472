#include "optim/record/checkpoint/resume.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "frontend/base/strings.h"

namespace onnxtrain {
namespace {

RunState Example() {
  RunState state{.version = "1.2", .cpu = "a", .finished = true, .model_sha256 = "ab", .data_fingerprint = "cd"};
  state.samples_per_second = 12.5;
  state.position.result = {.stop_reason = "epochs", .steps = 7, .samples = 70, .skipped_steps = 1, .oom_retries = 2};
  state.position.result.final_loss = std::numeric_limits<double>::quiet_NaN();
  state.position.result.eval = {
      .loss = 1.0 / 3, .accuracy = 0.75, .samples = 9, .metrics = {{"f1", 0.1}, {"auc", NAN}}};
  state.position.logged_step = 6;
  state.position.evaluated_step = 4;
  state.position.best = {.step = 4, .metric = 0.1 + 0.2, .worse_since = 3};
  state.position.plateau = {.factor = 0.01, .bad = 2, .cooling = 1};
  state.position.losses = {.values = {0.1, 0.2}, .count = 66, .median = 0.15, .limit = 0.5};
  state.position.outliers = {{.of = Outlier::Of::kGradNorm, .step = 6, .value = 9, .median = 1.0 / 3}};
  state.session = {
      .attempted = 7, .reported_attempts = 6, .reported_skips = 1, .skipped_in_a_row = 1, .micro_batch = 5};
  state.config.model = "m.onnx";
  state.config.data = "d.npz";
  state.config.lr = {"0.1", "w=2"};
  state.config.specified = {"model", "data", "lr"};
  return state;
}

TEST(RunState, MakesTheRoundTrip) {
  const RunState state = Example();
  const auto read = ParseRunState(ToJson(state));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(*read), ToJson(state));
  EXPECT_EQ(read->position.best.metric, 0.1 + 0.2);
  EXPECT_TRUE(std::isnan(read->position.result.final_loss));
  EXPECT_TRUE(std::isnan(read->position.plateau.best));
  EXPECT_TRUE(std::isnan(read->position.result.eval.metrics[1].second));
  EXPECT_EQ(read->config.lr, state.config.lr);
  EXPECT_EQ(read->session.micro_batch, 5);
  EXPECT_EQ(read->position.losses.values, (std::vector<double>{0.1, 0.2}));
  EXPECT_EQ(read->position.outliers.at(0).median, 1.0 / 3);
}

TEST(RunState, EveryMemberIsNeeded) {
  const std::string whole = ToJson(Example());
  for (const char* member :
       {"\"steps\"", "\"finished\"", "\"attempted\"", "\"cooling\"", "\"config\"", "\"evaluated_step\""}) {
    std::string text = whole;
    text[text.find(member) + 1] = '?';
    EXPECT_FALSE(ParseRunState(text).ok()) << member;
  }
  for (const char* text : {"", "[]", "{", "{\"position\":3}"}) EXPECT_FALSE(ParseRunState(text).ok()) << text;
}

TrainConfig MakeConfig(const std::vector<std::pair<std::string, std::string>>& fields) {
  TrainConfig config;
  for (const auto& [name, text] : fields) EXPECT_TRUE(SetField(&config, *FindField(name), text).ok()) << name;
  return config;
}

TEST(MergeConfig, TakesTheCheckpointsValuesUnlessOthersAreGiven) {
  RunState saved = Example();
  saved.config = MakeConfig({{"model", "m.onnx"}, {"batch_size", "16"}, {"epochs", "3"}, {"lr", "0.1"}});
  std::vector<std::string> notes;
  const auto merged =
      MergeConfig(MakeConfig({{"batch_size", "16"}, {"lr", "0.2"}, {"num_workers", "3"}}), saved, &notes);
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->batch_size, 16);
  EXPECT_EQ(merged->epochs, 3);
  EXPECT_EQ(merged->num_workers, 3);
  EXPECT_EQ(merged->lr, std::vector<std::string>{"0.2"});
  EXPECT_EQ(notes, std::vector<std::string>{"`lr`: 0.1 → 0.2: from here on"});
}

TEST(MergeConfig, RefusesWhatWouldBeAnotherRun) {
  RunState saved = Example();
  saved.config = MakeConfig({{"batch_size", "16"}, {"optimizer", "sgd"}});
  std::vector<std::string> notes;
  const auto refused = MergeConfig(MakeConfig({{"batch_size", "8"}}), saved, &notes);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(ToStd(refused.status().message()).starts_with("`batch_size`: 16 → 8")) << refused.status();
  const auto forced = MergeConfig(MakeConfig({{"batch_size", "8"}, {"resume_force", "true"}}), saved, &notes);
  ASSERT_TRUE(forced.ok()) << forced.status();
  EXPECT_EQ(forced->batch_size, 16);
  EXPECT_EQ(notes.size(), 1u);
}

TEST(MergeConfig, BothLimitsHold) {
  using Limits = std::vector<std::pair<std::string, std::string>>;
  struct Row {
    Limits then, now;
    int64_t epochs, max_steps;
    std::vector<std::string> notes;
  };
  const Row rows[] = {
      {{{"epochs", "3"}},
       {{"max_steps", "900"}},
       3,
       900,
       {"`max_steps`: unset → 900: from here on", "`epochs` 3: was given when the run began, and holds too"}},
      {{{"max_steps", "9"}},
       {{"epochs", "5"}},
       5,
       9,
       {"`epochs`: unset → 5: from here on", "`max_steps` 9: was given when the run began, and holds too"}},
      {{{"epochs", "3"}},
       {{"epochs", "7"}, {"max_steps", "900"}},
       7,
       900,
       {"`epochs`: 3 → 7: from here on", "`max_steps`: unset → 900: from here on"}},
      {{{"epochs", "3"}, {"max_steps", "9"}}, {}, 3, 9, {}},
      {{}, {{"max_steps", "900"}}, 0, 900, {"`max_steps`: unset → 900: from here on"}},
  };
  for (const Row& row : rows) {
    RunState saved = Example();
    saved.config = MakeConfig(row.then);
    std::vector<std::string> notes;
    const auto merged = MergeConfig(MakeConfig(row.now), saved, &notes);
    ASSERT_TRUE(merged.ok()) << merged.status();
    EXPECT_EQ(merged->epochs, row.epochs);
    EXPECT_EQ(merged->max_steps, row.max_steps);
    EXPECT_EQ(notes, row.notes);
  }
}

TEST(MergeConfig, KeepsTheMicroBatchThatFitTheMemory) {
  RunState saved = Example();
  saved.config = MakeConfig({{"batch_size", "16"}, {"micro_batch_size", "8"}, {"gradient_accumulation_steps", "2"}});
  saved.session.micro_batch = 4;
  saved.session.oom_retries = 1;
  std::vector<std::string> notes;
  const auto merged = MergeConfig(MakeConfig({}), saved, &notes);
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->micro_batch_size, 4);
  EXPECT_EQ(merged->gradient_accumulation_steps, 0);
}

}  // namespace
}  // namespace onnxtrain
