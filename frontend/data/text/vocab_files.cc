#include "frontend/data/text/vocab_files.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/data/sources/json_reader.h"
#include "frontend/data/text/models.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

// Calls visit(line, number from 1), without line ends.
template <typename Visit>
absl::Status ForEachLine(std::string_view text, Visit visit) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    RETURN_IF_ERROR(visit(line, number));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return absl::OkStatus();
}

bool IsBracketed(std::string_view token) { return token.starts_with('[') && token.ends_with(']'); }

// Is every token, special ones apart, without upper-case letters?
bool IsLowerCase(const Vocabulary& vocabulary) {
  const auto upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  return std::ranges::none_of(vocabulary.ids(), [&](const auto& entry) {
    return !IsBracketed(entry.first) && std::ranges::any_of(entry.first, upper);
  });
}

TemplatePart Special(TokenId id, int32_t type) { return {TemplatePart::Kind::kSpecial, {id}, type}; }

// Adds those of `names` that the vocabulary has as tokens that text may contain.
void AddSpecials(const Vocabulary& vocabulary, std::initializer_list<const char*> names, TokenizerParts* parts) {
  for (const char* name : names) {
    if (const auto id = vocabulary.Find(name)) parts->added.push_back({.content = name, .id = *id});
  }
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParseMerges(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> merges;
  RETURN_IF_ERROR(ForEachLine(text, [&](std::string_view line, int64_t number) -> absl::Status {
    if (line.empty() || line.starts_with("#version")) return absl::OkStatus();
    const size_t blank = line.find(' ');
    if (blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos)
      return Invalid("merges.txt: line ", number, ": expected two tokens");
    merges.emplace_back(line.substr(0, blank), line.substr(blank + 1));
    return absl::OkStatus();
  }));
  return merges;
}

}  // namespace

absl::StatusOr<TokenizerParts> ParseWordPieceVocabulary(const std::string& text, std::optional<bool> lowercase) {
  if (FindInvalidUtf8(text) != std::string::npos) return Invalid("the vocabulary is not UTF-8");
  WordPieceSpec spec;
  RETURN_IF_ERROR(ForEachLine(text, [&](std::string_view line, int64_t number) {
    spec.vocabulary.Add(line, static_cast<TokenId>(number - 1));
    return absl::OkStatus();
  }));
  TokenizerParts parts;
  const auto cls = spec.vocabulary.Find("[CLS]"), sep = spec.vocabulary.Find("[SEP]");
  if (!cls || !sep)
    return Invalid("no vocabulary of BERT: [CLS] and [SEP] are not in it (other tokenizers need their tokenizer.json)");
  const bool lower = lowercase.value_or(IsLowerCase(spec.vocabulary));
  parts.normalizer = MakeBertNormalizer({.strip_accents = lower, .lowercase = lower});
  parts.pre_tokenizer = MakeBertPreTokenizer();
  AddSpecials(spec.vocabulary, {"[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"}, &parts);
  parts.single = {Special(*cls, 0), {TemplatePart::Kind::kFirst}, Special(*sep, 0)};
  parts.pair = parts.single;
  parts.pair.push_back({TemplatePart::Kind::kSecond, {}, 1});
  parts.pair.push_back(Special(*sep, 1));
  parts.description = StrCat("WordPiece, ", spec.vocabulary.max_id() + 1, " tokens, ", lower ? "lower case" : "cased");
  ASSIGN_OR_RETURN(parts.model, MakeWordPiece(std::move(spec)));
  parts.files = {{"vocab.txt", text}};
  if (lowercase) parts.files.emplace_back("tokenizer_config.json", StrCat("{\"do_lower_case\": ", lower, "}\n"));
  return parts;
}

absl::StatusOr<TokenizerParts> ParseGpt2Vocabulary(const std::string& vocab_json, const std::string& merges,
                                                   std::optional<bool> wraps) {
  const Json json = ParseJson(vocab_json);
  if (!json.is_object() || json.empty()) return Invalid("vocab.json: no JSON object of tokens");
  BpeSpec spec{.byte_level = true};
  for (const auto& [token, id] : json.items()) {
    if (!id.is_number_integer()) return Invalid("vocab.json: token '", token, "' has no id");
    if (token.ends_with("</w>"))
      return Invalid("vocab.json: tokens end in </w>: such a vocabulary needs its tokenizer.json");
    spec.vocabulary.Add(token, id.get<TokenId>());
  }
  ASSIGN_OR_RETURN(spec.merges, ParseMerges(merges));
  TokenizerParts parts;
  const auto begin = spec.vocabulary.Find("<s>"), end = spec.vocabulary.Find("</s>");
  AddSpecials(spec.vocabulary, {"<|endoftext|>", "<s>", "</s>", "<unk>", "<pad>"}, &parts);
  if (const auto mask = spec.vocabulary.Find("<mask>"))
    parts.added.push_back({.content = "<mask>", .id = *mask, .left_strip = true});
  const bool wrapped = begin && end && wraps.value_or(true);
  if (wrapped) {
    parts.single = {Special(*begin, 0), {TemplatePart::Kind::kFirst}, Special(*end, 0)};
    parts.pair = parts.single;
    parts.pair.push_back(Special(*end, 0));
    parts.pair.push_back({TemplatePart::Kind::kSecond, {}, 0});
    parts.pair.push_back(Special(*end, 0));
  }
  parts.pre_tokenizer = MakeByteLevel(false, true);
  parts.description = StrCat("byte-level BPE, ", spec.vocabulary.max_id() + 1, " tokens",
                             wrapped ? ", <s> and </s> around each text" : "");
  ASSIGN_OR_RETURN(parts.model, MakeBpe(std::move(spec)));
  parts.files = {{"vocab.json", vocab_json}, {"merges.txt", merges}};
  if (wraps) {
    const char* const name = *wraps ? "Roberta" : "GPT2";
    parts.files.emplace_back("tokenizer_config.json", StrCat("{\"tokenizer_class\": \"", name, "Tokenizer\"}\n"));
  }
  return parts;
}

}  // namespace onnxtrain
