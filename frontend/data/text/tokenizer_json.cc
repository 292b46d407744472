#include "frontend/data/text/tokenizer_json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>

#include "frontend/base/status.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/text/pipeline.h"
#include "frontend/data/text/tokenizer_stages.h"

namespace onnxtrain {
namespace {

absl::StatusOr<Vocabulary> ReadVocabulary(const Json& model) {
  const Json& vocab = Part(model, "vocab");
  if (!vocab.is_object() || vocab.empty()) return Invalid("the vocabulary is missing");
  Vocabulary vocabulary;
  for (const auto& [token, id] : vocab.items()) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > (int64_t{1} << 30))
      return Invalid("token '", token, "' has no id of 0 or more");
    vocabulary.Add(token, id.get<TokenId>());
  }
  return vocabulary;
}

absl::StatusOr<TokenModelPtr> ReadWordPiece(const Json& json, const StageFacts&) {
  WordPieceSpec spec;
  ASSIGN_OR_RETURN(spec.vocabulary, ReadVocabulary(json));
  RETURN_IF_ERROR(ReadField(json, "unk_token", &spec.unknown));
  RETURN_IF_ERROR(ReadField(json, "continuing_subword_prefix", &spec.prefix));
  RETURN_IF_ERROR(ReadField(json, "max_input_chars_per_word", &spec.max_chars));
  return MakeWordPiece(std::move(spec));
}

absl::StatusOr<TokenModelPtr> ReadWordLevel(const Json& json, const StageFacts&) {
  std::string unknown = "<unk>";
  RETURN_IF_ERROR(ReadField(json, "unk_token", &unknown));
  ASSIGN_OR_RETURN(Vocabulary vocabulary, ReadVocabulary(json));
  return MakeWordLevel(std::move(vocabulary), unknown);
}

// "a b" or ["a", "b"].
absl::StatusOr<std::pair<std::string, std::string>> ReadMerge(const Json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
  if (merge.is_string()) {
    const auto text = merge.get<std::string>();
    if (const size_t blank = text.find(' '); blank != std::string::npos)
      return std::pair(text.substr(0, blank), text.substr(blank + 1));
  }
  return Invalid("'merges' holds something else than pairs of tokens");
}

absl::StatusOr<TokenModelPtr> ReadBpe(const Json& json, const StageFacts& facts) {
  BpeSpec spec{.byte_level = facts.byte_level};
  double dropout = 0;
  RETURN_IF_ERROR(ReadField(json, "dropout", &dropout));
  if (dropout > 0) return Invalid("'dropout' of merges is not supported");
  ASSIGN_OR_RETURN(spec.vocabulary, ReadVocabulary(json));
  RETURN_IF_ERROR(ReadField(json, "unk_token", &spec.unknown));
  RETURN_IF_ERROR(ReadField(json, "continuing_subword_prefix", &spec.prefix));
  RETURN_IF_ERROR(ReadField(json, "end_of_word_suffix", &spec.suffix));
  RETURN_IF_ERROR(ReadField(json, "fuse_unk", &spec.fuse_unknown));
  RETURN_IF_ERROR(ReadField(json, "byte_fallback", &spec.byte_fallback));
  RETURN_IF_ERROR(ReadField(json, "ignore_merges", &spec.ignore_merges));
  for (const Json& merge : Part(json, "merges")) {
    ASSIGN_OR_RETURN(auto pair, ReadMerge(merge));
    spec.merges.push_back(std::move(pair));
  }
  return MakeBpe(std::move(spec));
}

// Rounds a number twice, as Hugging Face's reader of JSON (serde_json) does: its digits to a double, and that divided
// by a power of ten. Segmentations of equal score are told apart by such roundings.
double RoundDigitsFirst(double value) {
  std::array<char, 40> text;
  const auto written = std::to_chars(text.begin(), text.end(), std::fabs(value), std::chars_format::scientific);
  uint64_t digits = 0;
  int exponent = 0;
  const char* at = text.data();
  for (bool fraction = false; at != written.ptr && *at != 'e'; ++at) {
    if (*at == '.') {
      fraction = true;
    } else {
      digits = 10 * digits + (*at - '0');
      exponent -= fraction;
    }
  }
  if (at == written.ptr) return value;  // not finite
  int shown = 0;
  std::from_chars(at + (at[1] == '+' ? 2 : 1), written.ptr, shown);
  exponent += shown;
  const double power = std::pow(10.0, std::abs(exponent));
  const double rounded = exponent < 0 ? static_cast<double>(digits) / power : static_cast<double>(digits) * power;
  return std::copysign(rounded, value);
}

absl::StatusOr<TokenModelPtr> ReadUnigram(const Json& json, const StageFacts&) {
  UnigramSpec spec;
  if (const Json& id = Part(json, "unk_id"); id.is_number_integer()) spec.unknown = id.get<TokenId>();
  RETURN_IF_ERROR(ReadField(json, "byte_fallback", &spec.byte_fallback));
  const Json& vocab = Part(json, "vocab");
  for (const Json& token : vocab) {
    if (!token.is_array() || token.size() != 2 || !token[0].is_string() || !token[1].is_number())
      return Invalid("'vocab' holds something else than tokens with scores");
    spec.tokens.emplace_back(token[0].get<std::string>(), RoundDigitsFirst(token[1].get<double>()));
  }
  return MakeUnigram(std::move(spec));
}

struct ModelKind {
  const char* name;
  absl::StatusOr<TokenModelPtr> (*read)(const Json& json, const StageFacts& facts);
};
constexpr ModelKind kModels[] = {
    {"WordPiece", ReadWordPiece}, {"WordLevel", ReadWordLevel}, {"BPE", ReadBpe}, {"Unigram", ReadUnigram}};

// Older files do not name the kind of their model.
std::string FindModelKind(const Json& json) {
  std::string type;
  if (ReadField(json, "type", &type).ok() && !type.empty()) return type;
  if (json.contains("merges")) return "BPE";
  if (json.contains("max_input_chars_per_word")) return "WordPiece";
  return Part(json, "vocab").is_array() ? "Unigram" : "WordLevel";
}

absl::StatusOr<TokenModelPtr> ReadModel(const Json& json, const StageFacts& facts) {
  if (!json.is_object() || json.empty()) return Invalid("'model' is missing");
  const std::string kind = FindModelKind(json);
  for (const ModelKind& model : kModels) {
    if (kind != model.name) continue;
    auto read = model.read(json, facts);
    return read.ok() ? std::move(read) : Annotate(read.status(), StrCat("model ", kind, ": "));
  }
  return Invalid("model '", kind, "' is not supported");
}

absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(const Json& json) {
  std::vector<AddedToken> tokens;
  for (const Json& entry : Part(json, "added_tokens")) {
    if (!entry.is_object()) return Invalid("'added_tokens' holds something else than objects");
    AddedToken token{.id = -1};
    RETURN_IF_ERROR(ReadField(entry, "id", &token.id));
    RETURN_IF_ERROR(ReadField(entry, "content", &token.content));
    RETURN_IF_ERROR(ReadField(entry, "single_word", &token.single_word));
    RETURN_IF_ERROR(ReadField(entry, "lstrip", &token.left_strip));
    RETURN_IF_ERROR(ReadField(entry, "rstrip", &token.right_strip));
    RETURN_IF_ERROR(ReadField(entry, "normalized", &token.normalized));
    if (token.id < 0) return Invalid("added token '", token.content, "' has no id");
    tokens.push_back(std::move(token));
  }
  return tokens;
}

std::string Describe(const Json& json, const TokenizerParts& parts) {
  return StrCat(FindModelKind(Part(json, "model")), ", ", parts.model->max_id() + 1, " tokens");
}

}  // namespace

absl::StatusOr<TokenizerParts> ParseTokenizerJson(const std::string& text) {
  const Json json = ParseJson(text);
  if (IsNestedTooDeep(text)) return Invalid("JSON nested more than ", kDeepestJson, " deep is refused");
  if (json.is_discarded()) return Invalid("no valid JSON");
  if (!json.is_object()) return Invalid("no JSON object");
  TokenizerParts parts;
  ASSIGN_OR_RETURN(parts.normalizer, ReadNormalizer(Part(json, "normalizer")));
  StageFacts facts;
  ASSIGN_OR_RETURN(parts.pre_tokenizer, ReadPreTokenizer(Part(json, "pre_tokenizer"), &facts));
  ASSIGN_OR_RETURN(parts.model, ReadModel(Part(json, "model"), facts));
  ASSIGN_OR_RETURN(parts.added, ReadAddedTokens(json));
  RETURN_IF_ERROR(ReadPostProcessor(Part(json, "post_processor"), &parts));
  if (const Json& pad = Part(Part(json, "padding"), "pad_id"); pad.is_number_integer()) parts.pad = pad.get<TokenId>();
  parts.description = Describe(json, parts);
  parts.files = {{"tokenizer.json", text}};
  return parts;
}

}  // namespace onnxtrain
