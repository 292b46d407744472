// Lists chat templates by name, for tokenizers without one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace onnxtrain {

struct BuiltinChatTemplate {
  std::string_view name;
  std::string_view end_of_turn;  // the text that ends an assistant's turn; "eos_token" names a variable
  std::string_view source;       // with {% generation %} around the texts of assistants
};

// Returns null if there is no template of this name.
const BuiltinChatTemplate* FindChatTemplate(std::string_view name);
// Returns the names in the order of the table.
std::vector<std::string> ListChatTemplates();

}  // namespace onnxtrain
