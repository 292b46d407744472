// Continues texts token by token.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/config/config.h"
#include "optim/generate/prompts.h"
#include "optim/generate/text_decoder.h"

namespace onnxtrain {

struct SamplingSpec {
  double temperature = 0;  // scores are divided by it; 0: the token with the greatest score
  double top_p = 1;        // draws among the most probable tokens that together reach this probability
  int64_t top_k = 0;       // draws among so many of the most probable tokens; 0: all
  int64_t seed = 42;
};

// Draws of one text. Equal scores and seeds give equal tokens on every machine.
class TokenSampler {
 public:
  // `text`: the number of the text among those with this seed.
  TokenSampler(const SamplingSpec& spec, int64_t text);

  int64_t Choose(std::span<const float> scores);

 private:
  struct Candidate {
    int64_t token;
    double weight;  // exp of its score, relative to the greatest one
  };
  void KeepMostProbable();

  SamplingSpec spec_;
  std::mt19937_64 random_;
  std::vector<Candidate> candidates_;
};

struct GenerationSpec {
  int64_t max_new_tokens = 256;
  SamplingSpec sampling;
  std::vector<int64_t> stop;  // tokens that end a text
};

// Gets each new token of a row, also the one that ends it.
using TokenListener = std::function<absl::Status(int64_t row, int64_t token)>;

// Continues the prompts, one in each row of the decoder, behind the tokens that the rows have. There are at most as
// many as rows. Returns the new tokens of each row without the one that ends it. A row also ends when it is as long as
// the decoder's capacity. `first`: the number of the first text (TokenSampler). Fails on a prompt without tokens, and
// on one that leaves no room.
absl::StatusOr<std::vector<std::vector<int64_t>>> WriteText(TextDecoder& decoder,
                                                            std::span<const std::vector<int64_t>> prompts,
                                                            const GenerationSpec& spec, int64_t first,
                                                            const TokenListener& listener = nullptr);

// A text behind a prompt.
struct WrittenText {
  std::string text;
  int64_t tokens = 0;
  bool ended = false;  // by a token of GenerationSpec::stop; false: by a limit
};

// Continues any number of prompts, as many together as the decoder has rows, and drops what it had before. `number`:
// that of the first text (TokenSampler).
absl::StatusOr<std::vector<WrittenText>> WriteAnswers(TextDecoder& decoder, const Prompts& prompts,
                                                      std::span<const std::vector<int64_t>> asked,
                                                      const GenerationSpec& spec, int64_t number,
                                                      const std::atomic<bool>* stop);

// Returns the choices of `max_new_tokens`, `temperature`, `top_p`, `top_k` and `seed`.
GenerationSpec MakeGenerationSpec(const TrainConfig& config, const Prompts& prompts);

}  // namespace onnxtrain
