#include "optim/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "frontend/base/status.h"
#include "frontend/data/audio/spectrogram.h"

namespace onnxtrain {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Two texts of a field that differ from its default and from each other where its kind allows that.
std::vector<std::string> SampleTexts(const ConfigField& field) {
  const FieldTraits& t = field.traits;
  if (field.is_bool())
    return {std::holds_alternative<bool TrainConfig::*>(field.member) &&
                    TrainConfig().*std::get<bool TrainConfig::*>(field.member)
                ? "false"
                : "true"};
  if (*t.choices != 0) return absl::StrSplit(t.choices, '|');
  if (std::holds_alternative<Interval TrainConfig::*>(field.member)) return {"500", "0.1ep", "90s"};
  if (t.unit == FieldTraits::Unit::kBytes) return {"900MiB", "4097"};
  if (t.unit == FieldTraits::Unit::kSeconds) return {"90s", "0.5s"};
  std::vector<std::string> texts;
  if (*t.word != 0) texts.emplace_back(t.word);
  if (std::holds_alternative<int64_t TrainConfig::*>(field.member)) {
    texts.emplace_back("7");
  } else if (std::holds_alternative<double TrainConfig::*>(field.member)) {
    texts.insert(texts.end(), {"0.1", "0.3333333333333333"});
  } else if (std::holds_alternative<std::vector<double> TrainConfig::*>(field.member)) {
    texts.emplace_back("0.5,0.25");
  } else {
    texts.insert(texts.end(), {"some text", "a,b"});
  }
  return texts;
}

TrainConfig ReadFlags(const std::string& text) {
  TrainConfig config;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    const size_t equals = line.find('=');
    std::string name = line.substr(2, equals - 2);
    std::replace(name.begin(), name.end(), '-', '_');
    const ConfigField* field = FindField(name);
    EXPECT_TRUE(field != nullptr && SetField(&config, *field, line.substr(equals + 1)).ok()) << line;
  }
  return config;
}

TEST(TrainConfig, EveryFieldMakesTheRoundTrip) {
  for (const ConfigField& field : ConfigFields()) {
    for (const std::string& text : SampleTexts(field)) {
      TrainConfig config;
      ASSERT_TRUE(SetField(&config, field, text).ok()) << field.name << " " << text;
      EXPECT_TRUE(IsSpecified(config, field.name));
      EXPECT_EQ(FieldTexts(config, field), std::vector<std::string>{text}) << field.name;
      if (field.traits.transient) {
        EXPECT_EQ(ToFlags(config), "");
        continue;
      }
      EXPECT_EQ(ReadFlags(ToFlags(config)), config) << ToFlags(config);
      const auto read = FromJson(ToJson(config));
      ASSERT_TRUE(read.ok()) << field.name << read.status();
      EXPECT_EQ(*read, config) << ToJson(config);
    }
  }
}

TEST(TrainConfig, AllFieldsTogether) {
  TrainConfig config;
  for (const ConfigField& field : ConfigFields()) {
    if (field.traits.transient) continue;
    ASSERT_TRUE(SetField(&config, field, SampleTexts(field).back()).ok()) << field.name;
  }
  EXPECT_EQ(ReadFlags(ToFlags(config)), config);
  EXPECT_EQ(*FromJson(ToJson(config)), config);
}

TEST(TrainConfig, RepeatableFieldsCollectTheirValues) {
  TrainConfig config;
  for (const char* glob : {"conv*", "fc, b"}) ASSERT_TRUE(SetField(&config, *FindField("freeze"), glob).ok());
  EXPECT_EQ(config.freeze, (std::vector<std::string>{"conv*", "fc, b"}));
  EXPECT_EQ(ToFlags(config), "--freeze=conv*\n--freeze=fc, b\n");
  EXPECT_EQ(*FromJson(ToJson(config)), config);
}

TEST(TrainConfig, SpecifiedMeansSetByNameOrChanged) {
  TrainConfig config;
  EXPECT_FALSE(IsSpecified(config, "label_smoothing"));
  EXPECT_EQ(ToFlags(config), "");
  ASSERT_TRUE(SetField(&config, *FindField("label_smoothing"), "0").ok());
  EXPECT_TRUE(IsSpecified(config, "label_smoothing"));
  config.optimizer = "sgd";
  EXPECT_TRUE(IsSpecified(config, "optimizer"));
  EXPECT_EQ(ToFlags(config), "--optimizer=sgd\n--label-smoothing=0\n");
}

TEST(TrainConfig, WritesYaml) {
  TrainConfig config{.freeze = {"conv*", "fc, b"}, .betas = {0.9, 0.95}, .epochs = 2};
  config.shuffle = false;
  EXPECT_EQ(ToYaml(config, kTaskTrain),
            "freeze: [\"conv*\",\"fc, b\"]\nshuffle: false\nbetas: [0.9,0.95]\nepochs: 2\n");
  EXPECT_EQ(ToYaml(TrainConfig()), "");
}

TEST(TrainConfig, TasksHaveFieldsOfTheirOwn) {
  TrainConfig config{.weights = "w.npz", .epochs = 2};
  EXPECT_EQ(ToFlags(config, kTaskTrain), "--epochs=2\n");
  EXPECT_EQ(ToFlags(config, kTaskExport), "--weights=w.npz\n");
}

TEST(TrainConfig, NamesAreUniqueAndHelpNamesFields) {
  std::set<std::string> names;
  for (const ConfigField& field : ConfigFields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_NE(field.tasks, 0u) << field.name;
    EXPECT_EQ(std::string_view(field.help).find("--"), std::string_view::npos) << field.name;
    const std::vector<std::string> parts = absl::StrSplit(field.help, '`');
    for (size_t i = 1; i < parts.size(); i += 2) EXPECT_NE(FindField(parts[i]), nullptr) << field.help;
  }
}

TEST(TrainConfig, SpectrogramTakesTheStylesThatAreComputed) {
  std::vector<std::string> names = {"auto", "none"};
  for (const std::string& style : ListSpectrogramStyles()) names.push_back(style);
  EXPECT_EQ(FindField("spectrogram")->traits.choices, absl::StrJoin(names, "|"));
}

TEST(SetField, ErrorsNameTheField) {
  struct Row {
    const char *field, *text, *problem;
  };
  const Row rows[] = {
      {"epochs", "0", "`epochs`: expected a number of at least 1 and at most 1000000000, got '0'"},
      {"epochs", "1.5", "`epochs`: expected a whole number, got '1.5'"},
      {"micro_batch_size", "many", "`micro_batch_size`: expected auto or a whole number of at least 1"},
      {"weight_decay", "-1", "`weight_decay`: expected a number of at least 0, got '-1'"},
      {"momentum", "1", "`momentum`: expected auto or a number of at least 0 and below 1, got '1'"},
      {"loss_scale", "0", "`loss_scale`: expected dynamic or a number above 0, got '0'"},
      {"eps", "nan", "`eps`: expected auto or a number of at least 0, got 'nan'"},
      {"optimizer", "adma", "`optimizer`: expected one of sgd|adam|"},
      {"shuffle", "maybe", "`shuffle`: expected true or false, got 'maybe'"},
      {"memory_budget", "12parsecs", "`memory_budget`: expected a size"},
      {"max_time", "soon", "`max_time`: expected a time"},
      {"log_every", "never", "`log_every`: expected an interval"},
      {"betas", "0.9,1", "`betas`: expected auto or numbers of at least 0 and below 1, got '1'"},
      {"class_weights", "1,x", "`class_weights`: expected numbers of at least 0, got 'x'"},
      {"metrics", "f1,,auc", "`metrics`: an empty name in a list"},
  };
  for (const Row& row : rows) {
    TrainConfig config;
    const absl::Status status = SetField(&config, *FindField(row.field), row.text);
    EXPECT_THAT(std::string(ToStd(status.message())), StartsWith(row.problem)) << row.field;
    EXPECT_EQ(config.specified.size(), 0u);
  }
}

TEST(Validate, DefaultsAreValid) { EXPECT_TRUE(Validate(TrainConfig()).ok()); }

TEST(Validate, NamesTheFieldThatIsWrong) {
  struct Row {
    TrainConfig config;
    const char* problem;
  };
  const Row rows[] = {
      {{.dropout = 1.5}, "`dropout`: expected a number of at least 0 and below 1"},
      {{.micro_batch_size = TrainConfig::kAuto, .gradient_accumulation_steps = 2}, "`micro_batch_size` auto"},
      {{.mixed_precision = "f8"}, "`mixed_precision`: expected one of"},
      {{.loss_scale = 8}, "`loss_scale`: has no effect"},
      {{.gradient_checkpointing = "budget"}, "`gradient_checkpointing` budget: needs a `memory_budget`"},
      {{.optimizer = "sgd", .dampening = 0.1, .nesterov = true}, "`nesterov`"},
      {{.betas = {0.9}}, "`betas`: expected two numbers"},
      {{.lr = {"fast"}}, "`lr`: expected auto"},
      {{.lr_scheduler = "cosin"}, "`lr_scheduler`: "},
      {{.loss = "crossentropy"}, "`loss` crossentropy: unknown"},
      {{.normalize = "half"}, "`normalize`: expected unit"},
      {{.head = "mean"}, "`head`: how many classes?"},
      {{.input = {"x"}}, "`input`: expected MODEL_INPUT=COLUMN"},
      {{.export_weights = "ema"}, "`export_weights` ema"},
      {{.device = "gpu"}, "`device`: expected auto, cpu or cuda:N"},
      {{.backend = "cpu", .device = "cuda:0"}, "`device` cuda:0: `backend` cpu runs on the CPU only"},
      {{.epochs = -3}, "`epochs`: expected a number of at least 1"},
  };
  for (const Row& row : rows)
    EXPECT_THAT(std::string(ToStd(Validate(row.config).message())), StartsWith(row.problem)) << row.problem;
}

TEST(FromJson, SaysWhatIsWrong) {
  for (const auto& [json, problem] : std::vector<std::pair<const char*, const char*>>{
           {"[]", "JSON object"},
           {"{", "JSON object"},
           {R"({"epoch": 3})", "'epoch': no field"},
           {R"({"epochs": 0})", "`epochs`: expected a number of at least 1"},
           {R"({"epochs": [1]})", "`epochs`: expected one value, got an array"},
           {R"({"freeze": [1]})", "`freeze`: expected text, got 1"},
           {R"({"betas": ["a"]})", "`betas`: expected numbers, got \"a\""}}) {
    EXPECT_THAT(std::string(ToStd(FromJson(json).status().message())), HasSubstr(problem)) << json;
  }
  EXPECT_EQ(FromJson(R"({"epochs": 3, "shuffle": false, "lr": ["1e-3", "w=1"], "betas": [0.9, 0.95]})")->betas[1],
            0.95);
}

}  // namespace
}  // namespace onnxtrain
