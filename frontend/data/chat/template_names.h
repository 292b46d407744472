// Chat templates for tokenizers that have none.
#pragma once

#include <string>
#include <string_view>

namespace onnxtrain {

// Returns the source of the template of that name; null if there is none.
const char* FindTemplateByName(std::string_view name);

// Returns "chatml, alpaca, …".
std::string ListTemplateNames();

}  // namespace onnxtrain
