#include <algorithm>
#include <filesystem>
#include <span>

#include "frontend/base/status.h"
#include "frontend/base/text_file.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/json_reader.h"
#include "frontend/data/sources/json_writer.h"
#include "frontend/data/text/tokenizer.h"
#include "frontend/data/text/tokenizer_json.h"
#include "frontend/data/text/unicode.h"
#include "frontend/data/text/vocab_files.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

using Parts = absl::StatusOr<TokenizerParts>;
namespace fs = std::filesystem;

constexpr int64_t kMaxBytes = int64_t{1} << 30;
constexpr char kUnknown[] = "[UNK]";

absl::StatusOr<std::string> Read(const fs::path& path) { return ReadTextFile(path.string(), kMaxBytes); }

bool IsFile(const fs::path& path) { return IsRegularFile(path.string()); }

// The tokenizer_config.json beside a vocabulary; null where there is none.
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

// Classes of Hugging Face's transformers that split text as BERT's and GPT-2's do, and whether they put a token before
// and one behind it. Others keep vocabularies in files of the same names and split differently (Qwen2Tokenizer,
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

// The entry of the class that the configuration names; null where it names none.
absl::StatusOr<const KnownClass*> FindClass(const Json& config, std::span<const KnownClass> known) {
  if (!config.is_object() || !config.contains("tokenizer_class") || !config["tokenizer_class"].is_string())
    return nullptr;
  const auto name = config["tokenizer_class"].get<std::string>();
  std::string_view model = name;
  for (const std::string_view end : {"Fast", "Tokenizer"}) {
    if (model.ends_with(end)) model.remove_suffix(end.size());
  }
  if (model == "PreTrained" || model == "TokenizersBackend") return nullptr;  // of any model
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

// How the names of a byte-level vocabulary and of its merges end, also behind a prefix (gpt2-vocab.json). The second
// pair is that of GPT-2's first release.
constexpr std::pair<std::string_view, std::string_view> kGpt2Names[] = {{"vocab.json", "merges.txt"},
                                                                        {"encoder.json", "vocab.bpe"}};

bool IsGpt2Name(std::string_view name) {
  return std::ranges::any_of(
      kGpt2Names, [&](const auto& names) { return name.ends_with(names.first) || name.ends_with(names.second); });
}

// From either of the two files: the other one lies beside it.
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

// Also with a version behind it: tokenizer.model.v3.
bool IsSentencePieceName(std::string_view name) {
  return name.ends_with(".model") || name.ends_with(".spm") || name.find(".model.v") != std::string_view::npos;
}

Parts OpenSentencePiece(const fs::path& path) {
  ASSIGN_OR_RETURN(const std::string bytes, Read(path));
  return ParseSentencePiece(bytes);
}

// Any member's name may also be a token of a vocabulary.
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

// The file of a folder that says most.
absl::StatusOr<fs::path> FindInFolder(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "vocab.json", "encoder.json", "vocab.txt", "tokenizer.model",
                           "spiece.model", "sentencepiece.bpe.model"}) {
    if (IsFile(folder / name)) return folder / name;
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

}  // namespace

bool HoldsTokenizer(const std::string& folder) { return FindInFolder(folder).ok(); }

absl::StatusOr<std::shared_ptr<const Tokenizer>> LoadTokenizer(const std::string& path) {
  auto parts = OpenTokenizer(path);
  if (!parts.ok()) {
    const bool named = ToStd(parts.status().message()).starts_with(path);
    return named ? parts.status() : Annotate(parts.status(), path + ": ");
  }
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
