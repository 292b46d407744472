#include <algorithm>
#include <filesystem>

#include "frontend/base/status.h"
#include "frontend/base/text_file.h"
#include "frontend/data/file.h"
#include "frontend/data/json_reader.h"
#include "frontend/data/json_writer.h"
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

// do_lower_case of the tokenizer_config.json beside a vocabulary, where it is there.
absl::StatusOr<std::optional<bool>> ReadLowerCase(const fs::path& vocabulary) {
  const fs::path path = vocabulary.parent_path() / "tokenizer_config.json";
  if (!IsFile(path)) return std::nullopt;
  ASSIGN_OR_RETURN(const std::string text, Read(path));
  const Json json = ParseJson(text);
  std::optional<bool> lower;
  if (json.is_object() && json.contains("do_lower_case") && json["do_lower_case"].is_boolean())
    lower = json["do_lower_case"].get<bool>();
  return lower;
}

Parts OpenWordPiece(const fs::path& path) {
  ASSIGN_OR_RETURN(const std::string text, Read(path));
  ASSIGN_OR_RETURN(const std::optional<bool> lower, ReadLowerCase(path));
  return ParseWordPieceVocabulary(text, lower);
}

// From either of vocab.json and merges.txt: the other one lies beside it.
Parts OpenGpt2(const fs::path& path) {
  ASSIGN_OR_RETURN(const std::string vocab, Read(path.parent_path() / "vocab.json"));
  ASSIGN_OR_RETURN(const std::string merges, Read(path.parent_path() / "merges.txt"));
  return ParseGpt2Vocabulary(vocab, merges);
}

Parts OpenSentencePiece(const fs::path& path) {
  ASSIGN_OR_RETURN(const std::string bytes, Read(path));
  return ParseSentencePiece(bytes);
}

Parts OpenJson(const fs::path& path) {
  ASSIGN_OR_RETURN(const std::string text, Read(path));
  const Json json = ParseJson(text);
  const bool vocabulary = json.is_object() && !json.contains("model") && !json.empty() && json.front().is_number();
  return vocabulary ? OpenGpt2(path) : ParseTokenizerJson(text);
}

// The file of a folder that says most.
absl::StatusOr<fs::path> FindInFolder(const fs::path& folder) {
  for (const char* name :
       {"tokenizer.json", "vocab.json", "vocab.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"}) {
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
  if (name.ends_with("merges.txt")) return OpenGpt2(path);
  if (name.ends_with(".model") || name.ends_with(".spm")) return OpenSentencePiece(path);
  if (name.ends_with(".txt")) return OpenWordPiece(path);
  return Invalid("not a known kind of tokenizer (tokenizer.json, vocab.txt, vocab.json with merges.txt, .model)");
}

}  // namespace

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
