#include "frontend/data/text/load_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/text/pipeline.h"
#include "frontend/data/text/tokenizer.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

// Calls visit(line, 1-based number) for each line without its end.
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

// Returns true if no token except special ones has upper-case letters.
bool IsLowerCase(const Vocabulary& vocabulary) {
  const auto upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  return std::ranges::none_of(vocabulary.ids(), [&](const auto& entry) {
    return !IsBracketed(entry.first) && std::ranges::any_of(entry.first, upper);
  });
}

TemplatePart Special(TokenId id, int32_t type) { return {TemplatePart::Kind::kSpecial, {id}, type}; }

// Registers those of `names` that are in the vocabulary as added tokens, which text may contain.
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

namespace {

using Json = nlohmann::json;

using Parts = absl::StatusOr<TokenizerParts>;
namespace fs = std::filesystem;

constexpr int64_t kMaxBytes = int64_t{1} << 30;
constexpr char kUnknown[] = "[UNK]";

absl::StatusOr<std::string> Read(const fs::path& path) { return ReadTextFile(path.string(), kMaxBytes); }

bool IsFile(const fs::path& path) { return IsRegularFile(path.string()); }

// Reads the tokenizer_config.json in the folder of a vocabulary; null if there is none.
absl::StatusOr<Json> ReadConfig(const fs::path& vocabulary) {
  const fs::path path = vocabulary.parent_path() / "tokenizer_config.json";
  if (!IsFile(path)) return Json();
  ASSIGN_OR_RETURN(const std::string text, Read(path));
  return ParseJson(text);
}

std::optional<bool> FindLowerCase(const Json& config) {
  if (!config.is_object() || !config.contains("do_lower_case") || !config["do_lower_case"].is_boolean())
    return std::nullopt;
  return config["do_lower_case"].get<bool>();
}

// Tokenizer classes of Hugging Face's transformers that split text like BERT's and GPT-2's, and whether they put tokens
// before and after it. Other classes have vocabulary files of the same names but split differently (Qwen2Tokenizer,
// BertJapaneseTokenizer).
struct KnownClass {
  std::string_view name;  // without "Tokenizer" and "TokenizerFast"
  bool wraps = true;
};
constexpr KnownClass kBertClasses[] = {{"Bert"},       {"ConvBert"},   {"DPRContextEncoder"}, {"DPRQuestionEncoder"},
                                       {"DPRReader"},  {"DistilBert"}, {"Electra"},           {"Ernie"},
                                       {"Funnel"},     {"LayoutLM"},   {"LayoutLMv2"},        {"Lxmert"},
                                       {"MobileBert"}, {"Realm"},      {"RetriBert"},         {"Splinter"},
                                       {"SqueezeBert"}};
constexpr KnownClass kGpt2Classes[] = {{"Bart"}, {"CodeGen", false}, {"GPT2", false}, {"LED"}, {"Longformer"},
                                       {"MVP"},  {"Roberta"}};

// Returns the entry of the class in the configuration; null if it names none.
absl::StatusOr<const KnownClass*> FindClass(const Json& config, std::span<const KnownClass> known) {
  if (!config.is_object() || !config.contains("tokenizer_class") || !config["tokenizer_class"].is_string())
    return nullptr;
  const auto name = config["tokenizer_class"].get<std::string>();
  std::string_view model = name;
  for (const std::string_view end : {"Fast", "Tokenizer"}) {
    if (model.ends_with(end)) model.remove_suffix(end.size());
  }
  if (model == "PreTrained" || model == "TokenizersBackend") return nullptr;  // used for any model
  const auto found = std::ranges::find(known, model, &KnownClass::name);
  if (found != known.end()) return &*found;
  return Invalid("the tokenizer_config.json beside it names a ", name,
                 ", which splits text in another way: it needs its tokenizer.json");
}

Parts OpenWordPiece(const fs::path& path) {
  ASSIGN_OR_RETURN(const std::string text, Read(path));
  ASSIGN_OR_RETURN(const Json config, ReadConfig(path));
  RETURN_IF_ERROR(FindClass(config, kBertClasses).status());
  return ParseWordPieceVocabulary(text, FindLowerCase(config));
}

// Endings of the names of a byte-level vocabulary and its merges, possibly after a prefix (gpt2-vocab.json). The second
// pair is that of GPT-2's first release.
constexpr std::pair<std::string_view, std::string_view> kGpt2Names[] = {{"vocab.json", "merges.txt"},
                                                                        {"encoder.json", "vocab.bpe"}};

bool IsGpt2Name(std::string_view name) {
  return std::ranges::any_of(
      kGpt2Names, [&](const auto& names) { return name.ends_with(names.first) || name.ends_with(names.second); });
}

// Loads both files, given the path of one; the other is in the same folder.
Parts OpenGpt2(const fs::path& path) {
  const std::string name = path.filename().string();
  for (const auto& [vocab_end, merges_end] : kGpt2Names) {
    const std::string_view end = name.ends_with(vocab_end) ? vocab_end : merges_end;
    if (!name.ends_with(end)) continue;
    const std::string prefix = (path.parent_path() / name.substr(0, name.size() - end.size())).string();
    ASSIGN_OR_RETURN(const std::string vocab, Read(StrCat(prefix, vocab_end)));
    ASSIGN_OR_RETURN(const std::string merges, Read(StrCat(prefix, merges_end)));
    ASSIGN_OR_RETURN(const Json config, ReadConfig(path));
    ASSIGN_OR_RETURN(const KnownClass* known, FindClass(config, kGpt2Classes));
    if (config.is_object() && config.value("add_bos_token", Json()) == true && known != nullptr && !known->wraps)
      return Invalid("the tokenizer_config.json beside it has add_bos_token: it needs its tokenizer.json");
    return ParseGpt2Vocabulary(vocab, merges, known == nullptr ? std::nullopt : std::optional(known->wraps));
  }
  return Invalid("a vocabulary without merges: its name should be vocab.json, beside merges.txt");
}

// Accepts a version at the end, as in tokenizer.model.v3.
bool IsSentencePieceName(std::string_view name) {
  return name.ends_with(".model") || name.ends_with(".spm") || name.find(".model.v") != std::string_view::npos;
}

Parts OpenSentencePiece(const fs::path& path) {
  ASSIGN_OR_RETURN(const std::string bytes, Read(path));
  return ParseSentencePiece(bytes);
}

// Decides between a tokenizer.json and a vocab.json, in which any key may be a token.
Parts OpenJson(const fs::path& path) {
  ASSIGN_OR_RETURN(const std::string text, Read(path));
  const Json json = ParseJson(text);
  const bool vocabulary = json.is_object() && !json.empty() &&
                          std::ranges::all_of(json, [](const Json& member) { return member.is_number(); });
  if (vocabulary) return OpenGpt2(path);
  if (json.is_object() && json.contains("config") && json.contains("vocab") && json["vocab"].is_array())
    return Invalid("a tokenizer of mistral_common: save it as a tokenizer.json (transformers)");
  return ParseTokenizerJson(text);
}

// Returns true unless the file is a vocab.txt without the tokens of BERT, which may be a list of anything.
bool MayBeTokenizer(const fs::path& path) {
  if (path.filename() != "vocab.txt") return true;
  const auto text = Read(path);
  return text.ok() && text->find("[CLS]") != std::string::npos && text->find("[SEP]") != std::string::npos;
}

using Role = TokenizerFileName::Role;
constexpr TokenizerFileName kFileNames[] = {{"tokenizer.json", Role::kVocabulary},
                                            {"vocab.json", Role::kVocabulary},
                                            {"encoder.json", Role::kVocabulary},
                                            {"vocab.txt", Role::kVocabulary},
                                            {"tokenizer.model", Role::kVocabulary},
                                            {"spiece.model", Role::kVocabulary},
                                            {"sentencepiece.bpe.model", Role::kVocabulary},
                                            {"merges.txt", Role::kPart},
                                            {"vocab.bpe", Role::kPart},
                                            {"added_tokens.json", Role::kPart},
                                            {"normalizer.json", Role::kPart},
                                            {"tokenizer_config.json", Role::kSettings},
                                            {"special_tokens_map.json", Role::kSettings},
                                            {"chat_template.jinja", Role::kSettings},
                                            {"chat_template.json", Role::kSettings}};

// Returns the most complete tokenizer file of a folder.
absl::StatusOr<fs::path> FindInFolder(const fs::path& folder) {
  for (const auto& [name, role] : kFileNames) {
    if (role == Role::kVocabulary && IsFile(folder / name) && MayBeTokenizer(folder / name)) return folder / name;
  }
  return Invalid("holds no tokenizer.json, vocab.json, vocab.txt or tokenizer.model");
}

Parts OpenTokenizer(fs::path path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    ASSIGN_OR_RETURN(path, FindInFolder(path));
  }
  const std::string name = path.filename().string();
  if (name.ends_with(".json")) return OpenJson(path);
  if (IsGpt2Name(name)) return OpenGpt2(path);
  if (IsSentencePieceName(name)) return OpenSentencePiece(path);
  if (name.ends_with(".txt")) return OpenWordPiece(path);
  if (name.ends_with(".tiktoken"))
    return Invalid(
        "ranks of tiktoken, without the rule that splits text: save it as a tokenizer.json "
        "(TikTokenConverter of transformers)");
  return Invalid("not a known kind of tokenizer (tokenizer.json, vocab.txt, vocab.json with merges.txt, .model)");
}

// Adds the settings beside the tokenizer to its files.
void AddSettings(const fs::path& path, TokenizerParts* parts) {
  std::error_code ignored;
  const fs::path folder = fs::is_directory(path, ignored) ? path : path.parent_path();
  for (const auto& [name, role] : kFileNames) {
    const auto same = [&, own = name](const auto& file) { return file.first == own; };
    if (role != Role::kSettings || std::ranges::any_of(parts->files, same) || !IsFile(folder / name)) continue;
    auto text = Read(folder / name);
    if (text.ok()) parts->files.emplace_back(name, *std::move(text));
  }
}

}  // namespace

std::span<const TokenizerFileName> TokenizerFileNames() { return kFileNames; }

bool HoldsTokenizer(const std::string& folder) { return FindInFolder(folder).ok(); }

absl::StatusOr<std::shared_ptr<const Tokenizer>> LoadTokenizer(const std::string& path) {
  auto parts = OpenTokenizer(path);
  if (!parts.ok()) {
    const bool named = ToStd(parts.status().message()).starts_with(path);
    return named ? parts.status() : Annotate(parts.status(), path + ": ");
  }
  AddSettings(path, &*parts);
  return std::make_shared<const Tokenizer>(*std::move(parts));
}

absl::Status CollectChars(std::string_view text, std::set<char32_t>* chars) {
  if (const size_t invalid = FindInvalidUtf8(text); invalid != std::string_view::npos)
    return Invalid("byte ", invalid, " of the text is not UTF-8");
  char32_t last = 0, c = 0;
  for (bool first = true; !text.empty(); first = false) {
    text.remove_prefix(DecodeChar(text, &c));
    if (first || c != last) chars->insert(c);
    last = c;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> MakeCharTokenizer(const std::set<char32_t>& chars, bool unknown) {
  Json json = {{"model", {{"type", "WordLevel"}, {"vocab", Json::object()}, {"unk_token", kUnknown}}},
               {"pre_tokenizer",
                {{"type", "Split"}, {"pattern", {{"Regex", "(?s)."}}}, {"behavior", "Isolated"}, {"invert", false}}}};
  Json& vocab = json["model"]["vocab"];
  TokenId next = 0;
  for (const char32_t c : chars) {
    std::string token;
    AppendChar(c, &token);
    vocab[token] = next++;
  }
  if (unknown) vocab[kUnknown] = next;
  ASSIGN_OR_RETURN(TokenizerParts parts, ParseTokenizerJson(WriteJson(json)));
  parts.description = StrCat(chars.size(), " characters");
  return std::make_shared<const Tokenizer>(std::move(parts));
}

}  // namespace onnxtrain
