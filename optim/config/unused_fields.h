// Fields that mean nothing in a run: specifying one is an error, not silence.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "optim/config/config.h"

namespace onnxtrain {

// What decides whether a field of a training run means anything.
struct RunFacts {
  bool has_data = true;  // else synthetic
  bool has_eval = true;
  std::string optimizer = "adamw";  // a rule that exists
  double momentum = 0;
  std::string scheduler;
  double weight_decay = 0;
  bool scales_lr = true;
  std::string loss_takes = "label_smoothing ignore_index";  // what the losses read: see LossTakes
  bool has_images = true, has_pictures = true, has_sounds = true, has_batch_norm = true, has_dropout = true;
  bool augments = true;  // the data feeds pictures, from files or arrays
  bool eval_data_given = false;
  bool fp16 = false;
  bool compares_evals = false;  // plateau, keep_best, early_stopping_patience or export_weights best
};
// Why a field has no effect in such a run; "" where it has one.
std::string WhyNoEffect(std::string_view field, const RunFacts& facts);

// Fails for the first specified field without effect.
absl::Status CheckEffects(const TrainConfig& config, const RunFacts& facts);
// The same of what is known before anything is read: a run without data.
absl::Status CheckEffectsWithoutData(const TrainConfig& config);

}  // namespace onnxtrain
