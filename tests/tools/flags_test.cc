#include "tools/onnxtrain/flags/flags.h"

#include <gmock/gmock.h>

#include "frontend/base/status.h"

namespace onnxtrain::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string Error(const std::vector<SpecifiedFlag>& flags) {
  const auto config = ParseConfig({.flags = flags});
  return config.ok() ? "" : FieldsToFlags(ToStd(config.status().message()));
}

TEST(FieldsToFlags, ReplacesNamesOfFieldsOnly) {
  EXPECT_EQ(FieldsToFlags("`batch_size` 10 is not `micro_batch_size` 3"),
            "--batch-size 10 is not --micro-batch-size 3");
  EXPECT_EQ(FieldsToFlags("the loss, `loss`"), "the loss, --loss");
  EXPECT_EQ(FieldsToFlags("node `conv1`: `lr`"), "node `conv1`: --lr");
  EXPECT_EQ(FieldsToFlags("a ` alone, then `lr`"), "a ` alone, then --lr");
  EXPECT_EQ(FieldsToFlags("`lr"), "`lr");
  EXPECT_EQ(FieldsToFlags(""), "");
}

TEST(ParseConfig, FlagsBecomeFields) {
  const auto config = ParseConfig({.flags = {{"epochs", "5", "preset.flags"},
                                             {"epochs", "7", ""},
                                             {"freeze", "a*", ""},
                                             {"freeze", "b*", ""},
                                             {"shuffle", "false", ""}}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->epochs, 7);
  EXPECT_THAT(config->freeze, ElementsAre("a*", "b*"));
  EXPECT_FALSE(config->shuffle);
}

TEST(ParseConfig, ErrorsNameFlagsAndTheirFile) {
  EXPECT_THAT(Error({{"epochs", "0", "preset.flags"}}), HasSubstr("preset.flags: --epochs: expected a number of at"));
  EXPECT_THAT(Error({{"optimizer", "adma", ""}}), HasSubstr("got 'adma'; did you mean adam?"));
  EXPECT_THAT(Error({{"require", "accuracy", ""}}), HasSubstr("--require: expected METRIC>=X"));
  EXPECT_THAT(Error({{"head", "mean", ""}}), HasSubstr("--head: how many classes? (--num-classes N or auto)"));
}

// The Trainer's batch is that of a device: the batch of an update follows from it.
TEST(ParseConfig, TheBatchOfADeviceMakesTheGlobalBatch) {
  const SpecifiedFlag device{"micro_batch_size", "8", "", "per_device_train_batch_size"};
  struct Row {
    std::vector<SpecifiedFlag> flags;
    int ranks;
    int64_t batch;
  };
  const Row rows[] = {{{device}, 1, 8},
                      {{device}, 4, 32},
                      {{device, {"gradient_accumulation_steps", "2", ""}}, 1, 16},
                      {{device, {"gradient_accumulation_steps", "2", ""}}, 4, 64},
                      {{device, {"tensor", "4", ""}}, 4, 8},
                      {{device, {"world", "3", ""}}, 1, 24},
                      {{device, {"batch_size", "48", ""}}, 2, 48},
                      {{{"micro_batch_size", "8", ""}}, 4, 0}};
  for (const Row& row : rows) {
    const auto config = ParseConfig({.flags = row.flags}, row.ranks);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->batch_size, row.batch) << row.ranks;
    EXPECT_EQ(config->micro_batch_size, 8);
    EXPECT_EQ(config->gradient_accumulation_steps, 0);
  }
}

TEST(DescribeSynonyms, TellsOurFlags) {
  const Arguments args{.flags = {{"lr", "0.1", "", "learning_rate"},
                                 {"epochs", "2", ""},
                                 {"resume", "", "", "resume_from_checkpoint", "False"},
                                 {"gradient_checkpointing", "none", "", "gradient_checkpointing", "False"},
                                 {"micro_batch_size", "8", "", "per_device_train_batch_size"}}};
  EXPECT_THAT(DescribeSynonyms(args, 2),
              ElementsAre("--learning-rate is --lr 0.1", "--resume-from-checkpoint False leaves --resume out",
                          "--gradient-checkpointing False is --gradient-checkpointing none",
                          "--per-device-train-batch-size is --micro-batch-size 8",
                          "--batch-size 16 follows: 8 × 2 passes of all devices together"));
  EXPECT_THAT(DescribeSynonyms({.flags = {{"epochs", "2", ""}}}, 2), testing::IsEmpty());
}

TEST(ParseConfig, ErrorsNameTheFlagThatWasWritten) {
  EXPECT_THAT(Error({{"epochs", "many", "", "num_train_epochs"}}),
              HasSubstr("--num-train-epochs: --epochs: expected a whole number, got 'many'"));
}

TEST(DefaultFlags, AreThoseThatNobodySpecified) {
  TrainConfig config{.epochs = 2}, resolved{.shuffle = true, .batch_size = 32, .epochs = 2};
  resolved.specified = {"epochs", "batch_size", "shuffle", "drop_last"};
  EXPECT_THAT(DefaultFlags(config, resolved), ElementsAre("--shuffle", "--no-drop-last", "--batch-size 32"));
}

TEST(FlagHelp, HasEveryFlagOfTheTaskWithItsDefault) {
  const std::string train = FlagHelp(kTaskTrain), plan = FlagHelp(kTaskPlan);
  for (const ConfigField& field : ConfigFields()) {
    const std::string flag = FormatFlag(field.name).substr(2);
    const std::string shown = field.is_bool() ? "  --[no-]" + flag + " " : StrCat("  --", flag, " ", field.value);
    EXPECT_EQ(train.find(shown) != std::string::npos, (field.tasks & kTaskTrain) != 0) << shown;
    EXPECT_EQ(plan.find(shown) != std::string::npos, (field.tasks & kTaskPlan) != 0) << shown;
  }
  EXPECT_THAT(train, HasSubstr("(default adamw)"));
  EXPECT_THAT(train, HasSubstr("(default 1ep)"));
  EXPECT_THAT(train, Not(HasSubstr("`")));
  EXPECT_THAT(train, Not(HasSubstr("(default )")));
}

}  // namespace
}  // namespace onnxtrain::cli
