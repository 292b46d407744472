// From the configuration to columns of tokens: which columns are text, by which tokenizer, of which length.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/data/text/text_dataset.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"
#include "optim/plan/token_inputs.h"

namespace onnxtrain {

// The text of a model's data; without columns there is none.
struct TextSetup {
  std::vector<std::string> columns;
  std::shared_ptr<const Tokenizer> tokenizer;  // null: none is named
  std::string found_in;                        // the folder that it was found in, beside the model; else ""
  bool from_characters = false;                // it is made of the characters of the data
  int64_t max_length = 0;                      // 0: found
};

// From `text`, `tokenizer` and `max_length`, else from the preprocess.json or the tokenizer beside the model; without
// columns of text those of a source of documents. `may_fit`: the tokenizer may be made of the data.
absl::StatusOr<TextSetup> MakeTextSetup(const TrainConfig& config, const std::optional<Preprocess>& before,
                                        const std::string& path, bool may_fit);

// Fails where `tokenizer` or `max_length` is set though there is no text.
absl::Status CheckTextFields(const TrainConfig& config);

// The names of columns that are given by name or 0-based index.
std::vector<std::string> ResolveColumns(const Dataset& data, std::vector<std::string> names);

// A token for each character of these columns. Without room for an unknown token in a table of `rows` (0: any) there is
// none, and other characters are errors.
absl::StatusOr<std::shared_ptr<const Tokenizer>> MakeFromChars(const Dataset& data,
                                                               const std::vector<std::string>& columns, int64_t rows);

// Tokenizes the text columns of `data` and replaces it. Sets the tokenizer and the length of *setup where they are
// open; `notes` tells what was done.
absl::StatusOr<TokenizedText> AddTokens(const TrainConfig& config, const OnnxModel& model, TextSetup* setup,
                                        std::shared_ptr<const Dataset> data, std::vector<std::string>* notes);

// Fails where the tokenizer has ids beyond the table that `range`, of the token input, stands for.
absl::Status CheckVocabulary(const Tokenizer& tokenizer, const std::optional<ValueRange>& range);

// The digest of a tokenizer's files.
std::string TokenizerDigest(const Tokenizer& tokenizer);

}  // namespace onnxtrain
