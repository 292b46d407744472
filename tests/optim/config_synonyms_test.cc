// The table of other libraries' names fits the table of fields.
#include "optim/config/config_synonyms.h"

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "absl/strings/str_split.h"
#include "frontend/base/status.h"
#include "optim/config/config.h"

namespace onnxtrain {
namespace {

using testing::HasSubstr;
using Kind = Synonym::Value;

// A value of theirs, for each that stands for a field and is no switch or word.
const std::map<std::string, std::string> kValues = {{"out", "runs/a"},
                                                    {"train", "*.bias"},
                                                    {"lora_rank", "8"},
                                                    {"lora_target", "q_proj"},
                                                    {"adapter", "runs/a/adapter"},
                                                    {"reference_model", "sft.onnx"},
                                                    {"epochs", "3.0"},
                                                    {"galore_update_proj_gap", "100"},
                                                    {"micro_batch_size", "8"},
                                                    {"lr", "5e-5"},
                                                    {"eps", "1e-8"},
                                                    {"warmup", "0.1"},
                                                    {"log_every", "500"},
                                                    {"save_every", "500"},
                                                    {"keep_last", "2"},
                                                    {"monitor", "eval_f1"},
                                                    {"eval_every", "2"},
                                                    {"label_smoothing", "0.1"},
                                                    {"num_workers", "4"},
                                                    {"prefetch_factor", "2"},
                                                    {"resume", "runs/a"},
                                                    {"model", "m.onnx"},
                                                    {"tokenizer", "t"},
                                                    {"data", "d.csv"},
                                                    {"eval_data", "e.csv"},
                                                    {"text", "sentence"},
                                                    {"label", "y"},
                                                    {"max_length", "128"},
                                                    {"chat_template", "chatml"},
                                                    {"eval_split", "0.1"},
                                                    {"max_steps", "100"},
                                                    {"weight_decay", "0.01"},
                                                    {"max_grad_norm", "1.0"},
                                                    {"layer_lr_decay", "0.75"},
                                                    {"ema_decay", "0.999"},
                                                    {"lr_scale_base", "256"},
                                                    {"image_size", "224"},
                                                    {"keep_best", "1"},
                                                    {"early_stopping_patience", "3"},
                                                    {"eval_split", "0.2"},
                                                    {"clip_value", "0.5"}};

// The names in backquotes.
std::vector<std::string> QuotedNames(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '`');
  std::vector<std::string> names;
  for (size_t i = 1; i < parts.size(); i += 2) names.push_back(parts[i]);
  return names;
}

TEST(Synonyms, AreManyAndDistinct) {
  std::set<std::string> names;
  for (const Synonym& s : Synonyms()) {
    EXPECT_TRUE(names.insert(s.name).second) << s.name;
    EXPECT_EQ(FindField(s.name), nullptr) << s.name << " is a field of ours";
    EXPECT_EQ(std::string_view(s.name).find('-'), std::string_view::npos) << s.name;
    EXPECT_EQ(FindSynonym(s.name), &s);
  }
  EXPECT_GE(names.size(), 200u);
  EXPECT_EQ(FindSynonym("batch_size"), nullptr);
}

TEST(Synonyms, StandForFieldsWithTheSameMeaning) {
  int accepted = 0;
  for (const Synonym& s : Synonyms()) {
    if (s.kind == Kind::kRefused) continue;
    ++accepted;
    const ConfigField* field = FindField(s.field);
    ASSERT_NE(field, nullptr) << s.name << " → " << s.field;
    std::vector<std::string> theirs;
    if (s.kind == Kind::kSwitch) {
      theirs = {"true", "false"};
    } else if (s.kind == Kind::kWords) {
      const std::vector<std::string> parts = absl::StrSplit(s.form, '|');
      for (const std::string& part : parts) theirs.push_back(part.substr(0, part.find('=')));
      // "$" takes any value, and those of one character or none say that another flag, or no one, has the value.
      const auto has_no_value = [&](const std::string& word) {
        const auto ours = TranslateValue(s, word);
        return word == "$" || !ours.ok() || ours->size() < 2;
      };
      std::erase_if(theirs, has_no_value);
      if (theirs.empty() && kValues.contains(s.field)) theirs = {kValues.at(s.field)};
      EXPECT_FALSE(theirs.empty()) << s.name;
    } else {
      ASSERT_TRUE(kValues.contains(s.field)) << s.name << " → " << s.field;
      theirs = {kValues.at(s.field)};
    }
    for (const std::string& value : theirs) {
      const auto ours = TranslateValue(s, value);
      ASSERT_TRUE(ours.ok()) << s.name << " " << value << ours.status();
      TrainConfig config;
      EXPECT_TRUE(SetField(&config, *field, *ours).ok()) << s.name << " " << value << " → " << *ours;
    }
  }
  EXPECT_GE(accepted, 80);
}

// Advice completes a sentence, and the names in it are fields.
TEST(Synonyms, AdviseWithFieldsThatExist) {
  for (const Synonym& s : Synonyms()) {
    const std::string text = Explain(s);
    if (s.kind != Kind::kRefused && s.kind != Kind::kWords && s.kind != Kind::kShare) {
      EXPECT_STREQ(s.advice, "") << s.name;
      continue;
    }
    if (*s.advice == 0) continue;  // all words are accepted
    EXPECT_TRUE(text.starts_with(StrCat(s.library, " `", s.name, "` "))) << text;
    EXPECT_FALSE(text.ends_with(".")) << text;
    const std::vector<std::string> names = QuotedNames(s.advice);
    for (const std::string& name : names) EXPECT_NE(FindField(name), nullptr) << s.name << ": " << name;
    EXPECT_TRUE(!names.empty() || text.find("onnxtrain ") != std::string::npos) << text << ": what to do instead?";
  }
}

TEST(Synonyms, SayTheirValuesInOurs) {
  const auto ours = [](const char* name, const char* value) {
    const auto text = TranslateValue(*FindSynonym(name), value);
    return text.ok() ? *text : std::string(ToStd(text.status().message()));
  };
  EXPECT_EQ(ours("num_train_epochs", "3.0"), "3");
  EXPECT_EQ(ours("num_train_epochs", "2.5"), "2.5");  // which the field refuses
  EXPECT_EQ(ours("output_dir", "run.0"), "run.0");
  EXPECT_EQ(ours("output_dir", "2.0"), "2.0");
  EXPECT_EQ(ours("learning_rate", "1.0"), "1.0");
  EXPECT_EQ(ours("validation_split", "0.2"), "last:0.2");
  EXPECT_EQ(ours("metric_for_best_model", "eval_accuracy"), "accuracy");
  EXPECT_EQ(ours("check_val_every_n_epoch", "2"), "2ep");
  EXPECT_EQ(ours("bf16", "true"), "bf16");
  EXPECT_EQ(ours("bf16", "false"), "no");
  EXPECT_EQ(ours("lr_scheduler_type", "cosine_with_restarts"), "cosine_restarts");
  EXPECT_EQ(ours("optim", "adamw_torch_fused"), "adamw");
  EXPECT_EQ(ours("precision", "bf16-mixed"), "bf16");
  EXPECT_EQ(ours("resume_from_checkpoint", "True"), "auto");
  EXPECT_EQ(ours("resume_from_checkpoint", "runs/a"), "runs/a");
  EXPECT_EQ(ours("warmup_ratio", "0.06"), "0.06");
  EXPECT_THAT(ours("warmup_ratio", "1.0"), HasSubstr("`warmup` counts updates"));
  EXPECT_EQ(ours("optim", "adamw_bnb_8bit"), "adamw8bit");
  EXPECT_EQ(ours("optim", "adafactor"), "adafactor_unscaled");  // the Trainer does not scale by the weight
  EXPECT_THAT(ours("optim", "rmsprop_bnb"), HasSubstr("'rmsprop_bnb': the Trainer's `optim` has other names"));
  EXPECT_EQ(ours("opt", "adamw"), "adamw");
  EXPECT_THAT(ours("opt", "sgd"), HasSubstr("`opt` has other defaults: sgd is `optimizer` sgd with `momentum` 0.9"));
  EXPECT_EQ(ours("sched", "cosine"), "cosine");
  EXPECT_THAT(ours("sched", "step"), HasSubstr("timm's `sched` counts epochs"));
  EXPECT_EQ(ours("resume_from_checkpoint", "False"), "");
  EXPECT_EQ(ours("ckpt_path", "last"), "auto");
  EXPECT_EQ(ours("ckpt_path", "a.ckpt"), "a.ckpt");
  EXPECT_EQ(ours("eval_strategy", "steps"), kOfOtherFlag);
  EXPECT_EQ(ours("cpu", "true"), "cpu");
}

TEST(Synonyms, SayValuesOfFieldsThatHaveTheSameName) {
  EXPECT_EQ(*TranslateValue(*FindForeignValues("max_steps"), "-1"), "");
  EXPECT_EQ(*TranslateValue(*FindForeignValues("max_steps"), "10"), "10");
  const Synonym& recompute = *FindForeignValues("gradient_checkpointing");
  EXPECT_EQ(*TranslateValue(recompute, "False"), "none");
  EXPECT_EQ(*TranslateValue(recompute, "sqrt"), "sqrt");
  EXPECT_THAT(TranslateValue(recompute, "True").status().message(), HasSubstr("how much is recomputed"));
  EXPECT_EQ(*TranslateValue(*FindSynonym("val_set_size"), "0"), "");
  EXPECT_EQ(*TranslateValue(*FindSynonym("val_set_size"), "0.05"), "0.05");
  const Synonym& offload = *FindForeignValues("activation_offloading");
  EXPECT_EQ(*TranslateValue(offload, "True"), "yes");
  EXPECT_EQ(*TranslateValue(offload, "disk"), "yes");
  EXPECT_EQ(*TranslateValue(offload, "auto"), "auto");
  EXPECT_THAT(TranslateValue(offload, "legacy").status().message(), HasSubstr("has no counterpart"));
  EXPECT_EQ(FindForeignValues("lr"), nullptr);
  // Each choice of the field is a word that stays.
  const ConfigField& field = *FindField("gradient_checkpointing");
  for (const auto choice : absl::StrSplit(field.traits.choices, '|'))
    EXPECT_EQ(*TranslateValue(recompute, ToStd(choice)), ToStd(choice));
}

// What people type first, of the Trainer's, timm's, Lightning's and Keras' command lines, is known.
TEST(Synonyms, KnowWhatPeopleTypeFirst) {
  for (const char* name : {"max_steps",
                           "resume_from_checkpoint",
                           "ckpt_path",
                           "cpu",
                           "no_cuda",
                           "use_cpu",
                           "compile",
                           "torch_compile",
                           "use_amp",
                           "amp",
                           "decay",
                           "eval_only",
                           "evaluate",
                           "do_train",
                           "do_eval",
                           "eval_strategy",
                           "save_strategy",
                           "save_total_limit",
                           "report_to",
                           "push_to_hub",
                           "lr_scheduler_type",
                           "optim",
                           "gradient_checkpointing",
                           "dataloader_num_workers",
                           "remove_unused_columns",
                           "load_best_model_at_end",
                           "metric_for_best_model",
                           "precision",
                           "accumulate_grad_batches",
                           "gradient_clip_val",
                           "max_epochs",
                           "devices",
                           "accelerator",
                           "batch_size",
                           "learning_rate",
                           "validation_split",
                           "sched",
                           "opt",
                           "warmup_epochs",
                           "weight_decay",
                           "mixup",
                           "smoothing",
                           "drop",
                           "model_ema",
                           "checkpoint_hist",
                           "amp_dtype",
                           "test_only",
                           "cuda",
                           "num_epochs"})
    EXPECT_TRUE(FindField(name) != nullptr || FindSynonym(name) != nullptr) << name;
}

}  // namespace
}  // namespace onnxtrain
