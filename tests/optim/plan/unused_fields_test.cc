#include "optim/config/unused_fields.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

TEST(ConfigFields, SayWhatEachFieldNeeds) {
  for (const ConfigField& field : ConfigFields()) {
    ASSERT_NE(field.needs[0], nullptr) << field.name << ": no condition, not even kAlways";
    std::set<std::string_view> messages;
    for (const Condition* condition : field.needs) {
      if (condition == nullptr) continue;
      const bool always = condition->fact == nullptr && condition->holds == nullptr;
      EXPECT_EQ(always, std::string_view(condition->otherwise).empty()) << field.name;
      EXPECT_TRUE(!always || field.needs[1] == nullptr) << field.name << ": always, and something else?";
      EXPECT_TRUE(condition->fact == nullptr || condition->holds == nullptr) << field.name;
      EXPECT_EQ(condition->holds != nullptr, condition->from != ConfigState::kOpen) << field.name;
      EXPECT_TRUE(messages.insert(condition->otherwise).second) << field.name << ": " << condition->otherwise;
    }
    EXPECT_EQ(ExplainUnused(TrainConfig(), field, {}), "") << field.name << ": refused before anything is known";
  }
}

// Every fact, where it does not hold, leaves some field without effect.
TEST(ConfigFields, HaveAMessageForEachFact) {
  TrainConfig config;
  for (const ConfigField& field : ConfigFields()) {
    for (const Condition* condition : field.needs) {
      if (condition == nullptr || condition->fact == nullptr || condition->of_value) continue;
      RunFacts facts;
      facts.*condition->fact = false;
      EXPECT_NE(ExplainUnused(config, field, facts), "") << field.name;
    }
  }
}

struct Row {
  const char* field;
  TrainConfig with, without;
};

TEST(ExplainUnused, FollowsTheOtherFields) {
  const Row rows[] = {
      {"momentum", {.optimizer = "sgd"}, {.optimizer = "adamw"}},
      {"momentum", {.optimizer = "lars"}, {.optimizer = "lion"}},
      {"dampening", {.optimizer = "sgd", .momentum = 0.9}, {.optimizer = "sgd"}},
      {"nesterov", {.optimizer = "sgd", .momentum = 0.9}, {.optimizer = "rmsprop", .momentum = 0.9}},
      {"eps", {.optimizer = "lamb"}, {.optimizer = "adafactor"}},
      {"eps", {.optimizer = "adam"}, {.optimizer = "sgd"}},
      {"betas", {.optimizer = "adam"}, {.optimizer = "sgd"}},
      {"galore_rank", {.optimizer = "galore_adamw"}, {.optimizer = "adamw"}},
      {"warmup", {.lr_scheduler = "wsd"}, {.lr_scheduler = "one_cycle:pct=0.2"}},
      {"min_lr", {.lr_scheduler = "cosine"}, {.lr_scheduler = "constant"}},
      {"no_decay", {.weight_decay = 0.1}, {}},
      {"eval_split", {}, {.eval_data = "e.npz"}},
      {"lr_scale_base", {.lr_scale = "sqrt"}, {}},
      {"monitor", {.keep_best = 1}, {}},
      {"prefetch_factor", {.num_workers = 1}, {.num_workers = 0}},
      {"loss_scale", {.mixed_precision = "fp16"}, {.mixed_precision = "bf16"}},
      {"sync_batch_norm", {.sync_batch_norm = true}, {.tensor = 2, .sync_batch_norm = true}},
  };
  for (const auto& [name, with, without] : rows) {
    const ConfigField& field = *FindField(name);
    EXPECT_EQ(ExplainUnused(with, field, {.config = ConfigState::kFinal}), "") << name;
    EXPECT_NE(ExplainUnused(without, field, {.config = ConfigState::kFinal}), "") << name;
    EXPECT_EQ(ExplainUnused(without, field, {.config = ConfigState::kOpen}), "") << name;
  }
}

TEST(RefuseUnused, NamesWhatItIsAbout) {
  const auto refuse = [](const TrainConfig& config, const RunFacts& facts) {
    return std::string(ToStd(RefuseUnused(config, facts).message()));
  };
  EXPECT_EQ(refuse({}, {.has_data = false, .has_pictures = false}), "");
  TrainConfig config{.resize = "pad"};
  EXPECT_EQ(refuse(config, {.subject = "images"}), "");
  EXPECT_EQ(refuse(config, {.subject = "x.npz", .has_pictures = false}),
            "`resize`: has no effect: x.npz feeds no files of pictures");
  EXPECT_EQ(refuse(config, {.has_pictures = false}), "`resize`: has no effect: the data feeds no files of pictures");
  EXPECT_EQ(refuse(config, {.has_data = false, .has_pictures = false}), "`resize`: has no effect: there is no `data`");
  config = {.label_smoothing = 0.1};
  EXPECT_EQ(refuse(config, {.takes_label_smoothing = false}),
            "`label_smoothing`: has no effect: the loss is not cross_entropy");
  EXPECT_EQ(refuse(config, {.subject = "mse", .takes_label_smoothing = false}),
            "`label_smoothing`: has no effect on loss mse");
  config = {.comm_dtype = "bf16"};
  EXPECT_EQ(refuse(config, {.subject = "one rank", .has_ranks = false}),
            "`comm_dtype` bf16: has no effect on one rank (`world`)");
  EXPECT_EQ(refuse(config, {.has_ranks = false}),
            "`comm_dtype` bf16: this process is no rank of a distributed run (onnxtrain launch)");
  config = {.pipeline = 2, .deterministic = true};
  EXPECT_EQ(refuse(config, {.config = ConfigState::kParsed}),
            "`deterministic`: has no effect with `pipeline`, where every rank runs all micro-batches in one order");
  config = {.lr = {"0.1"}};
  EXPECT_EQ(refuse(config, {.makes = kTaskExport}),
            "`lr`: has no effect on a model (`gradient_graph`, `training_graph`)");
  EXPECT_EQ(refuse(config, {.makes = kTaskGrad}), "`lr`: has no effect on a graph of gradients (`training_graph`)");
  EXPECT_EQ(refuse(config, {}), "");
}

}  // namespace
}  // namespace onnxtrain
