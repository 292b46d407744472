// Finds dialogues in the columns of a data set, in the layouts that public data sets have.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/json.h"

namespace onnxtrain {

// Columns that hold dialogues. The columns are text; lists and objects in it are JSON.
struct DialogueForm {
  enum class Kind : uint8_t {
    kMessages,     // `first`: a list of {role, content} or {from, value}
    kCompletion,   // `first` and `second`: a prompt and its answer, texts or lists of messages
    kInstruction,  // `first` and `second`: texts of a user and an assistant; `context` follows the first
    kPreference    // `first` and `second`: a chosen and a rejected answer, texts or lists of messages, after `prompt`
  } kind = Kind::kMessages;
  std::string first, second;                    // `second` "": the data has prompts without answers (FindPromptForm)
  std::string context, system, history, tools;  // optional columns; "": there is none
  std::string prompt;                           // of kPreference; "": the prompt is what both answers begin with
};

// Returns the names of columns that hold dialogues, which have to be read as text.
std::vector<std::string> ListDialogueColumns();

// Returns the form whose columns the data set has; nullopt if there is none.
std::optional<DialogueForm> FindDialogueForm(const Dataset& data);

// Returns the form of FindDialogueForm, or else that of a column of prompts or of text.
std::optional<DialogueForm> FindPromptForm(const Dataset& data);

// Returns the form of a prompt and its answer in columns with other names. Fails if there are no such columns of text.
absl::StatusOr<DialogueForm> MakeCompletionForm(const Dataset& data, const std::string& prompt,
                                                const std::string& completion);

// A sample: messages, or a plain prompt with its answer.
struct Dialogue {
  OrderedJson messages, tools;  // null where there are none
  int64_t prompt_messages = 0;  // messages before the answer; 0: the dialogue has no prompt
  std::string prompt, answer;   // texts, without messages
};

// Reads a row. If `as_messages`, a plain prompt and its answer become messages of a user and an assistant. Fails,
// without naming the row, on text that is no dialogue and on content with pictures or sounds.
absl::StatusOr<Dialogue> ReadDialogue(const Dataset& data, int64_t row, const DialogueForm& form, bool as_messages);

// Two answers to one prompt.
struct DialoguePair {
  Dialogue chosen, rejected;
};

// Reads a row of kPreference, as ReadDialogue does. Without a column `prompt`, the prompt is the common beginning of
// both: characters, but for a last blank, or messages.
absl::StatusOr<DialoguePair> ReadDialoguePair(const Dataset& data, int64_t row, const DialogueForm& form,
                                              bool as_messages);

}  // namespace onnxtrain
