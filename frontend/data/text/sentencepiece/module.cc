// The shared library libonnxtrain_sentencepiece.so, which only links libsentencepiece.
#include <sentencepiece_processor.h>

#include <exception>

#include "frontend/data/text/sentence_piece_library.h"

namespace onnxtrain {
namespace {

class Library : public SentencePieceLibrary {
 public:
  // Catches exceptions: the library throws on empty pieces and on an order of pieces that its tables refuse.
  bool Load(const std::string& bytes, std::string* error) try {
    const auto status = processor_.LoadFromSerializedProto(bytes);
    if (!status.ok()) *error = status.ToString();
    return status.ok();
  } catch (const std::exception& e) {
    *error = e.what();
    return false;
  }
  std::vector<int> Encode(std::string_view text) const override { return processor_.EncodeAsIds(text); }
  int Find(std::string_view token) const override {
    const int id = processor_.PieceToId(token);
    return processor_.IdToPiece(id) == token ? id : -1;
  }
  std::string Name(int id) const override { return processor_.IdToPiece(id); }
  int size() const override { return processor_.GetPieceSize(); }
  int begin_id() const override { return processor_.bos_id(); }
  int end_id() const override { return processor_.eos_id(); }
  int pad_id() const override { return processor_.pad_id(); }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) SentencePieceLibrary* OnnxtrainLoadSentencePiece(
    const std::string& bytes, std::string* error) {
  auto library = std::make_unique<Library>();
  return library->Load(bytes, error) ? library.release() : nullptr;
}

}  // namespace onnxtrain
