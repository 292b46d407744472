// Makes the samples of a language model from dialogues: chats, and answers to prompts.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/chat/dialogues.h"
#include "optim/config/config.h"
#include "optim/plan/language_data.h"
#include "optim/plan/text_setup.h"

namespace onnxtrain {

// Returns the form of the dialogues in the data: that of `prompt` and `completion`, or what the columns' names say.
// nullopt: there are none, or `text` names plain text. `setup`: that of the training data, or of the model's
// preprocess.json, which may say that the data is plain text.
absl::StatusOr<std::optional<DialogueForm>> FindDialogues(const TrainConfig& config, const Dataset& data,
                                                          const TextSetup& setup);

// Returns the source of a chat template: of a file, or of the template of this name. The error names the templates.
absl::StatusOr<std::string> ReadChatTemplate(const std::string& name);

// Makes one sample of each dialogue, or rows of several with `packing`. Sets tokenizer, chat template, length,
// `loss_on` and `packed` of *setup if they are open. Fails if no dialogue can be trained on.
absl::StatusOr<LanguageData> MakeChatData(const TrainConfig& config, const LanguageModel& model,
                                          const BlockRequest& request, const DialogueForm& form,
                                          const std::shared_ptr<const Dataset>& data, TextSetup* setup);

}  // namespace onnxtrain
