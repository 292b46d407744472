// Renders conversations, and finds which parts of the text assistants wrote.
#pragma once

#include "frontend/data/chat/chat_template.h"

namespace onnxtrain {

// Renders a conversation as transformers' apply_chat_template does. It is an object with "messages", a list of objects,
// and further variables: tools, documents, add_generation_prompt, bos_token and other special tokens, and whatever else
// the template reads. Fields of messages that are null are left out; reasoning has all of its usual names.
absl::StatusOr<RenderedChat> RenderChat(const ChatTemplate& chat, const OrderedJson& conversation,
                                        const RenderOptions& options = {});

// Returns the conversation as the variables of a template.
absl::StatusOr<OrderedJson> MakeChatVariables(const OrderedJson& conversation);

// Renders a conversation and sets `generated` to what assistants wrote, with the ends of their turns: the texts of
// {% generation %} blocks, if the template has them. Otherwise renders the messages up to each turn of an assistant,
// without it and with it: the turn is what the second adds, as in TRL's prompts and completions. A template may render
// a turn differently when others follow, as without its reasoning; an error names a turn that cannot be found then.
absl::StatusOr<RenderedChat> RenderTrainedChat(const ChatTemplate& chat, const OrderedJson& conversation,
                                               const RenderOptions& options = {});

}  // namespace onnxtrain
