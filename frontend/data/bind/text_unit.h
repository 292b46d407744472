// What the tokens of a language model's samples stand for.
#pragma once

#include <cstdint>

namespace onnxtrain {

struct TextUnit {
  int64_t tokens_per_sample = 0;  // 0: samples are no blocks of tokens
  double bytes_per_token = 0;     // 0: unknown
  bool tokens_are_characters = false;
};

}  // namespace onnxtrain
