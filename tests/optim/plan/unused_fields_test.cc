#include "optim/config/unused_fields.h"

#include <gtest/gtest.h>

#include <functional>

namespace onnxtrain {
namespace {

TEST(WhyNoEffect, EveryFieldThatMayMeanNothing) {
  RunFacts facts{.optimizer = "adamw", .scheduler = "constant"};
  struct Row {
    const char* field;
    std::function<void(RunFacts&)> makes_sense, makes_none;
  };
  const Row rows[] = {
      {"momentum", [](RunFacts& f) { f.optimizer = "sgd"; }, [](RunFacts& f) { f.optimizer = "adamw"; }},
      {"momentum", [](RunFacts& f) { f.optimizer = "lars"; }, [](RunFacts& f) { f.optimizer = "lion"; }},
      {"dampening", [](RunFacts& f) { f.optimizer = "sgd", f.momentum = 0.9; },
       [](RunFacts& f) { f.optimizer = "sgd"; }},
      {"nesterov", [](RunFacts& f) { f.optimizer = "sgd", f.momentum = 0.9; },
       [](RunFacts& f) { f.optimizer = "rmsprop", f.momentum = 0.9; }},
      {"eps", [](RunFacts& f) { f.optimizer = "lamb"; }, [](RunFacts& f) { f.optimizer = "adafactor"; }},
      {"warmup", [](RunFacts& f) { f.scheduler = "wsd"; }, [](RunFacts& f) { f.scheduler = "one_cycle"; }},
      {"betas", [](RunFacts& f) { f.optimizer = "adam"; }, [](RunFacts& f) { f.optimizer = "sgd"; }},
      {"eps", [](RunFacts& f) { f.optimizer = "adam"; }, [](RunFacts& f) { f.optimizer = "sgd"; }},
      {"no_decay", [](RunFacts& f) { f.weight_decay = 0.1; }, [](RunFacts& f) { f.weight_decay = 0; }},
      {"min_lr", [](RunFacts& f) { f.scheduler = "cosine"; }, [](RunFacts& f) { f.scheduler = "constant"; }},
      {"label_smoothing", [](RunFacts& f) { f.loss_takes = "label_smoothing ignore_index"; },
       [](RunFacts& f) { f.loss_takes = "ignore_index"; }},
      {"ignore_index", [](RunFacts& f) { f.loss_takes = "ignore_index"; }, [](RunFacts& f) { f.loss_takes = ""; }},
      {"eval_every", [](RunFacts& f) { f.has_eval = true; }, [](RunFacts& f) { f.has_eval = false; }},
      {"normalize", [](RunFacts& f) { f.has_images = true; }, [](RunFacts& f) { f.has_images = false; }},
      {"batch_norm", [](RunFacts& f) { f.has_batch_norm = true; }, [](RunFacts& f) { f.has_batch_norm = false; }},
      {"dropout", [](RunFacts& f) { f.has_dropout = true; }, [](RunFacts& f) { f.has_dropout = false; }},
      {"eval_split", [](RunFacts& f) { f.eval_data_given = false; }, [](RunFacts& f) { f.eval_data_given = true; }},
      {"epochs", [](RunFacts& f) { f.has_data = true; }, [](RunFacts& f) { f.has_data = false; }},
      {"label", [](RunFacts& f) { f.has_data = true; }, [](RunFacts& f) { f.has_data = false; }},
  };
  for (const Row& row : rows) {
    RunFacts with = facts, without = facts;
    row.makes_sense(with);
    row.makes_none(without);
    EXPECT_EQ(WhyNoEffect(row.field, with), "") << row.field;
    EXPECT_NE(WhyNoEffect(row.field, without), "") << row.field;
  }
  EXPECT_EQ(WhyNoEffect("lr", facts), "");
}

}  // namespace
}  // namespace onnxtrain
