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

namespace onnxtrain {

// Inputs of tokens, [batch, length] of integers: which lengths a model takes.

bool IsTokenInput(const ModelInput& input);
// Is it a mask of pairs of tokens, [batch, (heads,) length, length], by its name?
bool IsPairMask(const ModelInput& input);

// The length that is tried where the model leaves it free.
inline constexpr int64_t kTrialLength = 16;
inline constexpr int64_t kTrialBatch = 2;

// Imports the model with samples of kTrialLength tokens, where its inputs take them.
absl::StatusOr<ImportedModel> ImportAtTrialLength(const TrainConfig& config, const OnnxModel& model);

// The greatest length of [batch, length] inputs of integers that the model takes: a fixed extent, else the rows of the
// table that it looks positions up in. `exact`: it takes no other. 0: there is no limit that could be found.
struct LengthLimit {
  int64_t length = 0;
  bool exact = false;
};
absl::StatusOr<LengthLimit> FindLengthLimit(const TrainConfig& config, const OnnxModel& model);
// What its declared inputs say; a length of 0: nothing.
absl::StatusOr<LengthLimit> FindDeclaredLength(const TrainConfig& config, const OnnxModel& model);

// The rows of a table that constant indices 0, 1, 2, … (or from an offset on) of `length` select; 0: there is none.
int64_t FindPositionRows(const Graph& graph, int64_t length);

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
