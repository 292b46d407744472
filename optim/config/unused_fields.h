// Rejects specified fields that have no effect in a run. The column `needs` of ConfigFields says when a field has an
// effect.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "optim/config/config.h"

namespace onnxtrain {

// The facts that conditions refer to. A fact that is not known yet is true.
struct RunFacts {
  ConfigState config = ConfigState::kOpen;
  unsigned makes = 0;   // what an export writes: kTaskExport: a model, kTaskGrad: a gradient graph; 0: anything
  std::string subject;  // the subject of the message: the data file ("": "the data"), the loss
  std::string hint;     // hint for data without pictures

  bool is_program = true;  // false: the library, whose calling program controls data, updates and messages
  bool has_folder = true;  // the run has a folder
  bool has_data = true;    // false: synthetic, or batches of the caller
  bool has_loop = true;    // false: the caller has the loop
  bool has_checkpoints = true;
  bool has_eval = true;

  bool is_text_file = true, has_text_columns = true;
  bool has_answers = true;                                         // chats, or answers to prompts
  bool writes_text = true;                                         // a language model writes text
  bool has_images = true, has_pictures = true, has_sounds = true;  // bytes of pixels; files of pictures, of sound
  bool augments = true;                                            // pictures, from files or arrays
  bool has_categories = true, has_gaps = true, has_numbers = true;
  bool decodes = true;  // false: the samples are in memory
  bool lengths_differ = true;

  bool has_classes = true, takes_label_smoothing = true, takes_ignore_index = true, takes_class_weights = true;
  bool takes_reference = true;                        // the loss compares with a reference model
  bool has_batch_norm = true, has_statistics = true;  // BatchNorm nodes; batch statistics to synchronize
  bool has_dropout = true, has_layers = true;
  bool has_micro_batches = true, writes_model = true;

  bool is_launched = true, has_ranks = true, has_shards = true;  // started by onnxtrain launch, or planned
};

// Returns true if evaluations are compared by `monitor`: for plateau, keep_best, early_stopping_patience or
// export_weights best.
bool ComparesEvaluations(const TrainConfig& config);

// Explains why a field has no effect in such a run, as the message after its name; "" if it has one.
std::string ExplainUnused(const TrainConfig& config, const ConfigField& field, const RunFacts& facts);

// Fails for the first specified field that has no effect.
absl::Status RefuseUnused(const TrainConfig& config, const RunFacts& facts);

}  // namespace onnxtrain
