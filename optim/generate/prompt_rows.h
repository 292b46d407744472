// Prompts of a data set, with the answers that it has for them.
#pragma once

#include <cstdint>
#include <memory>
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

// Prompts of a file, which are read one at a time: dialogues in the forms of training data, whose last answer is the
// reference, columns `prompt` and `completion` of the configuration, or texts: a column prompt, instruction, question,
// query or text, the lines of a .txt file, or what `columns` names, a prompt and its answer or a text.
class PromptRows {
 public:
  // Reads all prompts once to learn their lengths. Fails, naming the row, on one that is no prompt; leaves it out with
  // `on_bad_sample` skip. `config` and `prompts` must outlive the object.
  static absl::StatusOr<std::unique_ptr<PromptRows>> Open(const TrainConfig& config, const std::string& path,
                                                          const std::vector<std::string>& columns,
                                                          const Prompts& prompts);
  virtual ~PromptRows() = default;

  virtual absl::StatusOr<PromptRow> Read(int64_t i) const = 0;

  int64_t size() const { return std::ssize(rows_); }  // 0: the file has no column of prompts
  bool empty() const { return rows_.empty(); }
  int64_t longest() const { return longest_; }          // tokens of the longest prompt
  int64_t longest_row() const { return longest_row_; }  // its row in the data
  int64_t left_out() const { return left_out_; }
  const std::string& why_left_out() const { return why_; }  // of the first one

 protected:
  std::vector<int64_t> rows_;  // in the data
  int64_t longest_ = 0, longest_row_ = 0, left_out_ = 0;
  std::string why_;
};

// Takes the first `count` prompts of samples of a language model (TokenBlocks, TokenRows, PairRows). The prompt of a
// sample is what precedes the first tokens that carry loss, which are the reference. Of text that carries loss from its
// beginning, the first half is the prompt, of at most kMostPromptTokens tokens. Such a reference has at
// most `max_new_tokens` tokens.
inline constexpr int64_t kMostPromptTokens = 64;
absl::StatusOr<std::vector<PromptRow>> TakePrompts(const TrainConfig& config, const Dataset& samples, int64_t count,
                                                   const Prompts& prompts);

}  // namespace onnxtrain
