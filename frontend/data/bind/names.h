// The names of a model's inputs, and of the parts that data sets are divided into.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "frontend/data/text/text_dataset.h"

namespace onnxtrain {

// The names of the parts that data sets are divided into.

// Parts for evaluation while a model is trained, the preferred ones first: what is called validation, then tests.
inline constexpr std::string_view kEvalPartNames[] = {"val", "valid", "validation", "dev", "eval", "test"};

// Do columns of this name divide the samples into parts, or number them? Such a column is neither feature nor label.
bool NamesSplit(const std::string& column);
bool NamesRow(const std::string& column);

// What the names of a model's inputs tell.

// The program's own name in what exporters make of it: "serving_default_NAME:0", as TensorFlow writes it, and behind
// scopes, "a/NAME".
std::string_view StemOf(std::string_view name);

// What an input of a text model is by its name: a mask, token types, positions. nullopt: the token ids, or nothing
// known.
std::optional<TokenRole> FindTokenRole(const std::string& input);

}  // namespace onnxtrain
