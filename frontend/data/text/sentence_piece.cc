#include <dlfcn.h>

#include <filesystem>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/data/text/load_tokenizer.h"
#include "frontend/data/text/sentence_piece_library.h"

namespace onnxtrain {
namespace {

using LoadFn = SentencePieceLibrary* (*)(const std::string& bytes, std::string* error);

// Runtimes of sanitizers do not support deep binding.
#ifdef ONNXTRAIN_SANITIZER
constexpr int kBinding = 0;
#else
constexpr int kBinding = RTLD_DEEPBIND;
#endif

// Returns the path of the module. Test programs are in a sibling of the folder of libraries.
std::filesystem::path FindModule() {
  const std::filesystem::path name = "libonnxtrain_sentencepiece.so", beside = LibraryFolder() / name;
  std::error_code ignored;
  return std::filesystem::exists(beside, ignored) ? beside : LibraryFolder() / ".." / "lib" / name;
}

struct Module {
  LoadFn load = nullptr;
  std::string problem;  // error if `load` is null
};

// Loads the module, which is never closed. libsentencepiece has symbols of an old protobuf that must not mix with the
// importer's: with deep binding the library prefers its own.
Module LoadModule() {
  void* library = dlopen(FindModule().c_str(), RTLD_NOW | RTLD_LOCAL | kBinding);
  void* load = library == nullptr ? nullptr : dlsym(library, "OnnxtrainLoadSentencePiece");
  if (load == nullptr) return {nullptr, std::string("the library of SentencePiece cannot be loaded: ") + dlerror()};
  return {reinterpret_cast<LoadFn>(load), ""};
}

// A model that passes a text as one piece, since the library normalizes and splits by itself.
class SentencePieceModel : public TokenModel {
 public:
  explicit SentencePieceModel(std::unique_ptr<const SentencePieceLibrary> library) : library_(std::move(library)) {}
  void Tokenize(std::string_view piece, std::vector<TokenId>* ids) const override {
    const std::vector<int> found = library_->Encode(piece);
    ids->insert(ids->end(), found.begin(), found.end());
  }
  std::optional<TokenId> Find(std::string_view token) const override {
    const int id = library_->Find(token);
    return id >= 0 ? std::optional<TokenId>(id) : std::nullopt;
  }
  TokenId max_id() const override { return library_->size() - 1; }
  std::string Name(TokenId id) const override { return library_->Name(static_cast<int>(id)); }

 private:
  std::unique_ptr<const SentencePieceLibrary> library_;
};

}  // namespace

std::unique_ptr<const SentencePieceLibrary> SentencePieceLibrary::Load(const std::string& bytes, std::string* error) {
  static const Module module = LoadModule();
  if (module.load != nullptr) return std::unique_ptr<const SentencePieceLibrary>(module.load(bytes, error));
  *error = module.problem;
  return nullptr;
}

absl::StatusOr<TokenizerParts> ParseSentencePiece(const std::string& bytes) {
  std::string error;
  std::unique_ptr<const SentencePieceLibrary> library = SentencePieceLibrary::Load(bytes, &error);
  if (library == nullptr) return Invalid("no SentencePiece model: ", error);
  const auto add = [](TokenId id, SampleTemplate* layout) {
    if (id >= 0) layout->push_back({TemplatePart::Kind::kSpecial, {id}});
  };
  const int begin = library->begin_id(), end = library->end_id();
  TokenizerParts parts;
  parts.single.clear();
  add(begin, &parts.single);
  parts.single.push_back({TemplatePart::Kind::kFirst});
  add(end, &parts.single);
  parts.pair = parts.single;
  parts.pair.push_back({TemplatePart::Kind::kSecond});
  add(end, &parts.pair);
  if (library->pad_id() >= 0) parts.pad = library->pad_id();
  parts.description =
      StrCat("SentencePiece, ", library->size(), " tokens", begin >= 0 ? ", begin" : "", end >= 0 ? ", end token" : "");
  parts.model = std::make_unique<SentencePieceModel>(std::move(library));
  parts.files = {{"tokenizer.model", bytes}};
  return parts;
}

}  // namespace onnxtrain
