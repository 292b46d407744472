// From the configuration to columns of tokens: which columns are text, by which tokenizer, of which length.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/preprocess.h"
#include "frontend/data/text/text_dataset.h"
#include "frontend/onnx/import.h"
#include "optim/config.h"

namespace onnxtrain {

// The text of a model's data; without columns there is none.
struct TextSetup {
  std::vector<std::string> columns;
  std::shared_ptr<const Tokenizer> tokenizer;  // null: made of the characters of the data
  int64_t max_length = 0;                      // 0: found
};

// From `text`, `tokenizer` and `max_length`, else from the preprocess.json beside the model; `may_fit`: the tokenizer
// may be made of the data.
absl::StatusOr<TextSetup> MakeTextSetup(const TrainConfig& config, const std::optional<Preprocess>& before,
                                        bool may_fit);

// The greatest length of [batch, length] inputs of integers that the model takes: a fixed extent, else the rows of the
// table that it looks positions up in. `exact`: it takes no other. 0: there is no limit that could be found.
struct LengthLimit {
  int64_t length = 0;
  bool exact = false;
};
absl::StatusOr<LengthLimit> FindLengthLimit(const TrainConfig& config, const OnnxModel& model);

// Tokenizes the text columns of `data` and replaces it. Sets the tokenizer and the length of *setup where they are
// open; `notes` tells what was done.
absl::StatusOr<TokenizedText> AddTokens(const TrainConfig& config, const OnnxModel& model, TextSetup* setup,
                                        std::shared_ptr<const Dataset> data, std::vector<std::string>* notes);

// Fails where the tokenizer has ids beyond the table that `range`, of the token input, stands for.
absl::Status CheckVocabulary(const Tokenizer& tokenizer, const std::optional<ValueRange>& range);

// The digest of a tokenizer's files.
std::string TokenizerDigest(const Tokenizer& tokenizer);

}  // namespace onnxtrain
