// Prompts of a data set, with the answers that it has for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "optim/config/config.h"
#include "optim/generate/prompts.h"

namespace onnxtrain {

struct PromptRow {
  int64_t row = 0;           // in the data
  std::vector<int64_t> ids;  // the prompt, with the tokens that begin an answer
  std::string prompt;        // the same as text, with its special tokens
  std::string reference;     // the answer of the data; "": it has none
};

struct PromptFile {
  std::vector<PromptRow> rows;          // empty: the file has no column of prompts
  std::vector<std::string> unreadable;  // why rows are left out, with `on_bad_sample` skip
};

// Reads prompts from a file: dialogues in the forms of training data, whose last answer is the reference, columns
// `prompt` and `completion` of the configuration, or texts: a column prompt, instruction, question, query or text, the
// lines of a .txt file, or what `columns` names, a prompt and its answer or a text. Fails, naming the row, on one that
// is no prompt.
absl::StatusOr<PromptFile> ReadPromptFile(const TrainConfig& config, const std::string& path,
                                          const std::vector<std::string>& columns, const Prompts& prompts);

// Takes the first `count` prompts of samples of a language model (TokenBlocks, TokenRows, PairRows). The prompt of a
// sample is what precedes the first tokens that carry loss, which are the reference. Of text that carries loss from its
// beginning, the first half is the prompt, of at most kMostPromptTokens tokens. Such a reference has at
// most `max_new_tokens` tokens.
inline constexpr int64_t kMostPromptTokens = 64;
absl::StatusOr<std::vector<PromptRow>> TakePrompts(const TrainConfig& config, const Dataset& samples, int64_t count,
                                                   const Prompts& prompts);

}  // namespace onnxtrain
