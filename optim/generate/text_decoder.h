// Runs a language model forward, token by token. Keys and values of earlier tokens stay in a cache if the model has
// one; otherwise every call computes all tokens again.
//
//   auto decoder = TextDecoder::Create(model, backend, nullptr, {.capacity = 512});
//   (*decoder)->Append({{1, 5, 7}});           // a prompt
//   auto scores = (*decoder)->logits(0);       // of the token that follows
//   (*decoder)->Append({{best}});
//
// A program is compiled for one token and one for kChunk tokens. They read all memory of the cache. When that is full,
// it doubles, and both are compiled again. Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/onnx/import.h"
#include "optim/step/session.h"

namespace onnxtrain {

struct DecoderOptions {
  int64_t rows = 1;                 // texts that are continued together
  int64_t capacity = 0;             // tokens of a text, prompt and answer
  int64_t first_capacity = 512;     // tokens that the cache has memory for at first; it doubles when it is full
  int64_t exact_length = 0;         // the only length that the model accepts; 0: any
  int64_t greatest_length = 0;      // positions that the model has; 0: no limit
  int64_t vocabulary = 0;           // rows of the embedding table; 0: unknown
  std::string logits;               // "": the first output [batch, length, tokens]
  DType compute = DType::kFloat32;  // as in SessionOptions
};

class TextDecoder {
 public:
  // How the model continues its cache. Known only by trying: kOrdered, as GroupQueryAttention, puts new keys behind
  // those that the mask counts, kAppended behind the memory of the cache.
  enum class CacheUse : uint8_t { kAppended, kOrdered, kNone };

  // Computes with the weights of `session`, which trains the model, in its memory; null: with those of the file. Both
  // must outlive the decoder, and so must `backend`, which is that of the session. Chooses the first use of the cache
  // with which the model predicts what it predicts without. Fails, naming it, on an input that no decoder of text has,
  // and on a model whose predictions depend on later tokens.
  static absl::StatusOr<std::unique_ptr<TextDecoder>> Create(const std::shared_ptr<const OnnxModel>& model,
                                                             Backend* backend, const Session* session,
                                                             const DecoderOptions& options);
  virtual ~TextDecoder() = default;

  // Must be called after the weights of the session have changed. Drops all tokens.
  virtual void WeightsChanged() = 0;

  // Appends tokens to each row; rows without new tokens keep theirs. Fails if a row exceeds capacity(); after any other
  // error, the decoder must not be used.
  virtual absl::Status Append(std::span<const std::vector<int64_t>> tokens) = 0;
  // Returns the scores of the tokens that may follow the row, after the last Append that had tokens for it.
  virtual std::span<const float> logits(int64_t row) const = 0;
  // Drops the tokens of a row from `length` on.
  virtual void Truncate(int64_t row, int64_t length) = 0;

  virtual int64_t length(int64_t row) const = 0;  // tokens of the row
  virtual int64_t rows() const = 0;
  virtual CacheUse cache_use() const = 0;
  virtual int64_t capacity() const = 0;  // tokens of a row: options.capacity or less
};

}  // namespace onnxtrain
