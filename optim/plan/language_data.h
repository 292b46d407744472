// Samples of a language model: blocks of tokens from text or token ids.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/text_unit.h"
#include "optim/plan/data_split.h"
#include "optim/plan/language_model.h"
#include "optim/plan/text_setup.h"

namespace onnxtrain {

struct BlockRequest {
  std::string path;
  bool fit = false;            // the tokenizer may be made of the data; eval_split applies
  int64_t trained_length = 0;  // of the samples that the model was trained on; 0: unknown
  int64_t ignore_index = -100;
  const DatasetOptions* options = nullptr;  // that the data was opened with
};

// Samples of a language model.
struct LanguageData {
  std::shared_ptr<const Dataset> blocks;
  std::optional<HeldOut> held_out;
  TextUnit unit;
  std::vector<std::string> notes;
};

// From documents (a column of text in `setup`) or a sequence of tokens (IsTokenSequence). Sets the tokenizer and the
// length of *setup where they are open. Fails where there are more tokens than rows of the table.
absl::StatusOr<LanguageData> MakeLanguageData(const TrainConfig& config, const LanguageModel& model,
                                              const BlockRequest& request, std::shared_ptr<const Dataset> data,
                                              TextSetup* setup);

}  // namespace onnxtrain
