#include "frontend/data/text/load_tokenizer.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/text/pipeline.h"
#include "frontend/data/text/tokenizer.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

// Facts about the stages before the model that change how the model is read.
struct StageFacts {
  bool byte_level = false;  // tokens spell bytes
};

// Each of these reads one object of tokenizer.json by the table of kinds of its stage, and calls itself for sequences.
// Null stands for an empty object. Fails, naming it, on an unknown kind.
absl::StatusOr<NormalizerPtr> ReadNormalizer(const Json& json);
absl::StatusOr<PreTokenizerPtr> ReadPreTokenizer(const Json& json, StageFacts* facts);
absl::Status ReadPostProcessor(const Json& json, TokenizerParts* parts);  // sets the templates of *parts

// A row of a table of kinds: the name in tokenizer.json and the function that reads such an object.
template <typename Read>
struct Kind {
  const char* name;
  Read read;
};

template <typename Read, size_t n>
absl::StatusOr<Read> FindKind(const Kind<Read> (&kinds)[n], const char* stage, const Json& json) {
  std::string type;
  RETURN_IF_ERROR(ReadField(json, "type", &type));
  for (const Kind<Read>& kind : kinds) {
    if (type == kind.name) return kind.read;
  }
  return Invalid(stage, " '", type, "' is not supported");
}

// A pattern: {"String": text} or {"Regex": expression}.
struct Pattern {
  std::string text;
  bool regex = false;
};

absl::StatusOr<Pattern> ReadPattern(const Json& json) {
  const Json& pattern = Part(json, "pattern");
  Pattern read;
  read.regex = pattern.contains("Regex");
  RETURN_IF_ERROR(ReadField(pattern, read.regex ? "Regex" : "String", &read.text));
  if (read.text.empty()) return Invalid("'pattern' is missing");
  return read;
}

using ReadNormalizerFn = absl::StatusOr<NormalizerPtr> (*)(const Json& json);

absl::StatusOr<NormalizerPtr> ReadBert(const Json& json) {
  BertOptions options;
  RETURN_IF_ERROR(ReadField(json, "clean_text", &options.clean_text));
  RETURN_IF_ERROR(ReadField(json, "handle_chinese_chars", &options.chinese));
  RETURN_IF_ERROR(ReadField(json, "lowercase", &options.lowercase));
  options.strip_accents = options.lowercase;
  RETURN_IF_ERROR(ReadField(json, "strip_accents", &options.strip_accents));
  return MakeBertNormalizer(options);
}

template <NormalForm form>
absl::StatusOr<NormalizerPtr> ReadForm(const Json&) {
  return MakeFormNormalizer(form);
}

absl::StatusOr<NormalizerPtr> ReadLowercase(const Json&) { return MakeLowercase(); }

absl::StatusOr<NormalizerPtr> ReadStripAccents(const Json&) { return MakeStripAccents(); }

absl::StatusOr<NormalizerPtr> ReadStrip(const Json& json) {
  bool left = true, right = true;
  RETURN_IF_ERROR(ReadField(json, "strip_left", &left));
  RETURN_IF_ERROR(ReadField(json, "strip_right", &right));
  return MakeStrip(left, right);
}

absl::StatusOr<NormalizerPtr> ReadPrepend(const Json& json) {
  std::string prefix;
  RETURN_IF_ERROR(ReadField(json, "prepend", &prefix));
  return MakePrepend(std::move(prefix));
}

absl::StatusOr<NormalizerPtr> ReadReplace(const Json& json) {
  ASSIGN_OR_RETURN(const Pattern pattern, ReadPattern(json));
  std::string content;
  RETURN_IF_ERROR(ReadField(json, "content", &content));
  if (pattern.regex) return MakeRegexReplace(pattern.text, std::move(content));
  return MakeReplace(pattern.text, std::move(content));
}

// Reads a table of normalizations; without one the stage changes nothing.
absl::StatusOr<NormalizerPtr> ReadPrecompiled(const Json& json) {
  std::string text, bytes;
  RETURN_IF_ERROR(ReadField(json, "precompiled_charsmap", &text));
  if (text.empty()) return MakeNormalizerSequence({});
  if (!absl::Base64Unescape(text, &bytes)) return Invalid("'precompiled_charsmap' is not base64");
  ASSIGN_OR_RETURN(Charsmap charsmap, Charsmap::Parse(bytes));
  return MakeCharsmapNormalizer(std::move(charsmap));
}

absl::StatusOr<NormalizerPtr> ReadNormalizerSequence(const Json& json) {
  std::vector<NormalizerPtr> steps;
  for (const Json& step : Part(json, "normalizers")) {
    ASSIGN_OR_RETURN(NormalizerPtr read, ReadNormalizer(step));
    steps.push_back(std::move(read));
  }
  return MakeNormalizerSequence(std::move(steps));
}

constexpr Kind<ReadNormalizerFn> kNormalizers[] = {
    {"BertNormalizer", ReadBert},
    {"NFC", ReadForm<NormalForm::kNfc>},
    {"NFD", ReadForm<NormalForm::kNfd>},
    {"NFKC", ReadForm<NormalForm::kNfkc>},
    {"NFKD", ReadForm<NormalForm::kNfkd>},
    {"Lowercase", ReadLowercase},
    {"StripAccents", ReadStripAccents},
    {"Strip", ReadStrip},
    {"Prepend", ReadPrepend},
    {"Replace", ReadReplace},
    {"Precompiled", ReadPrecompiled},
    {"Sequence", ReadNormalizerSequence},
};

using ReadPreTokenizerFn = absl::StatusOr<PreTokenizerPtr> (*)(const Json& json, StageFacts* facts);

absl::StatusOr<SplitBehavior> ReadBehavior(const Json& json) {
  static constexpr std::pair<const char*, SplitBehavior> kBehaviors[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  std::string name = "Isolated";
  RETURN_IF_ERROR(ReadField(json, "behavior", &name));
  for (const auto& [known, behavior] : kBehaviors) {
    if (name == known) return behavior;
  }
  return Invalid("behavior '", name, "' is not supported");
}

absl::StatusOr<PreTokenizerPtr> ReadBertPreTokenizer(const Json&, StageFacts*) { return MakeBertPreTokenizer(); }

absl::StatusOr<PreTokenizerPtr> ReadWhitespaceSplit(const Json&, StageFacts*) { return MakeWhitespaceSplit(); }

absl::StatusOr<PreTokenizerPtr> ReadWhitespace(const Json&, StageFacts*) { return MakeWhitespaceWords(); }

absl::StatusOr<PreTokenizerPtr> ReadPunctuation(const Json& json, StageFacts*) {
  ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(json));
  return MakePunctuation(behavior);
}

absl::StatusOr<PreTokenizerPtr> ReadDigits(const Json& json, StageFacts*) {
  bool individual = false;
  RETURN_IF_ERROR(ReadField(json, "individual_digits", &individual));
  return MakeDigits(individual);
}

absl::StatusOr<PreTokenizerPtr> ReadCharDelimiter(const Json& json, StageFacts*) {
  std::string delimiter;
  RETURN_IF_ERROR(ReadField(json, "delimiter", &delimiter));
  char32_t c = 0;
  if (delimiter.empty() || DecodeChar(delimiter, &c) != delimiter.size())
    return Invalid("'delimiter' is not one character");
  return MakeCharDelimiter(c);
}

absl::StatusOr<PreTokenizerPtr> ReadByteLevel(const Json& json, StageFacts* facts) {
  bool prefix_space = true, use_regex = true;
  RETURN_IF_ERROR(ReadField(json, "add_prefix_space", &prefix_space));
  RETURN_IF_ERROR(ReadField(json, "use_regex", &use_regex));
  facts->byte_level = true;
  return MakeByteLevel(prefix_space, use_regex);
}

absl::StatusOr<PreTokenizerPtr> ReadSplit(const Json& json, StageFacts*) {
  ASSIGN_OR_RETURN(const Pattern pattern, ReadPattern(json));
  ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(json));
  bool invert = false;
  RETURN_IF_ERROR(ReadField(json, "invert", &invert));
  if (pattern.regex) return MakeRegexSplit(pattern.text, behavior, invert);
  return MakeSplit(pattern.text, behavior, invert);
}

absl::StatusOr<PreTokenizerPtr> ReadMetaspace(const Json& json, StageFacts*) {
  std::string replacement = "\u2581", scheme;
  bool prefix_space = true, split = true;
  RETURN_IF_ERROR(ReadField(json, "replacement", &replacement));
  RETURN_IF_ERROR(ReadField(json, "prepend_scheme", &scheme));
  RETURN_IF_ERROR(ReadField(json, "add_prefix_space", &prefix_space));
  RETURN_IF_ERROR(ReadField(json, "split", &split));
  if (scheme.empty()) scheme = prefix_space ? "always" : "never";
  if (scheme == "always") return MakeMetaspace(std::move(replacement), PrependScheme::kAlways, split);
  if (scheme == "first") return MakeMetaspace(std::move(replacement), PrependScheme::kFirst, split);
  if (scheme == "never") return MakeMetaspace(std::move(replacement), PrependScheme::kNever, split);
  return Invalid("prepend_scheme '", scheme, "' is not supported");
}

// Reads a sequence. Fails if a step follows the byte-level step, after which text is in GPT-2's alphabet.
absl::StatusOr<PreTokenizerPtr> ReadPreTokenizerSequence(const Json& json, StageFacts* facts) {
  std::vector<PreTokenizerPtr> steps;
  for (const Json& step : Part(json, "pretokenizers")) {
    if (facts->byte_level) return Invalid("a pre-tokenizer behind 'ByteLevel' is not supported");
    ASSIGN_OR_RETURN(PreTokenizerPtr read, ReadPreTokenizer(step, facts));
    steps.push_back(std::move(read));
  }
  return MakePreTokenizerSequence(std::move(steps));
}

constexpr Kind<ReadPreTokenizerFn> kPreTokenizers[] = {
    {"BertPreTokenizer", ReadBertPreTokenizer},
    {"WhitespaceSplit", ReadWhitespaceSplit},
    {"Whitespace", ReadWhitespace},
    {"Punctuation", ReadPunctuation},
    {"Digits", ReadDigits},
    {"CharDelimiterSplit", ReadCharDelimiter},
    {"ByteLevel", ReadByteLevel},
    {"Split", ReadSplit},
    {"Metaspace", ReadMetaspace},
    {"Sequence", ReadPreTokenizerSequence},
};

using ReadPostProcessorFn = absl::Status (*)(const Json& json, TokenizerParts* parts);

TemplatePart Special(TokenId id, int32_t type) { return {TemplatePart::Kind::kSpecial, {id}, type}; }

absl::StatusOr<TemplatePart> ReadTemplatePart(const Json& json, const Json& specials) {
  TemplatePart part;
  const bool special = json.contains("SpecialToken");
  const Json& body = Part(json, special ? "SpecialToken" : "Sequence");
  std::string id;
  RETURN_IF_ERROR(ReadField(body, "id", &id));
  RETURN_IF_ERROR(ReadField(body, "type_id", &part.type));
  if (special) {
    part.kind = TemplatePart::Kind::kSpecial;
    RETURN_IF_ERROR(ReadField(Part(specials, id.c_str()), "ids", &part.ids));
    if (part.ids.empty()) return Invalid("special token '", id, "' has no ids");
  } else if (id == "A" || id == "B") {
    part.kind = id == "A" ? TemplatePart::Kind::kFirst : TemplatePart::Kind::kSecond;
  } else {
    return Invalid("sequence '", id, "' is not A or B");
  }
  return part;
}

absl::StatusOr<SampleTemplate> ReadTemplateParts(const Json& parts, const Json& specials) {
  SampleTemplate read;
  for (const Json& json : parts) {
    ASSIGN_OR_RETURN(TemplatePart part, ReadTemplatePart(json, specials));
    read.push_back(std::move(part));
  }
  return read;
}

absl::Status ReadTemplate(const Json& json, TokenizerParts* parts) {
  const Json& specials = Part(json, "special_tokens");
  ASSIGN_OR_RETURN(parts->single, ReadTemplateParts(Part(json, "single"), specials));
  ASSIGN_OR_RETURN(parts->pair, ReadTemplateParts(Part(json, "pair"), specials));
  return absl::OkStatus();
}

// Reads the id of a pair like ["[SEP]", 102].
absl::StatusOr<TokenId> ReadTokenPair(const Json& json, const char* key) {
  const Json& pair = Part(json, key);
  if (!pair.is_array() || pair.size() != 2 || !pair[1].is_number_integer())
    return Invalid("'", key, "' is not a token with its id");
  return pair[1].get<TokenId>();
}

absl::Status ReadBertProcessing(const Json& json, TokenizerParts* parts) {
  ASSIGN_OR_RETURN(const TokenId cls, ReadTokenPair(json, "cls"));
  ASSIGN_OR_RETURN(const TokenId sep, ReadTokenPair(json, "sep"));
  parts->single = {Special(cls, 0), {TemplatePart::Kind::kFirst}, Special(sep, 0)};
  parts->pair = parts->single;
  parts->pair.push_back({TemplatePart::Kind::kSecond, {}, 1});
  parts->pair.push_back(Special(sep, 1));
  return absl::OkStatus();
}

absl::Status ReadRobertaProcessing(const Json& json, TokenizerParts* parts) {
  ASSIGN_OR_RETURN(const TokenId cls, ReadTokenPair(json, "cls"));
  ASSIGN_OR_RETURN(const TokenId sep, ReadTokenPair(json, "sep"));
  parts->single = {Special(cls, 0), {TemplatePart::Kind::kFirst}, Special(sep, 0)};
  parts->pair = parts->single;
  parts->pair.push_back(Special(sep, 0));
  parts->pair.push_back({TemplatePart::Kind::kSecond, {}, 0});
  parts->pair.push_back(Special(sep, 0));
  return absl::OkStatus();
}

// Returns OK, since this processor changes offsets only.
absl::Status ReadByteLevelProcessor(const Json&, TokenizerParts*) { return absl::OkStatus(); }

absl::Status ReadProcessorSequence(const Json& json, TokenizerParts* parts) {
  for (const Json& step : Part(json, "processors")) RETURN_IF_ERROR(ReadPostProcessor(step, parts));
  return absl::OkStatus();
}

constexpr Kind<ReadPostProcessorFn> kPostProcessors[] = {
    {"TemplateProcessing", ReadTemplate},         {"BertProcessing", ReadBertProcessing},
    {"RobertaProcessing", ReadRobertaProcessing}, {"ByteLevel", ReadByteLevelProcessor},
    {"Sequence", ReadProcessorSequence},
};

absl::StatusOr<NormalizerPtr> ReadNormalizer(const Json& json) {
  if (json.empty()) return nullptr;
  ASSIGN_OR_RETURN(const auto read, FindKind(kNormalizers, "normalizer", json));
  auto normalizer = read(json);
  return normalizer.ok() ? std::move(normalizer) : Annotate(normalizer.status(), "normalizer: ");
}

absl::StatusOr<PreTokenizerPtr> ReadPreTokenizer(const Json& json, StageFacts* facts) {
  if (json.empty()) return nullptr;
  ASSIGN_OR_RETURN(const auto read, FindKind(kPreTokenizers, "pre-tokenizer", json));
  auto pre_tokenizer = read(json, facts);
  return pre_tokenizer.ok() ? std::move(pre_tokenizer) : Annotate(pre_tokenizer.status(), "pre-tokenizer: ");
}

absl::Status ReadPostProcessor(const Json& json, TokenizerParts* parts) {
  if (json.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto read, FindKind(kPostProcessors, "post-processor", json));
  return Annotate(read(json, parts), "post-processor: ");
}

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

// Reads a merge: "a b" or ["a", "b"].
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

// Rounds a number twice, like serde_json, Hugging Face's JSON reader: its digits to a double, then that divided by a
// power of ten. Such roundings decide between segmentations of equal score.
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
  if (at == written.ptr) return value;  // infinite or NaN
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

// Returns the kind of the model, inferred from its keys if an older file does not name it.
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
