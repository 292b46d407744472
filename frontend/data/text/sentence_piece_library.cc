#include "frontend/data/text/sentence_piece_library.h"

#include <dlfcn.h>

#include <filesystem>

#include "frontend/base/files.h"

namespace onnxtrain {
namespace {

using LoadFn = SentencePieceLibrary* (*)(const std::string& bytes, std::string* error);

// The sanitizers' runtimes refuse deep binding.
#ifdef ONNXTRAIN_SANITIZER
constexpr int kBinding = 0;
#else
constexpr int kBinding = RTLD_DEEPBIND;
#endif

// Test programs lie in a folder beside that of the libraries.
std::filesystem::path FindModule() {
  const std::filesystem::path name = "libonnxtrain_sentencepiece.so", beside = LibraryFolder() / name;
  std::error_code ignored;
  return std::filesystem::exists(beside, ignored) ? beside : LibraryFolder() / ".." / "lib" / name;
}

struct Module {
  LoadFn load = nullptr;
  std::string problem;  // why there is none
};

// libsentencepiece has symbols of an old protobuf, which must not mix with those of the importer's: deep binding makes
// the library prefer its own. Never closed.
Module LoadModule() {
  void* library = dlopen(FindModule().c_str(), RTLD_NOW | RTLD_LOCAL | kBinding);
  void* load = library == nullptr ? nullptr : dlsym(library, "OnnxtrainLoadSentencePiece");
  if (load == nullptr) return {nullptr, std::string("the library of SentencePiece cannot be loaded: ") + dlerror()};
  return {reinterpret_cast<LoadFn>(load), ""};
}

}  // namespace

std::unique_ptr<const SentencePieceLibrary> SentencePieceLibrary::Load(const std::string& bytes, std::string* error) {
  static const Module module = LoadModule();
  if (module.load != nullptr) return std::unique_ptr<const SentencePieceLibrary>(module.load(bytes, error));
  *error = module.problem;
  return nullptr;
}

}  // namespace onnxtrain
