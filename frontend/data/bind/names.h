// Meanings of names: of columns and folders that mark parts of the data, and of model inputs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "frontend/data/text/text_dataset.h"

namespace onnxtrain {

// Names of evaluation parts in order of preference: validation before test.
inline constexpr std::string_view kEvalPartNames[] = {"val", "valid", "validation", "dev", "eval", "test"};

// Return true if a column of this name assigns samples to parts, or numbers them. Such a column is neither feature nor
// label.
bool NamesSplit(const std::string& column);
bool NamesRow(const std::string& column);

// Strips what exporters add to a name: TensorFlow's "serving_default_NAME:0", and scopes, "a/NAME".
std::string_view StripExporterAffixes(std::string_view name);

// Returns the role of a text-model input by its name: mask, token types or positions. nullopt for token ids and unknown
// names.
std::optional<TokenRole> FindTokenRole(const std::string& input);

}  // namespace onnxtrain
