// Makes the samples of a language model: blocks of tokens from text or token ids.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/data/chat/dialogues.h"
#include "frontend/data/text/token_blocks.h"
#include "optim/config/config.h"
#include "optim/loop/trainer.h"
#include "optim/plan/open_data.h"
#include "optim/plan/text_setup.h"
#include "optim/step/loss.h"
#include "optim/step/session.h"

namespace onnxtrain {

// Inputs, labels and limits of a language model, a decoder that predicts the next token at every position.
struct LanguageModel {
  LengthLimit limit;
  std::string ids;             // the input of token ids
  int64_t rows = 0;            // rows of the embedding table; 0: unknown
  std::string label_input;     // an input of labels, from which the model computes its loss; "": none
  std::string own_loss;        // the output that is this loss, if there are no logits
  bool shifts_labels = false;  // it compares position k with label k + 1: its labels are the token ids
  std::string positions;       // the input of positions, which restart at 0 in each document; "": none
  std::string pair_mask;       // the mask of token pairs, which separates documents; "": none
};

// Returns nullopt unless the model has one input of token ids and either an output [batch, length, tokens] to train on
// and none of [batch, classes], or an input of labels and a scalar output.
absl::StatusOr<std::optional<LanguageModel>> FindLanguageModel(const TrainConfig& config, const OnnxModel& model,
                                                               const LossSpec& loss);

// Fails if the predictions for the first half of a sample change with the tokens of its second half: such a model could
// read the next token, which is its label, from its input. `ids`: the input of token ids, whose samples are blocks of a
// language model. Runs the model twice on a few samples; checks nothing if its trained output has no values per token.
absl::Status CheckCausal(Session& session, const TrainData& data, const std::string& ids);

struct BlockRequest {
  std::string path;
  bool fit = false;            // the tokenizer may be built from the data; eval_split applies
  int64_t trained_length = 0;  // length of the samples that the model was trained on; 0: unknown
  int64_t ignore_index = -100;
  const DatasetOptions* options = nullptr;  // the options that the data was opened with
  const OnnxModel* model = nullptr;
};

// Samples of a language model.
struct LanguageData {
  std::shared_ptr<const Dataset> blocks;
  std::optional<HeldOut> held_out;
  TextUnit unit;
  std::vector<std::string> notes;
};

// Makes samples from documents (a column of text in `setup`) or from a sequence of tokens (IsTokenSequence). Sets the
// tokenizer and the length of *setup if they are open. Fails if a token has no row in the embedding table.
absl::StatusOr<LanguageData> MakeLanguageData(const TrainConfig& config, const LanguageModel& model,
                                              const BlockRequest& request, std::shared_ptr<const Dataset> data,
                                              TextSetup* setup);

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
