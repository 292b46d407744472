// Renders conversations, and finds the parts of the text that assistants wrote.
#pragma once

#include "frontend/data/chat/chat_template.h"

namespace onnxtrain {

// Renders a conversation as transformers' apply_chat_template does. It is an object with "messages", a list of objects,
// and further variables that the template reads: tools, documents, add_generation_prompt, special tokens such as
// bos_token. Fields of messages that are null are omitted; reasoning is passed under all of its usual names.
absl::StatusOr<RenderedChat> RenderChat(const ChatTemplate& chat, OrderedJson conversation,
                                        const RenderOptions& options = {});

// Returns the conversation as the variables of a template.
absl::StatusOr<OrderedJson> MakeChatVariables(OrderedJson conversation);

// Renders a conversation and sets `generated` to the texts of assistants, with the ends of their turns, which are the
// texts of {% generation %} blocks, if the template has them. Otherwise renders the messages before each turn of an
// assistant, and those with it: the turn is the difference, as in TRL's prompts and completions. A template may render
// a turn differently before others, as without its reasoning; fails, naming the turn, if it cannot be found then.
absl::StatusOr<RenderedChat> RenderTrainedChat(const ChatTemplate& chat, OrderedJson conversation,
                                               const RenderOptions& options = {});

}  // namespace onnxtrain
