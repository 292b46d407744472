// Fields that mean nothing in a run: specifying one is an error, not silence. The column `needs` of ConfigFields says
// when a field has an effect.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "optim/config/config.h"

namespace onnxtrain {

// What conditions are about. A fact that is not known yet holds.
struct RunFacts {
  ConfigState config = ConfigState::kOpen;
  unsigned makes = 0;   // of an export: kTaskExport a model, kTaskGrad a graph of gradients; 0: all that it can make
  std::string subject;  // what the message is about: the file of the data ("": "the data"), the loss
  std::string hint;     // for data without pictures

  bool is_program = true;  // not the library, which leaves data, updates and messages to the program
  bool has_folder = true;  // of the run
  bool has_data = true;    // else synthetic, or batches of the caller
  bool has_loop = true;    // else the caller's
  bool has_checkpoints = true;
  bool has_eval = true;

  bool is_text_file = true, has_text_columns = true;
  bool has_images = true, has_pictures = true, has_sounds = true;  // bytes of pixels; files of pictures, of sound
  bool augments = true;                                            // pictures, from files or arrays
  bool has_categories = true, has_gaps = true, has_numbers = true;
  bool decodes = true;  // else the samples are in memory
  bool lengths_differ = true;

  bool has_classes = true, takes_label_smoothing = true, takes_ignore_index = true, takes_class_weights = true;
  bool has_batch_norm = true, has_statistics = true;  // nodes; statistics of batches to share
  bool has_dropout = true, has_layers = true;
  bool has_micro_batches = true, writes_model = true;

  bool is_launched = true, has_ranks = true, has_shards = true;  // by onnxtrain launch, or as planned
};

// What compares evaluations, by `monitor`: plateau, keep_best, early_stopping_patience or export_weights best.
bool ComparesEvaluations(const TrainConfig& config);

// Why a field has no effect in such a run, as the message behind its name; "" where it has one.
std::string ExplainUnused(const TrainConfig& config, const ConfigField& field, const RunFacts& facts);

// Fails for the first specified field without effect.
absl::Status RefuseUnused(const TrainConfig& config, const RunFacts& facts);

}  // namespace onnxtrain
