// Samples of language models: recognizes what they are made of, and makes rows of tokens of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "frontend/data/bind/binder.h"
#include "frontend/data/chat/dialogues.h"
#include "optim/plan/language_data.h"
#include "optim/plan/open_data.h"

namespace onnxtrain {

// The kinds of data that samples of a language model are made of.
enum class TokenData : uint8_t { kNone, kDialogues, kTokens };

// Returns what the data may hold: tokens or text, or dialogues in the columns of a table. A single array of a .npy file
// may hold tokens.
TokenData FindTokenData(const TrainConfig& config, const DataRequest& request, const TextSetup& text);

// Returns the column of a source of documents.
std::vector<std::string> DocumentColumns(const std::string& path);

// Returns the length of the samples that the model was trained on; 0: unknown.
int64_t TrainedLength(const std::optional<Preprocess>& before, const std::string& input);

// Prepends the path, unless the message names it or a file in it, as messages about a column do.
absl::Status WithPath(const absl::Status& status, const std::string& path);

// Replaces samples of text, dialogues (`form`) or tokens by rows of tokens, and binds the inputs that only language
// models have.
absl::Status MakeBlocks(const TrainConfig& config, const LanguageModel& model, const BlockRequest& request,
                        const std::optional<DialogueForm>& form, bool want_label, OpenedSamples* samples,
                        OpenedData* opened, BindSpec* spec);

}  // namespace onnxtrain
