#include "frontend/data/text/tokenizer_stages.h"

#include "absl/strings/escaping.h"
#include "frontend/base/status.h"
#include "frontend/data/text/normalizers.h"

namespace onnxtrain {
namespace {

// A table of kinds: what reads the object of a kind into Result, with the help of Extra.
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

// Pattern: {"String": text} or {"Regex": expression}.
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

// Normalizers.

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

// Without a table it changes nothing.
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

// Pre-tokenizers.

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

// Bytes are spelled in an alphabet from the byte-level step on, which nothing else that splits may follow.
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

// Post-processors.

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

// ["[SEP]", 102]
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

// Changes offsets only.
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

}  // namespace

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

}  // namespace onnxtrain
