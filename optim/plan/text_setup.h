// Chooses the text columns, their tokenizer and the length of their samples.
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

// Returns true for an input of tokens, [batch, length] of integers.
bool IsTokenInput(const ModelInput& input);
// Returns true if the name and the shape, [batch, (heads,) length, length], indicate a mask of token pairs.
bool IsPairMask(const ModelInput& input);

// The length to import with if the model leaves it free.
inline constexpr int64_t kTrialLength = 16;
inline constexpr int64_t kTrialBatch = 2;

// Imports the model with samples of kTrialLength tokens, if its inputs accept that.
absl::StatusOr<ImportedModel> ImportAtTrialLength(const TrainConfig& config, const OnnxModel& model);

// The greatest length of integer inputs [batch, length] that the model accepts: a fixed extent, otherwise the number of
// rows of its position table. `exact`: it accepts no other length. 0: no limit found.
struct LengthLimit {
  int64_t length = 0;
  bool exact = false;
};
absl::StatusOr<LengthLimit> FindLengthLimit(const TrainConfig& config, const OnnxModel& model);
// Returns the limit that the declared inputs set; length 0: none.
absl::StatusOr<LengthLimit> FindDeclaredLength(const TrainConfig& config, const OnnxModel& model);

// Returns the rows of the table from which constant indices 0, 1, 2, … (or with an offset) of `length` select; 0: none.
int64_t FindPositionRows(const Graph& graph, int64_t length);

// The text columns of a model's data and their tokenizer; no columns: no text.
struct TextSetup {
  std::vector<std::string> columns;
  std::shared_ptr<const Tokenizer> tokenizer;  // null: none is named
  std::string found_in;                        // the folder where it was found if `tokenizer` is not set; else ""
  bool from_characters = false;                // it is built from the characters of the data
  int64_t max_length = 0;                      // 0: automatic
  std::string loss_on, chat_template;          // of dialogues, as in TextPreprocess
  std::optional<bool> packed;                  // whether rows hold several dialogues; nullopt: not decided
};

// Makes the setup from `text`, `tokenizer` and `max_length`, otherwise from preprocess.json or the tokenizer in the
// model's folder. If no text columns are set, uses those of a source of documents. `may_fit`: the tokenizer may be
// built from the data.
absl::StatusOr<TextSetup> MakeTextSetup(const TrainConfig& config, const std::optional<Preprocess>& before,
                                        const std::string& path, bool may_fit);

// Resolves names and 0-based indices of columns to names.
std::vector<std::string> ResolveColumns(const Dataset& data, std::vector<std::string> names);

// Makes a tokenizer with one token per character of these columns. If a table of `rows` rows (0: any) has no room for
// an unknown token, there is none, and other characters are errors.
absl::StatusOr<std::shared_ptr<const Tokenizer>> MakeFromChars(const Dataset& data,
                                                               const std::vector<std::string>& columns, int64_t rows);

// Tokenizes the text columns of `data` and replaces it. Sets the tokenizer and the length of *setup if they are open,
// and describes the changes in `notes`.
absl::StatusOr<TokenizedText> AddTokens(const TrainConfig& config, const OnnxModel& model, TextSetup* setup,
                                        std::shared_ptr<const Dataset> data, std::vector<std::string>* notes);

// Fails if the tokenizer has ids outside the table of the token input, whose indices `range` limits.
absl::Status CheckVocabulary(const Tokenizer& tokenizer, const std::optional<ValueRange>& range);

// Returns the digest of a tokenizer's files.
std::string TokenizerDigest(const Tokenizer& tokenizer);

}  // namespace onnxtrain
