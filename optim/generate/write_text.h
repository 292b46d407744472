// Continues texts token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/generate/text_decoder.h"
#include "optim/generate/token_sampler.h"

namespace onnxtrain {

struct GenerationSpec {
  int64_t max_new_tokens = 256;
  SamplingSpec sampling;
  std::vector<int64_t> stop;  // tokens that end a text
};

// Gets each new token of a row, also the one that ends it.
using TokenListener = std::function<absl::Status(int64_t row, int64_t token)>;

// Continues the prompts, one in each row of the decoder, behind the tokens that the rows have. Returns the new tokens
// of each row without the one that ends it. A row also ends when it is as long as the decoder's capacity. `first`: the
// number of the first text (TokenSampler). Fails on a prompt without tokens, and on one that leaves no room.
absl::StatusOr<std::vector<std::vector<int64_t>>> WriteText(TextDecoder& decoder,
                                                            std::span<const std::vector<int64_t>> prompts,
                                                            const GenerationSpec& spec, int64_t first,
                                                            const TokenListener& listener = nullptr);

}  // namespace onnxtrain
