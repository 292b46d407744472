#include "frontend/data/text/token_text.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "absl/strings/str_replace.h"
#include "frontend/base/strings.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;
using Names = std::map<int64_t, std::string>;

constexpr const char* kMetaspace = "▁";

void AddObject(const Json& vocabulary, Names* names) {
  for (const auto& [token, id] : vocabulary.items()) {
    if (id.is_number_integer()) (*names)[id.get<int64_t>()] = token;
  }
}

// Reads a vocabulary of the form [[token, score], …].
void AddScored(const Json& vocabulary, Names* names) {
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const Json& entry = vocabulary[i];
    if (entry.is_array() && !entry.empty() && entry[0].is_string()) (*names)[static_cast<int64_t>(i)] = entry[0];
  }
}

void AddTokenizerJson(const Json& json, Names* names) {
  const Json& vocabulary = Part(Part(json, "model"), "vocab");
  if (vocabulary.is_object()) AddObject(vocabulary, names);
  if (vocabulary.is_array()) AddScored(vocabulary, names);
  for (const Json& added : Part(json, "added_tokens")) {
    if (added.is_object() && added.value("id", Json()).is_number_integer() &&
        added.value("content", Json()).is_string())
      (*names)[added["id"].get<int64_t>()] = added["content"];
  }
}

void AddLines(const std::string& text, Names* names) {
  std::istringstream lines(text);
  int64_t id = 0;
  for (std::string line; std::getline(lines, line); ++id) {
    if (line.ends_with('\r')) line.pop_back();
    (*names)[id] = line;
  }
}

void AddModel(const Tokenizer& tokenizer, Names* names) {
  const std::vector<std::string> tokens = tokenizer.ModelNames();
  for (size_t id = 0; id < tokens.size(); ++id) (*names)[static_cast<int64_t>(id)] = tokens[id];
}

Names ReadNames(const Tokenizer& tokenizer) {
  Names names;
  for (const auto& [file, bytes] : tokenizer.files()) {
    if (file == "tokenizer.model") AddModel(tokenizer, &names);
    if (file == "vocab.txt") AddLines(bytes, &names);
    if (!file.ends_with(".json")) continue;
    const Json json = ParseJson(bytes);
    if (!json.is_object()) continue;
    if (file == "vocab.json") AddObject(json, &names);
    if (file == "tokenizer.json") AddTokenizerJson(json, &names);
  }
  return names;
}

// Returns the byte that "<0x0A>" stands for.
std::optional<char> ParseByteToken(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  return error == std::errc() && end == token.data() + 5 ? std::optional(static_cast<char>(byte)) : std::nullopt;
}

std::string JoinPieces(const std::string& pieces, const std::string& piece) {
  if (piece.starts_with("##")) return pieces + piece.substr(2);
  return StrCat(pieces, pieces.empty() ? "" : " ", piece);
}

}  // namespace

TokenText::TokenText(const Tokenizer& tokenizer) {
  for (const auto& [id, token] : ReadNames(tokenizer)) Name(id, token);
  style_ = FindStyle();
}

void TokenText::Name(int64_t id, const std::string& token) {
  constexpr int64_t kMost = int64_t{1} << 24;
  if (id < 0 || id >= kMost) return;
  if (id >= std::ssize(names_)) names_.resize(id + 1);
  names_[id] = token;
}

TokenText::Style TokenText::FindStyle() const {
  const auto any = [&](const auto& has) { return std::ranges::any_of(names_, has); };
  if (any([](const std::string& t) { return t.size() > 2 && t.starts_with("##"); })) return Style::kWordPiece;
  if (any([](const std::string& t) { return t == "Ġ"; })) return Style::kByteLevel;  // the blank
  if (any([](const std::string& t) { return t.starts_with(kMetaspace); })) return Style::kMetaspace;
  return Style::kPlain;
}

std::vector<std::string> TokenText::VisibleNames() const {
  std::vector<std::string> visible;
  for (const std::string& name : names_) {
    const std::string text = ToText(name);
    const bool is_part = FindInvalidUtf8(text) != std::string::npos;  // a token of some bytes of a character
    visible.push_back(absl::StrReplaceAll(is_part ? name : text, {{" ", "␣"}, {"\t", "⇥"}, {"\n", "↵"}}));
  }
  return visible;
}

std::string TokenText::ToText(const std::string& token) const {
  if (style_ == Style::kByteLevel) return BytesOfToken(token).value_or(token);  // added tokens are text
  return style_ == Style::kMetaspace ? absl::StrReplaceAll(token, {{kMetaspace, " "}}) : token;
}

std::string TokenText::Join(std::span<const int64_t> ids) const {
  std::string text;
  for (const int64_t id : ids) {
    const std::string name = id >= 0 && id < std::ssize(names_) ? names_[id] : "";
    if (style_ == Style::kWordPiece) {
      text = JoinPieces(text, name);
    } else if (const auto byte = ParseByteToken(name); byte.has_value() && style_ == Style::kMetaspace) {
      text += *byte;
    } else {
      text += ToText(name);
    }
  }
  return text;
}

}  // namespace onnxtrain
